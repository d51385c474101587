"""What is known of the job that ran, as the tables of `job.toml`, each fact with where it comes from.

Order: given in job.toml, read from an input (its path), process groups. Two inputs that disagree give nothing. It does
not judge whether the facts make a job; it says which of the necessary ones are missing or contradict each other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import Any

import pyarrow as pa

from diagnose.findings import Diagnosis

SECTIONS = ("model", "train", "layout", "cluster", "search")
NEEDED = (
    "model.layers", "model.hidden", "model.heads", "model.ffn", "model.vocab", "model.seq_len",
    "train.micro_batch", "train.global_batch",
)  # fmt: skip
"""Without these a plan would guess the model or the work of a step."""
DEGREES = ("tp", "pp", "cp")
PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "tf32": "tf32"}


@dataclass(frozen=True, slots=True)
class Fact:
    """One key of `job.toml`; `source`: given, or where it was read or inferred."""

    key: str
    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Known facts, or the one line why they do not make a job (`reason`, empty where they do)."""

    known: tuple[Fact, ...]
    reason: str = ""

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """The facts as `Job.from_dict` takes them."""
        found: dict[str, dict[str, Any]] = {}
        for fact in self.known:
            section, _, key = fact.key.partition(".")
            found.setdefault(section, {})[key] = fact.value
        return found


class _MissingError(Exception):
    """The line that says why there is no job."""


def collect(diagnosis: Diagnosis) -> Facts:
    """Facts of the job behind a diagnosis."""
    known = _settings(diagnosis)
    if not any(key.startswith("model.") for key in known):
        return Facts((), "the model is not known: describe the job in job.toml (--job)")
    try:
        _require(known)
        _gpu(known, diagnosis)
        _layout(known, diagnosis)
        _precision(known, diagnosis)
    except _MissingError as missing:
        return Facts(tuple(known.values()), str(missing))
    return Facts(tuple(known.values()))


def _settings(diagnosis: Diagnosis) -> dict[str, Fact]:
    table = diagnosis.tables.get("settings")
    if table is None:
        return {}
    files = diagnosis.tables["files"].select(["path", "kind"]).to_pylist()
    given = {row["path"] for row in files if row["kind"] == "job"}
    found: dict[str, Fact] = {}
    doubtful: set[str] = set()
    for row in sorted(table.to_pylist(), key=lambda row: row["source"] not in given):
        key = row["key"]
        if key.partition(".")[0] not in SECTIONS or row["value"] is None:
            continue
        fact = Fact(key, _value(row["value"]), "given" if row["source"] in given else f"read from {row['source']}")
        first = found.setdefault(key, fact)
        if first.value != fact.value and first.source != "given":
            doubtful.add(key)
    return {key: fact for key, fact in found.items() if key not in doubtful}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _require(known: dict[str, Fact]) -> None:
    experts = known.get("model.experts")
    needless = {"model.ffn"} if experts and experts.value and "model.expert_ffn" in known else set()
    missing = [key for key in NEEDED if key not in known and key not in needless]
    if missing:
        raise _MissingError(f"not known: {', '.join(missing)}; add them to job.toml (--job)")


def _gpu(known: dict[str, Fact], diagnosis: Diagnosis) -> None:
    """The GPU that ran, where the planner has exactly that part."""
    from diagnose.formulas.gpus import find_gpu

    name = diagnosis.job["gpu"]
    recorded = find_gpu(name)
    if "cluster.gpu" not in known:
        if name is None:
            raise _MissingError("the GPU is not known; add cluster.gpu to job.toml (--job)")
        if recorded is None:
            raise _MissingError(f"no figures are known for a GPU named {name!r}; add cluster.gpu to job.toml (--job)")
        known["cluster.gpu"] = Fact("cluster.gpu", name, "read from the recording")
    from diagnose.planner.devices import find_device

    device = find_device(str(known["cluster.gpu"].value))
    peaks = recorded.peak_flop_per_s if recorded else {}
    if recorded and (not device or device.peak_flop_per_s not in (peaks.get("bfloat16"), peaks.get("float16"))):
        raise _MissingError(
            f"the planner takes {known['cluster.gpu'].value!r} for {device.name}, but the recording names {name!r}"
            if device
            else f"the planner does not know a GPU named {name!r}"
        )
    sizes = set(diagnosis.tables["files"]["gpu_memory_bytes"].drop_null().to_pylist())
    if len(sizes) == 1 and "cluster.gpu_memory_bytes" not in known:
        known["cluster.gpu_memory_bytes"] = Fact("cluster.gpu_memory_bytes", sizes.pop(), "read from the recording")


def _layout(known: dict[str, Fact], diagnosis: Diagnosis) -> None:
    """Degrees, dp from the world size; anything that contradicts it is said, not chosen."""
    world = _world_size(known, diagnosis)
    told = any(key.startswith("layout.") for key in known)
    for dim in (*DEGREES, "ep"):
        seen = diagnosis.job["layout"][dim]
        read = seen["value"] if seen["source"] == "process groups" else _of_groups(diagnosis, dim)
        fact = known.get(f"layout.{dim}")
        if fact and read is not None and fact.value != read:
            raise _MissingError(f"layout.{dim} = {fact.value} ({fact.source}), but process groups have {read} ranks")
        if not fact and read is not None:
            known[f"layout.{dim}"] = Fact(f"layout.{dim}", read, "process groups")
        elif not fact and dim != "ep":
            known[f"layout.{dim}"] = Fact(f"layout.{dim}", 1, "no such group is known")
    groups = diagnosis.job["layout"]["dp"]
    dp = known["layout.dp"].value if "layout.dp" in known else groups["value"]
    product = prod(int(known[f"layout.{dim}"].value) for dim in DEGREES)
    if not told and world > 1 and product == 1 and dp != world:
        raise _MissingError(f"the layout of the {world} ranks is not known; add [layout] to job.toml (--job)")
    if not told and product > 1 and dp is not None and dp * product != world and world % product:
        raise _MissingError(f"process groups do not multiply to the {world} ranks; add [layout] to job.toml (--job)")
    if "layout.dp" not in known and world % product == 0:
        known["layout.dp"] = Fact("layout.dp", world // product, "from the others")


def _of_groups(diagnosis: Diagnosis, dim: str) -> int | None:
    """The one size of described groups of a dimension, also where job.toml gives the degree."""
    table = diagnosis.tables.get("groups")
    if table is None:
        return None
    sizes = {r["size"] for r in table.to_pylist() if r["dim"] == dim and r["dim_source"] == "description"}
    return sizes.pop() if len(sizes) == 1 else None


def _world_size(known: dict[str, Fact], diagnosis: Diagnosis) -> int:
    """Ranks of the job; the key that logs use for it is no key of job.toml."""
    logged = known.pop("cluster.world_size", None)
    recorded = diagnosis.job["world_size"] or (logged.value if logged else None)
    given = None
    if "cluster.gpus" in known:
        given = int(known["cluster.gpus"].value)
    elif "cluster.nodes" in known:
        per_node = known.get("cluster.gpus_per_node")
        given = int(known["cluster.nodes"].value) * int(per_node.value if per_node else 8)
    elif all(f"layout.{dim}" in known for dim in ("dp", *DEGREES)):
        given = prod(int(known[f"layout.{dim}"].value) for dim in ("dp", *DEGREES))
    if given and recorded and given != recorded:
        raise _MissingError(f"job.toml describes {given} GPUs, the recording is of {recorded} ranks")
    if not (given or recorded):
        raise _MissingError("the number of GPUs is not known; add cluster.nodes to job.toml (--job)")
    if not given:
        source = "read from the recording" if diagnosis.job["world_size"] or not logged else logged.source
        known["cluster.gpus"] = Fact("cluster.gpus", recorded, source)
    return int(given or recorded or 1)


def _precision(known: dict[str, Fact], diagnosis: Diagnosis) -> None:
    """The number format of most product time, where it was recorded and nobody gave it."""
    gemms = diagnosis.tables.get("gemms")
    if "train.precision" in known or gemms is None or not gemms.num_rows:
        return
    time = gemms.select(["dtype", "dur_ns"]).set_column(0, "dtype", gemms["dtype"].cast(pa.string()))
    totals = time.group_by("dtype").aggregate([("dur_ns", "sum")]).sort_by([("dur_ns_sum", "descending")]).to_pylist()
    if totals[0]["dtype"] in PRECISIONS:
        known["train.precision"] = Fact("train.precision", PRECISIONS[totals[0]["dtype"]], "recorded products")
