"""What the job's step would gain from one fix at a time, by replay: pipelines and ranks that meet in collectives.

Not added up: two fixes may win the same time. Withheld where the replay misses the recording, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from diagnose.findings import Diagnosis
from diagnose.report._blocks import UNKNOWN_NAME, Block, Figure, Grid, Name, Section, Text, columns, known
from diagnose.report._figures import height
from diagnose.report._figures_gains import gains
from diagnose.report._parts import part
from diagnose.report._text import clean, rank_name
from diagnose.units import show

ORDER = 58
MOST_BARS = 14
LEAST_SHARE = 0.0005
"""Of the step; smaller gains are not drawn."""

Row = dict[str, Any]
_PHASES = {
    "forward": "forward", "backward": "backward", "backward_input": "input gradient", "weight": "weight gradient",
    "exchange_forward": "activations to the next stage", "exchange_backward": "gradients to the stage before",
    "parameter_sync": "parameter gather", "gradient_sync": "gradient reduction",
    "late_gradient_sync": "gradient reduction after the last micro-batch", "layernorm_sync": "layer norm gradients",
    "embedding_sync": "embedding gradients", "gradient_clip": "gradient clipping", "optimizer": "optimizer",
    "gc": "garbage collection", "loss": "loss", "other": "other",
}  # fmt: skip
_CAUSES = {"compute": "compute", "input": "input", "gc": "GC", "copy": "copies", "host": "host idle", "begin": "begin"}
_EQUAL = {
    "compute": ("equal compute", "all ranks compute for the mean time"),
    "input": ("equal input waits", "all ranks wait for data for the mean time"),
    "gc": ("equal garbage collection", "all ranks collect for the mean time"),
    "copy": ("equal copies", "all ranks copy for the mean time"),
    "host": ("equal host idle", "the device idles on the host's account for the mean time on all ranks"),
    "begin": ("all begin together", "the ranks begin their first recorded step at the mean time"),
}
_WITHOUT = {"sync": "no idle after syncs", "launch": "no late launches", "copy": "no copies"}


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where nothing could be replayed at all."""
    found = [(tables[name].to_pylist(), worded) for name, worded in _WORDED.items() if name in tables]
    for rows, worded in ((rows, worded) for rows, worded in found if rows):
        base = rows[0]
        if base["reason"]:
            return Section("what-if", "What a fix would win", [Text(f"No answer: {clean(base['reason'])}.")])
        blocks: list[Block] = [b for b in (_bars(rows, base, worded), *_details(rows)) if b is not None]
        said = "Each bar is one replay of the recorded order of work with one thing fixed; they do not add up."
        blocks.append(Text(said, quiet=True))
        return Section("what-if", "What a fix would win", blocks, _lead(base, rows))
    return None


def _lead(base: Row, rows: list[Row]) -> str:
    text = (
        f"Replayed, the step takes {show('_ns', base['step_ns'])}; recorded were {show('_ns', base['measured_ns'])}"
        f" ({show('_ratio', base['error_ratio'])} off, {base['steps_count']:,} step{'s' * (base['steps_count'] != 1)})."
    )
    ideal = next((r for r in rows if r["fixed"] == "everything"), None)
    if ideal is not None:
        text += (
            f" With every kind of operation at its usual length it would be {show('_ns', ideal['step_ns'])}:"
            f" slowdown {ideal['slowdown_ratio']:.2f}."
        )
    return text


def _bars(rows: list[Row], base: Row, worded: Callable[[Row], tuple[str, str] | None]) -> Figure | None:
    least = LEAST_SHARE * base["step_ns"]
    named = [(worded(r), r["gain_ns"]) for r in rows[1:] if r["gain_ns"] is not None and r["gain_ns"] > least]
    shown = sorted(((w, g) for w, g in named if w is not None), key=lambda pair: -pair[1])
    kept = shown[:MOST_BARS]
    if not kept:
        return None
    names, hover = [w[0] for w, _ in kept], [w[1] for w, _ in kept]
    spec = gains(names, [g for _, g in kept], base["step_ns"], hover)
    alt = "; ".join(f"{n}: {show('_ns', g)}" for n, (_, g) in zip(names, kept, strict=True))
    note = f"{len(shown) - len(kept):,} smaller gains are not shown." if len(shown) > len(kept) else ""
    return Figure("Gain of one fix, per step", spec, height(len(kept)), f"Gains: {alt}.", note)


def _of_pipeline(row: Row) -> tuple[str, str] | None:
    """(name, explanation) of a fix; None where it is no fix of its own."""
    if row["fixed"] == "link":
        boundary = f"link of stages {row['stage']} and {row['stage'] + 1}"
        return (
            boundary,
            f"{boundary} as fast as the others: {show('_ns', row['usual_ns'])} for {show('_ns', row['own_ns'])}",
        )
    if row["fixed"] == "worker":
        return f"{rank_name(row['rank'])} like its stage", "computes like the other copies of its stage"
    if row["fixed"] == "phase":
        name = _PHASES.get(row["phase"], row["phase"])
        return f"{name} ideal", f"every {name} takes its usual time, on all workers"
    return {
        "everything": ("everything usual", "every kind of operation at one length: the reference of slowdown"),
        "stage_balance": ("even stages", "the same work split evenly over the stages"),
        "microbatch_balance": ("even micro-batches", "all micro-batches of a worker take equally long"),
    }.get(row["fixed"])


def _of_ranks(row: Row) -> tuple[str, str] | None:
    if row["fixed"] == "part":
        shown = part(row["part"])
        return _WITHOUT.get(row["part"], f"no {shown.label}"), f"taken from all ranks: {shown.meaning}"
    if row["fixed"] == "rank":
        return f"{rank_name(row['rank'])} like the others", "its own work takes the median of the other ranks"
    if row["fixed"] == "group":
        return f"group {clean(row['group'])}", "transfers as fast as in groups of the same kind and size"
    if row["fixed"] == "balance_part":
        return _EQUAL.get(row["part"])
    return {
        "balance": ("all ranks equal", "all ranks' own work takes the mean"),
        "transfer": ("free transfers", "no transfer takes time, waiting for late ranks stays"),
    }.get(row["fixed"])


_WORDED: dict[str, Callable[[Row], tuple[str, str] | None]] = {"what_if": _of_pipeline, "rank_what_if": _of_ranks}


def _details(rows: list[Row]) -> list[Grid]:
    """Slowdown by kind of operation and by stage; why ranks are late."""
    grids = []
    for fixed, title, name in (("phase", "Slowdown by kind of operation", "Operation"), ("stage", "By stage", "Stage")):
        some = sorted((r for r in rows if r["fixed"] == fixed), key=_slow_first if fixed == "phase" else _by_number)
        label = (lambda r: _PHASES.get(r["phase"], r["phase"])) if fixed == "phase" else (lambda r: str(r["stage"]))
        cells = [
            [label(r), _ratio(r["slowdown_ratio"]), _gain(r["gain_ns"]), _share(r["explained_ratio"])] for r in some
        ]
        heads = columns(name, ">Alone not ideal", ">Ideal: gain", ">Of an ideal job's gain")
        grids += [Grid(title, heads, cells)] if some else []
    by = {(r["rank"], r["part"]): r["gain_ns"] for r in rows if r["fixed"] == "rank_part"}
    least = LEAST_SHARE * (rows[0]["step_ns"] or 0)
    late = [r for r in rows if r["fixed"] == "rank" and (r["gain_ns"] or 0) > least and (r["rank"], "compute") in by]
    if late:
        cells = [
            [
                Name(rank_name(r["rank"]).replace(" ", "\u00a0")),
                _gain(r["gain_ns"]),
                *(_gain(by.get((r["rank"], c))) for c in _CAUSES),
            ]
            for r in late
        ]
        heads = columns(
            "Rank", ">Whole", *(f">{name.capitalize() if name != 'GC' else name}" for name in _CAUSES.values())
        )
        grids.append(
            known(
                Grid("What a rank wins the job by being like the others: whole, and by part of its time", heads, cells)
            )
        )
    return grids


def _slow_first(row: Row) -> float:
    return -(row["slowdown_ratio"] or 0.0)


def _by_number(row: Row) -> float:
    return float(row["stage"])


def _gain(gain_ns: int | None) -> Any:
    return UNKNOWN_NAME if gain_ns is None else show("_ns", gain_ns) if gain_ns > 0 else "none"


def _ratio(ratio: float | None) -> Any:
    return UNKNOWN_NAME if ratio is None else f"{ratio:.3f}"


def _share(ratio: float | None) -> Any:
    return UNKNOWN_NAME if ratio is None else show("_ratio", ratio)
