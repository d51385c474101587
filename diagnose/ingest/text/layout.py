"""Sentences in which frameworks print their layout at start, as `settings` under the keys of job.toml.

Megatron-LM: the number of micro-batches, virtual stages, recomputation (its other arguments are read by `training`).
torchtitan: device mesh, pipeline schedule, batch sizes. DeepSpeed: topology of processes, micro-batches of its pipeline
engine, batch sizes of its configuration. What job.toml has no key for is under `pipeline.`: the micro-batches of a step
(`pipeline.microbatches`) and a schedule that no law is known for. torchtitan's mesh names only dimensions above one, so
the others are one; its data-parallel size is that of replicas times shards.
Sources: Megatron-LM microbatches.py and num_microbatches_calculator.py; torchtitan parallel_dims.py,
pipeline_parallel.py, train.py (2024 to 2026); DeepSpeed runtime/pipe/engine.py, module.py and runtime/config.py.
"""

from __future__ import annotations

import re

from diagnose.ingest.text._lines import Lines
from diagnose.schema import INGESTED, Tables

_TOPOLOGY = r"Using topology: \{ProcessCoord\("
_DEEPSPEED = r"\]\s+(train_batch_size|train_micro_batch_size_per_gpu) \.+ (\d+)"
MARK = (
    r"[Ss]etting number of micro-?batches to constant \d"
    r"|num_(?:layers_per_virtual_pipeline_stage|virtual_stages_per_pipeline_rank)\]? *(?:\.{3,}|=|:) *\d"
    r"|(?:recompute_granularity|checkpoint_activations)\]? *(?:\.{3,}|=|:) *(?:full|selective|True)"
    r"|Building (?:\d-D )?device mesh with"
    r"|Using pipeline schedule \w|(?:Training starts|Trainer is initialized).* local batch size \d"
    rf"|{_TOPOLOGY}|CONFIG: micro_batches=\d|{_DEEPSPEED}"
)
SCHEDULES = {
    "1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "interleaved", "zbvzerobubble": "zbv", "schedulezbv": "zbv",
}  # fmt: skip
"""torchtitan's names of schedules (lower case) -> those of job.toml."""
_MESH = {"pp": "layout.pp", "cp": "layout.cp", "tp": "layout.tp", "ep": "layout.ep", "etp": "layout.etp"}
_COORD = {"pipe": "layout.pp", "data": "layout.dp", "model": "layout.tp"}


class Reader:
    """Collects the layout that one document prints; the last word counts."""

    def __init__(self) -> None:
        self.settings: dict[str, int | str] = {}
        self.virtual_layers: int | None = None
        self.stages: int | None = None

    def feed(self, lines: Lines) -> int:
        """Read lines; how many were of a known kind."""
        kinds = (_megatron, _mesh, _schedule, _batch, _deepspeed)
        return sum(any(read(self, text) for read in kinds) for _, text in lines.rows())

    def tables(self, path: str) -> Tables:
        """`settings`; the virtual stages that follow from others, too."""
        pp = self.settings.get("layout.pp")
        if self.stages and isinstance(pp, int) and self.stages > pp > 1 and self.stages % pp == 0:
            self.settings["layout.vpp"] = self.stages // pp
        elif self.stages and pp is None:
            self.settings["layout.pp"] = self.stages
        if self.virtual_layers:
            self.settings["pipeline.layers_per_chunk"] = self.virtual_layers
        given = [(key, str(value)) for key, value in self.settings.items()]
        columns = {"key": [k for k, _ in given], "value": [v for _, v in given], "source": [path] * len(given)}
        return {"settings": INGESTED["settings"].build(columns)}


def _megatron(found: Reader, text: str) -> bool:
    if match := re.search(r"etting number of micro-?batches to constant (\d+)", text):
        found.settings["pipeline.microbatches"] = int(match[1])
    elif match := re.search(r"num_layers_per_virtual_pipeline_stage\W+(\d+)", text):
        found.virtual_layers = int(match[1])
    elif match := re.search(r"num_virtual_stages_per_pipeline_rank\W+(\d+)", text):
        found.settings["layout.vpp"] = int(match[1])
    elif match := re.search(r"recompute_granularity\W+(full|selective)\b", text):
        found.settings["train.recompute"] = match[1]
    elif match := re.search(r"checkpoint_activations\W+True\b", text):  # Megatron-LM before core 0.1
        found.settings["train.recompute"] = "full"
    return match is not None


def _mesh(found: Reader, text: str) -> bool:
    if named := re.search(r"device mesh with parallelism: (.*)", text):
        sizes = {key: int(size) for key, size in re.findall(r"(\w+)=(\d+)", named[1])}
    elif listed := re.search(r"\d-D device mesh with \[([^\]]*)\], \[([^\]]*)\]", text):
        names = re.findall(r"'(\w+)'", listed[1])
        sizes = dict(zip(names, map(int, re.findall(r"\d+", listed[2])), strict=False))
    else:
        return False
    for dim, key in _MESH.items():
        if dim in sizes or dim in ("pp", "cp", "tp"):
            found.settings[key] = sizes.get(dim, 1)
    shards = sizes.get("dp_shard", sizes.get("dp_shard_cp", sizes.get("dp", 1)))
    inside = sizes.get("dp_shard_in_ep", 1) * sizes.get("dp_shard_mod_ep", 1)
    found.settings["layout.dp"] = sizes.get("dp_replicate", 1) * shards * inside
    return True


def _schedule(found: Reader, text: str) -> bool:
    match = re.search(r"Using pipeline schedule (\w+)(?: with (\d+) microbatches and (\d+) stages)?", text)
    if match is None:
        return False
    known = SCHEDULES.get(match[1].lower())
    found.settings["layout.schedule" if known else "pipeline.schedule"] = known or match[1]
    if match[2]:
        found.settings["pipeline.microbatches"] = int(match[2])
        found.stages = int(match[3])
    return True


def _batch(found: Reader, text: str) -> bool:
    """torchtitan: the batch of one data-parallel rank and of the job."""
    match = re.search(r" local batch size (\d+), global batch size (\d+)", text)
    if match is None:
        return False
    found.settings["train.global_batch"] = int(match[2])
    if sequence := re.search(r"sequence length (\d+)", text):
        found.settings["model.seq_len"] = int(sequence[1])
    if found.settings.get("layout.pp") == 1:
        found.settings["train.micro_batch"] = int(match[1])
    return True


def _deepspeed(found: Reader, text: str) -> bool:
    if re.search(_TOPOLOGY, text):
        for name, key in _COORD.items():
            places = [int(n) for n in re.findall(rf"\b{name}=(\d+)", text)]
            if places:
                found.settings[key] = max(places) + 1
        return True
    if match := re.search(r"CONFIG: micro_batches=(\d+) micro_batch_size=(\d+)", text):
        found.settings |= {"pipeline.microbatches": int(match[1]), "train.micro_batch": int(match[2])}
        return True
    match = re.search(_DEEPSPEED, text)
    if match is None:
        return False
    found.settings["train.global_batch" if match[1] == "train_batch_size" else "train.micro_batch"] = int(match[2])
    return True
