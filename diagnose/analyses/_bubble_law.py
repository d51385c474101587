"""The bubble that a job's settings alone imply, where nothing recorded its pipeline: a law, not a measurement.

Stages and micro-batches come from settings (given in job.toml before printed in a log); two that disagree give
nothing. Without a number of micro-batches it is the global batch over micro-batch and data-parallel size. Without a
schedule it is the frameworks' default: 1F1B, or interleaved 1F1B where stages hold several chunks. The law takes
forward, input and weight gradient as equally long; only the zero-bubble schedules depend on that.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from diagnose.formulas.schedules import ZERO_BUBBLE_SHARE, bubble_of_step_ratio

DEGREES = ("layout.pp", "layout.dp", "layout.tp", "layout.cp", "layout.vpp", "train.micro_batch", "train.global_batch",
           "pipeline.microbatches", "pipeline.layers_per_chunk", "model.layers", "cluster.world_size")  # fmt: skip


def law_row(
    settings: pa.Table, files: pa.Table | None, trends: pa.Table | None, spans: pa.Table | None
) -> dict[str, Any] | None:
    """Row of `bubbles` for the settings; None where they do not tell stages and micro-batches."""
    known = _settled(settings, files)
    number = {key: int(known[key]) for key in DEGREES if known.get(key, "").isdecimal()}
    stages = number.get("layout.pp")
    row: dict[str, Any] = {"measured": False, "analysed": True, "dur_ns": _step_ns(trends, spans)}
    if stages == 1:
        return {**row, "stages_count": 1, "schedule": "unknown", "law_ratio": 0.0, "bubble_ratio": 0.0}
    microbatches = stages and (number.get("pipeline.microbatches") or _microbatches(number))
    if not stages or not microbatches:
        return None
    chunks = _chunks(number, stages)
    schedule = known.get("layout.schedule") or ("interleaved" if chunks > 1 else "1f1b")
    if schedule not in ZERO_BUBBLE_SHARE or "pipeline.schedule" in known:
        return None
    law = bubble_of_step_ratio(stages, microbatches, chunks if schedule == "interleaved" else 1, schedule)
    counts = {"stages_count": stages, "microbatches_count": microbatches, "chunks_count": chunks}
    return {**row, **counts, "schedule": schedule, "law_ratio": law, "bubble_ratio": law}


def _settled(settings: pa.Table, files: pa.Table | None) -> dict[str, str]:
    """Values that nothing contradicts; those of job.toml count before all others."""
    kinds = {} if files is None else dict(zip(files["path"].to_pylist(), files["kind"].to_pylist(), strict=True))
    given: dict[str, set[str]] = {}
    found: dict[str, set[str]] = {}
    for row in settings.select(["key", "value", "source"]).to_pylist():
        if row["value"] is not None:
            where = given if kinds.get(row["source"]) == "job" else found
            where.setdefault(row["key"], set()).add(row["value"])
    every = {**found, **given}
    return {key: next(iter(values)) for key, values in every.items() if len(values) == 1}


def _microbatches(number: dict[str, int]) -> int | None:
    batch, micro, dp = (number.get(k) for k in ("train.global_batch", "train.micro_batch", "layout.dp"))
    if dp is None and "cluster.world_size" in number:
        inner = number["layout.pp"] * number.get("layout.tp", 1) * number.get("layout.cp", 1)
        dp = number["cluster.world_size"] // inner if number["cluster.world_size"] % inner == 0 else None
    if not (batch and micro and dp) or batch % (micro * dp):
        return None
    return batch // (micro * dp)


def _chunks(number: dict[str, int], stages: int) -> int:
    layers, each = number.get("model.layers"), number.get("pipeline.layers_per_chunk")
    if "layout.vpp" in number:
        return max(1, number["layout.vpp"])
    return layers // (stages * each) if layers and each and layers % (stages * each) == 0 else 1


def _step_ns(trends: pa.Table | None, spans: pa.Table | None) -> int | None:
    """Mean step that a log prints, else the longest rank's in traces; None where neither has steps."""
    if trends is not None and trends.num_rows:
        rows = trends.filter(trends["timed"].fill_null(False)).select(["rank", "whole_mean"]).to_pylist()
        logged = [round(r["whole_mean"]) for r in rows if r["rank"] is None and r["whole_mean"] is not None]
        if logged:
            return int(logged[0])
    rows = [] if spans is None else spans.select(["step", "mean_ns"]).to_pylist()
    known = [int(row["mean_ns"]) for row in rows if row["step"] is not None]
    return max(known, default=None)
