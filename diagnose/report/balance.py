"""How evenly the ranks are loaded: busy time as a histogram, and where the others' time goes, across the job.

Busy is work of the rank itself (compute and unclassified kernels; of a pipeline stage, its micro-batches): neither
communication nor waiting. The mean over the longest is the share of the job's time that even work would use.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.findings import Diagnosis
from diagnose.report._blocks import Figure, Grid, Section, Text, columns
from diagnose.report._figures_gains import histogram
from diagnose.report._parts import part
from diagnose.report._text import rank_name
from diagnose.schema.pipelines import COMPUTE_PHASES
from diagnose.units import show

ORDER = 57
_PARTS = ("compute", "wait", "comm", "input", "launch", "sync", "gc", "alloc", "copy", "idle")
_WAIT = "waiting for peers"


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where fewer than two ranks have times."""
    spans = tables.get("spans")
    if spans is not None and len(set(spans["rank"].to_pylist())) > 1:
        rows = _of_traces(spans)
        scope = spans["scope"][0].as_py()
    else:
        rows, scope = _of_pipeline(tables.get("stage_work")), "per step"
    if len(rows) < 2:
        return None
    ranks, busy = list(rows), [row["busy"] for row in rows.values()]
    low, high = min(rows, key=lambda r: rows[r]["busy"]), max(rows, key=lambda r: rows[r]["busy"])
    even = float(np.mean(busy)) / max(busy) if max(busy) else 1.0
    lead = (
        f"{rank_name(high).capitalize()} is busy longest, {show('_ns', rows[high]['busy'])}; {rank_name(low)} shortest,"
        f" {show('_ns', rows[low]['busy'])} {scope}. Load balance (mean over longest): {show('_ratio', even)}."
    )
    alt = f"Busy time of {len(ranks)} ranks between {show('_ns', min(busy))} and {show('_ns', max(busy))}."
    figure = Figure("Ranks by busy time", histogram(ranks, busy), 260, alt)
    note = Text(
        "Busy is own work: neither communication nor waiting, which a late rank causes on the others.", quiet=True
    )
    return Section("balance", "How evenly the ranks are loaded", [figure, _across(rows), note], lead)


def _of_traces(spans: pa.Table) -> dict[int, dict[str, int]]:
    """Per rank, mean of each part over its spans, ns."""
    frame = {name: spans[name].to_numpy() for name in spans.column_names if name.endswith("_ns")}
    rank = spans["rank"].to_numpy()
    found = {}
    for one in np.unique(rank).tolist():
        mine = rank == one
        means = {name.removesuffix("_ns"): int(values[mine].mean()) for name, values in frame.items()}
        found[one] = {"busy": means["compute"] + means["unclassified"], **{p: means[p] for p in _PARTS}}
    return found


def _of_pipeline(work: pa.Table | None) -> dict[int, dict[str, int]]:
    """Per rank, mean time with micro-batches over its steps, ns."""
    if work is None or not work.num_rows:
        return {}
    phase = np.array(work["phase"].cast(pa.string()).to_pylist())
    rank, step, dur_ns = (work[name].to_numpy() for name in ("rank", "step", "dur_ns"))
    computes = np.isin(phase, COMPUTE_PHASES)
    return {
        one: {"busy": int(dur_ns[computes & (rank == one)].sum() // len(np.unique(step[rank == one])))}
        for one in np.unique(rank[computes]).tolist()
    }


def _across(rows: dict[int, dict[str, int]]) -> Grid:
    """Each part over the ranks: least, median, most, and whose it is."""
    cells: list[list[Any]] = []
    for key in ("busy", *_PARTS):
        values = {r: row[key] for r, row in rows.items() if key in row}
        if key == "compute" or not values or not max(values.values()):
            continue
        spread = np.array(list(values.values()))
        name = {"busy": "busy", "wait": _WAIT}.get(key) or part(key).label
        worst = max(values, key=lambda r: values[r])
        figures = [show("_ns", int(v)) for v in (spread.min(), np.median(spread), spread.max())]
        cells.append([name, *figures, rank_name(worst) if spread.max() > spread.min() else "all alike"])
    return Grid("Over all ranks, mean per step", columns("Time", ">Least", ">Median", ">Most", "Most on"), cells)
