"""How well the device was used while it computed: matrix products against the peak, and MFU, or why it is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from diagnose.findings import Diagnosis
from diagnose.report._blocks import Block, Facts, Grid, Section, Share, columns
from diagnose.report._text import clean, name
from diagnose.report._totals import totals
from diagnose.units import UNKNOWN, show

ORDER = 90
MOST_ROWS = 15
SHAPE = ("op", "m", "n", "k", "batch", "dtype")


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where neither shapes nor a peak could have been looked up."""
    blocks: list[Block] = []
    lead = ""
    mfu = tables.get("mfu")
    if mfu is not None and mfu.num_rows:
        facts, lead = _mfu(mfu.to_pylist())
        blocks.append(facts)
    gemms = tables.get("gemms")
    if gemms is not None and gemms.num_rows:
        blocks.append(_gemms(gemms))
    elif gemms is not None:
        lead += " No operator shapes were recorded (record_shapes=True), so matrix products cannot be judged."
    return Section("efficiency", "Efficiency", blocks, lead.strip()) if blocks or lead else None


def _mfu(rows: list[dict[str, Any]]) -> tuple[Facts, str]:
    """Over the steps where there are any, else over the recording; means weigh each row by its duration."""
    rows = [r for r in rows if r["step"] is not None] or rows
    known = [r for r in rows if r["mfu_ratio"] is not None]
    span = sum(r["dur_ns"] for r in known)
    mean = sum(r["mfu_ratio"] * r["dur_ns"] for r in known) / span if span else None
    why = sorted({clean(r["reason"]) for r in rows if r["mfu_ratio"] is None and r["reason"]})
    covered = [r["covered_ratio"] for r in rows if r["covered_ratio"] is not None]
    peaks = sorted(
        {(r["peak_flop_per_s"], clean(r["peak_source"] or "")) for r in rows if r["peak_flop_per_s"] is not None}
    )
    items = [
        ("MFU of recorded operators", show("mfu_ratio", mean)),
        ("Why not", "; ".join(why[:3])) if why else ("Rows used", f"{len(known)} of {len(rows)}"),
        ("Compute time with known FLOP", show("covered_ratio", sum(covered) / len(covered) if covered else None)),
        ("Data type", ", ".join(sorted({clean(r["dtype"]) for r in rows if r["dtype"]})) or UNKNOWN),
        ("Peak used", "; ".join(show("peak_flop_per_s", p) for p, _ in peaks) or UNKNOWN),
        ("Source of the peak", "; ".join(dict.fromkeys(s for _, s in peaks if s)) or UNKNOWN),
    ]
    lead = (
        f"MFU {show('mfu_ratio', mean)} of recorded operators."
        if mean is not None
        else f"No MFU: {why[0] if why else UNKNOWN}."
    )
    return Facts(items), lead.replace("..", ".")


def _gemms(found: pa.Table) -> Grid:
    rows = totals(found, [*SHAPE, "peak_flop_per_s"], ["dur_ns", "work_flop"], order="dur_ns")
    heads = columns("Operator", ">m × n × k", ">Batch", "Type", ">Calls", ">Time", ">Achieved", ">Of peak")
    cells = []
    for r in rows[:MOST_ROWS]:
        rate = r["work_flop"] / (r["dur_ns"] / 1e9) if r["dur_ns"] and r["work_flop"] is not None else None
        ratio = rate / r["peak_flop_per_s"] if rate is not None and r["peak_flop_per_s"] else None
        ratio = ratio if ratio is not None and ratio <= 1 else None  # above the peak: the peak or the shape is wrong
        cells.append(
            [
                name(r["op"], 32),
                " × ".join(f"{r[c]:,}" if r[c] is not None else UNKNOWN for c in ("m", "n", "k")),
                show("batch", r["batch"]),
                clean(r["dtype"] or UNKNOWN),
                show("calls_count", r["calls"]),
                show("dur_ns", r["dur_ns"]),
                show("rate_flop_per_s", rate),
                Share(show("_ratio", ratio), ratio),
            ]
        )
    rest = rows[MOST_ROWS:]
    more = f"{len(rest):,} more shapes, {show('dur_ns', sum(r['dur_ns'] for r in rest))} in all." if rest else ""
    return Grid("Matrix products by shape, over the recording, all ranks read", heads, cells, more)
