"""Published measurements as jobs: a row of a validation table -> Job, with the facts its source states about the run.

What a table leaves out comes from the source it names (cluster links, framework, kernel generation), never from its
measured columns. Rows that do not reconcile (degrees against GPUs, no layer count) are left out and counted.
"""

from __future__ import annotations

import csv
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.validation_cells import count, number
from benchmarks.validation_facts import FACTS, GB, generic, recompute, tuned, zero
from diagnose.errors import DiagnoseError
from diagnose.planner import Job

ROOT = Path(os.environ.get("DIAGNOSE_VALIDATION", Path(__file__).parents[2] / "shared" / "validation"))
GIB = 2**30


@dataclass(frozen=True)
class Row:
    """One usable row: its job, what was measured (seconds, bytes), and the key its anchor is chosen within."""

    table: str
    number: int
    job: Job
    key: tuple[str, ...]
    step_s: float | None
    memory_bytes: float | None
    oom: bool
    raw: dict[str, str]


def table(name: str) -> list[dict[str, str]]:
    """Rows of one CSV as text."""
    with (ROOT / f"{name}.csv").open(newline="") as handle:
        return list(csv.DictReader(handle))


def rows(name: str) -> tuple[list[Row], int]:
    """Usable rows of a table, and how many were left out."""
    found = [row for row in (read(name, raw) for raw in table(name)) if row is not None]
    return found, len(table(name)) - len(found)


def read(name: str, raw: dict[str, str]) -> Row | None:
    """One row, or None where it does not describe a run that can be modelled."""
    try:
        description = describe(name, raw)
        job = Job.from_dict(description) if description else None
    except DiagnoseError:
        return None
    if job is None:
        return None
    return Row(
        table=name,
        number=int(raw["row"]),
        job=job,
        key=key_of(name, raw),
        step_s=step_seconds(name, raw, job),
        memory_bytes=memory_bytes(raw),
        oom=raw["result"].startswith("OOM"),
        raw=raw,
    )


def key_of(name: str, raw: dict[str, str]) -> tuple[str, ...]:
    """The anchor's group: GPU and precision; for BLOOM the era, for mixtures of experts release and family too."""
    key = (raw["gpu"], number_format(raw))
    if name == "bloom176b_jeanzay":
        return (*key, re.search(r"era=([^;]*)", raw["note"]).group(1))  # type: ignore[union-attr]
    if name == "megatron_bridge_perf" and raw["n_experts"]:
        return (*key, raw["note"].split(" ")[0], family(raw["model"]))
    return key


def number_format(raw: dict[str, str]) -> str:
    """The precision without what is not a precision (compile, asynchronous TP); fp8 recipes stay apart."""
    return re.sub(
        r"[+/](compile|AsyncTP|fp8 all-gather|DEFAULT|PURE|1F1B| )+|, fp32 grad accum", "", raw["precision"]
    ).strip()


def family(model: str) -> str:
    return re.split(r"[_ ]", model)[0].lower()


def memory_bytes(raw: dict[str, str]) -> float | None:
    value = number(raw["mem"])
    return None if value is None else value * (GIB if "GiB" in raw["mem_unit"] else GB)


def step_seconds(name: str, raw: dict[str, str], job: Job) -> float | None:
    """Measured seconds of a step; MFU or tokens/s where the source prints only those."""
    if seconds := number(raw["step_s"]):
        return seconds
    if rate := number(raw["tok_s_gpu"]):
        return job.tokens / rate / job.layout.world_size
    if name == "nanotron_ultrascale" and (mfu := number(raw["mfu_pct"])):
        return nanotron_flop(job) / (mfu / 100 * 989.5e12 * job.layout.world_size)
    return None


def nanotron_flop(job: Job) -> float:
    """nanotron's model FLOPs: block products and head, attention in full (get_flops in nanotron/models/llama.py)."""
    model = job.model
    block = 2 * (4 * model.hidden**2 + 3 * model.hidden * model.ffn) + 4 * model.seq_len * model.hidden
    return 3.0 * job.tokens * (model.layers * block + 2 * model.hidden * model.vocab)


def describe(name: str, raw: dict[str, str]) -> dict[str, Any] | None:
    """The tables of a job.toml for a row."""
    if not raw["hidden"] or not number(raw["gpus"]) or not raw["heads"] or not number(raw["tp"]):
        return None
    facts = FACTS.get(name, generic)(raw)
    layers = count(raw["layers"], 0) or facts.pop("layers", 0)
    if not layers:
        return None
    hidden, heads = count(raw["hidden"]), count(raw["heads"])
    model = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": count(raw["kv_heads"], heads),
        "ffn": count(raw["ffn"], 4 * hidden),
        "vocab": count(raw["vocab"]),
        "seq_len": count(raw["seq"]),
    }
    train = {"global_batch": count(raw["gbs"]), "zero": zero(raw["zero"]), "recompute": recompute(raw["recompute"])}
    layout = {
        key: count(raw[column])
        for key, column in (("tp", "tp"), ("pp", "pp"), ("vpp", "vp"), ("cp", "cp"), ("ep", "ep"))
    }
    layout["sp"] = raw["sp"] != "off"
    job = {
        "model": model | facts.get("model", {}),
        "train": train | facts.get("train", {}),
        "layout": layout | facts.get("layout", {}),
        "cluster": {"gpus": count(raw["gpus"]), "gpus_per_node": count(raw["gpus_per_node"], 8), "gpu": raw["gpu"]}
        | facts.get("cluster", {}),
        "search": facts.get("search", {}),
    }
    lay = job["layout"]
    dp = job["cluster"]["gpus"] / (lay["tp"] * lay["pp"] * lay["cp"])
    if facts.get("tuned"):
        return tuned(job)
    if "micro_batch" not in job["train"]:
        if not (number(raw["mbs"]) and dp >= 1):
            return None
        job["train"]["micro_batch"] = count(raw["mbs"])
    return job


def flop_per_gpu(row: Row) -> float:
    """Model FLOPs per GPU and step: what orders the rows when the anchor is chosen, and the naive baseline's only
    input."""
    from diagnose.planner.prediction import model_flop

    value = model_flop(row.job, causal=False) / row.job.layout.world_size
    assert math.isfinite(value)
    return value
