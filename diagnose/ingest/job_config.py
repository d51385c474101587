"""JSON files that describe a job (its layout, batches, recomputation) as `settings` under the keys of job.toml.

Launchers, experiment trackers and people write the same facts under different names; only names that mean one thing
are known here, wherever they stand in the object, and only with values of their kind (`"auto"` says nothing). What
stands under a key such as `reference` or `baseline` is about another job and keeps that name in front
(`reference.layout.pp`). Keys of no known meaning are kept as they are. A model's own config.json has no layout and is
not taken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, quality
from diagnose.ingest.text.layout import SCHEDULES
from diagnose.schema import INGESTED, Tables

_NAMES = {
    "layout.tp": ("tp", "tp_size", "tensor_parallel", "tensor_parallel_size", "tensor_parallel_degree",
                  "tensor_model_parallel_size"),
    "layout.pp": ("pp", "pp_size", "pipeline_parallel", "pipeline_parallel_size", "pipeline_parallel_degree",
                  "pipeline_model_parallel_size"),
    "layout.dp": ("dp", "dp_size", "data_parallel", "data_parallel_size", "data_parallel_degree"),
    "layout.cp": ("cp", "cp_size", "context_parallel", "context_parallel_size", "context_parallel_degree"),
    "layout.ep": ("ep", "ep_size", "expert_parallel", "expert_parallel_size", "expert_parallel_degree",
                  "expert_model_parallel_size"),
    "layout.vpp": ("vpp", "vpp_size", "virtual_pipeline", "virtual_pipeline_model_parallel_size"),
    "layout.schedule": ("pipeline_schedule", "pipeline_parallel_schedule"),
    "pipeline.microbatches": ("microbatches", "micro_batches", "num_microbatches", "num_micro_batches",
                              "n_microbatches", "pipeline_parallel_microbatches"),
    "train.micro_batch": ("micro_batch", "micro_batch_size", "train_micro_batch_size_per_gpu"),
    "train.global_batch": ("global_batch", "global_batch_size", "train_batch_size"),
    "train.recompute": ("recompute", "recompute_granularity", "activation_recompute"),
}  # fmt: skip
_RECOMPUTE = ("full", "selective", "none", None)
_KEYS = {name: key for key, names in _NAMES.items() for name in names}
_OTHER_JOB = re.compile(r"reference|baseline|published|expected|other|before", re.IGNORECASE)
_MAX_BYTES = 1 << 20


def sniff(head: bytes, name: str) -> bool:
    """A whole JSON object in which at least two names say how a job is laid out."""
    if head.lstrip()[:1] != b"{" or len(head) > _MAX_BYTES or b'"traceEvents"' in head:
        return False
    try:
        given = json.loads(head)
        return isinstance(given, dict) and len({key for p, v in _leaves(given) if (key := _known(p[-1], v))}) >= 2
    except (ValueError, RecursionError):
        return False


def read(source: Source, options: Options) -> Tables:
    """files, settings. InputError where the file does not parse."""
    try:
        given = json.loads(b"".join(source.chunks()))
    except (ValueError, RecursionError) as error:
        raise InputError(source.label, "a job description that does not parse", "JSON", "write it again") from error
    found: dict[str, str] = {}
    for path, value in _leaves(given):
        key = _key(path, value)
        found.setdefault(key, _text(key, value))
    columns = {"key": list(found), "value": list(found.values()), "source": [source.label] * len(found)}
    files = {"file": [0], "path": [source.label], "kind": ["job_config"], "events_count": [0]}
    return {
        "files": INGESTED["files"].build(files | {"status": ["ok"], "detail": [""]}),
        "settings": INGESTED["settings"].build(columns),
        "quality": quality([]),
    }


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif path:
        yield path, value


def _key(path: tuple[str, ...], value: Any) -> str:
    known = _known(path[-1], value)
    if known is None:
        return ".".join(path)
    return f"reference.{known}" if any(_OTHER_JOB.search(part) for part in path[:-1]) else known


def _known(name: str, value: Any) -> str | None:
    """The key of job.toml that a name means; None where its value is not of that key's kind ("auto")."""
    key = _KEYS.get(name.lower().replace("-", "_").lstrip("_"))
    if key == "layout.schedule":
        return key if isinstance(value, str) and value.lower() in SCHEDULES else None
    if key == "train.recompute":
        return key if value in _RECOMPUTE else None
    return key if isinstance(value, int) and not isinstance(value, bool) else None


def _text(key: str, value: Any) -> str:
    if value is None and key.endswith("train.recompute"):
        return "none"
    if not isinstance(value, str):
        return json.dumps(value)
    return SCHEDULES.get(value.lower(), value) if key.endswith("layout.schedule") else value
