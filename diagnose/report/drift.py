"""The step over the run: steady band, changes and stalls; what grew with it underneath; ranks side by side."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa

from diagnose import sql
from diagnose.findings import Diagnosis
from diagnose.formulas import metrics
from diagnose.report import _drift_figures as draw
from diagnose.report._blocks import UNKNOWN_NAME, Block, Figure, Grid, Section, columns
from diagnose.report._figures import axis_unit
from diagnose.report._text import clean, name, rank_name
from diagnose.report._text import plotly as literal
from diagnose.units import show

ORDER = 45
MOST_POINTS = 600
MOST_SIGNS = 4
MOST_RANKS = 12
MOST_STALLS = 400
BAND_SIGMAS = 3
MOVED_RATIO = 0.02
_SHAPES = {
    "level": "level", "drift": "drifting", "step": "changed at one step", "bump": "changed for a while",
    "short": "too few steps to tell",
}  # fmt: skip
Rows = list[dict[str, Any]]


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where no step times or rates over steps are logged."""
    trends, series = tables.get("trends"), tables.get("series")
    if trends is None or series is None or not trends.num_rows:
        return None
    rows = trends.to_pylist()
    job = rows[0]
    series = _with_samples(series, tables.get("device_series"))
    stalls: Rows = tables["stalls"].to_pylist() if "stalls" in tables else []
    causes: Rows = tables["slowdowns"].to_pylist() if "slowdowns" in tables else []
    blocks: list[Block] = []
    if (figure := _over_steps(series, rows, job, stalls, causes)) is not None:
        blocks.append(figure)
    if (figure := _over_ranks(series, rows, job, causes)) is not None:
        blocks.append(figure)
    if causes:
        blocks.append(_causes(causes))
    return Section("drift", "Over the run", blocks, _lead(job, stalls)) if blocks else None


def _with_samples(series: pa.Table, device_series: pa.Table | None) -> pa.Table:
    """Series and, behind them, what samples of the GPUs say at the same steps."""
    names = ["rank", "step", "segment", "metric", "value"]
    if device_series is None:
        return series
    return pa.concat_tables([series.select(names), device_series.select(names)]).unify_dictionaries()


def _lead(job: dict[str, Any], stalls: Rows) -> str:
    shape = str(job["shape"])
    text = f"{job['steps_count'] or 0:,} steps compared, {job['first_step']} to {job['last_step']}: {_SHAPES[shape]}"
    if job["change_ratio"] is not None and shape in ("drift", "step", "bump"):
        ended = f" until {job['until_step']}" if job["until_step"] is not None else ""
        text += f", {show('change_ratio', job['change_ratio'])} from step {job['from_step']}{ended}"
    left = [f"{job['warm_up_count']} of warm-up"] if job["warm_up_count"] else []
    left += [f"{job['stalls_count']} stalls"] if job["stalls_count"] else []
    left += [f"{job['ramp_count']} of other batch or sequence length"] if job["ramp_count"] else []
    periodic = {row["period_count"] for row in stalls if row["kind"] == "periodic" and row["rank"] is None}
    rhythm = f" Stalls come every {', '.join(map(str, sorted(periodic)))} steps." if periodic else ""
    return text + (f"; left out: {', '.join(left)}" if left else "") + "." + rhythm


def _over_steps(series: pa.Table, rows: Rows, job: dict[str, Any], stalls: Rows, causes: Rows) -> Figure | None:
    main = next((m for m in ("step_time_ns", "steps_per_s", "tokens_per_s_per_gpu", "tokens_per_s", "samples_per_s")
                 if _logged(series, m)), None)  # fmt: skip
    if main is None:
        return None
    step, value = _line(series, main)
    timed = main == "step_time_ns"
    unit, title = axis_unit(float(np.nanmax(value))) if timed else (1.0, main.replace("_", " "))
    shown = [draw.Row(f"step time ({title})" if timed else title, *_thinned(step, value / unit))]
    for metric in _moved(rows, causes):
        rank = _one_rank(metric, causes)
        scale, label = axis_unit(_largest(series, metric)) if metric.endswith("_ns") else (1.0, "")
        at, values = _line(series, metric, rank)
        whose = "" if rank is None else f", {rank_name(rank)}"
        shown.append(
            draw.Row(f"{_words(metric)}{whose}{f' ({label})' if label else ''}", *_thinned(at, values / scale))
        )
    marks = _stalls(stalls, unit) if timed else []
    usual = [row["early"] for row in rows if row["metric"] == "step" and row["early"]]
    band = None
    if timed and job["timed"] and usual:
        width = BAND_SIGMAS * (job["noise_ratio"] or 0) * usual[0]
        band = ((usual[0] - width) / unit, (usual[0] + width) / unit)
    ordinary = max([float(np.nanmedian(value)), *(job[c] for c in ("early", "late") if timed and job[c])]) / unit
    top = 1.6 * ordinary if np.nanmax(value) / unit > 3 * ordinary else None
    changes = [job[c] for c in ("from_step", "until_step") if job[c] is not None]
    spec = draw.stacked_rows(shown, band, changes, marks, top)
    note = "Band: the steady level and three times its noise. Dotted: a change begins or ends."
    note += " Stalls (diamond: in a rhythm; triangle: warm-up) above the axis stand at its edge." if top else ""
    alt = f"{_words(main)} over steps {job['first_step']} to {job['last_step']}: {_SHAPES[str(job['shape'])]}."
    return Figure("Step after step, and what moved with it", spec, 260 + 110 * (len(shown) - 1), alt, note)


def _over_ranks(series: pa.Table, rows: Rows, job: dict[str, Any], causes: Rows) -> Figure | None:
    """The part that grew, on the ranks where it grew most and least."""
    part = next((f"{row['part']}_time_ns" for row in causes if row["part"]), "step_time_ns")
    grown = {
        r["rank"]: (r["late"] or 0) - (r["early"] or 0) for r in rows if r["metric"] == part and r["rank"] is not None
    }
    if len(grown) < 2:
        return None
    order = sorted(grown, key=lambda rank: -grown[rank])
    few = order if len(order) <= MOST_RANKS else [*order[: MOST_RANKS // 2], *order[-MOST_RANKS // 2 :]]
    unit, label = axis_unit(_largest(series, part))
    plots = [
        draw.Row(rank_name(rank), *_thinned(*_scaled(_line(series, part, rank), unit), most=150))
        for rank in sorted(few)
    ]
    changes = [job["from_step"]] if job["from_step"] is not None else []
    alt = f"{_words(part)} of each rank; it grew most on {rank_name(order[0])}, least on {rank_name(order[-1])}."
    note = f"The {MOST_RANKS // 2} ranks that grew most and least, of {len(order):,}. " if len(few) < len(order) else ""
    height = 40 + 120 * -(-len(few) // draw.MOST_ACROSS)
    return Figure(
        f"Rank by rank: {_words(part)} ({label})", draw.small_multiples(plots, changes), height, alt, note.strip()
    )


def _causes(causes: Rows) -> Grid:
    rows = []
    for row in causes:
        sign = f"{_words(row['sign'])} {row['sign_early']:,.4g} → {row['sign_late']:,.4g}" if row["sign"] else ""
        sign += f" ({row['note']})" if row["note"] else ""
        rows.append([
            clean(str(row["cause"]).replace("_", " ")),
            name(row["devices"] or "all", 80) if row["ranks"] is None else ", ".join(map(str, row["ranks"])),
            show("_ns", row["part_grown_ns"]) if row["part_grown_ns"] is not None else UNKNOWN_NAME,
            show("_ratio", row["explained_ratio"]) if row["explained_ratio"] is not None else UNKNOWN_NAME,
            name(sign or (f"collect {row['collect']}" if row["collect"] else "own work grew, waiting did not"), 200),
        ])  # fmt: skip
    return Grid("What grew with the step", columns("Cause", "Ranks", ">Grown by", ">Of the growth", "Evidence"), rows)


def _moved(rows: Rows, causes: Rows) -> list[str]:
    """Parts and signs of the causes first, then what else moved most."""
    first = [f"{row['part']}_time_ns" for row in causes if row["part"]] + [row["sign"] for row in causes if row["sign"]]
    moved = {
        r["metric"]: abs(r["change_ratio"]) for r in rows
        if r["rank"] is None and r["metric"] not in ("step", "step_time_ns") and r["change_ratio"]
        and abs(r["change_ratio"]) > MOVED_RATIO
    }  # fmt: skip
    known = {r["metric"] for r in rows}
    order = [*first, *sorted(moved, key=lambda metric: -moved[metric])]
    return [m for m in dict.fromkeys(order) if m in known][:MOST_SIGNS]


def _one_rank(metric: str, causes: Rows) -> int | None:
    """The rank whose line shows the cause, where one alone changed."""
    for row in causes:
        if metric in (row["sign"], f"{row['part']}_time_ns") and row["ranks"] is not None and len(row["ranks"]) == 1:
            return int(row["ranks"][0])
    return None


def _stalls(stalls: Rows, unit: float) -> list[draw.Stall]:
    timed = [row for row in stalls if row["excess_ns"] is not None and row["usual_ns"] is not None][:MOST_STALLS]
    return [
        draw.Stall(
            row["step"],
            (row["usual_ns"] + row["excess_ns"]) / unit,
            str(row["kind"]),
            literal(f"step {row['step']}: {show('_ns', row['excess_ns'])} longer ({str(row['kind']).replace('_', ' ')})"
                    f"{', ' + str(row['part']) if row['part'] else ''}"),
        )
        for row in timed
    ]  # fmt: skip


def _names(series: pa.Table, metric: str) -> list[tuple[str, float]]:
    """Names under which the log has a metric, with the factor to its unit."""
    found = []
    for printed in series["metric"].unique().to_pylist():
        known = (printed, 1.0) if metrics.is_canonical(printed) else metrics.canonical(printed)
        if known is not None and known[0] == metric:
            found.append((printed, known[1]))
    return found


def _logged(series: pa.Table, metric: str) -> bool:
    return bool(_names(series, metric))


def _line(series: pa.Table, metric: str, rank: int | None = None) -> tuple[Any, Any]:
    """Steps in order of training and the metric's value there: of one rank, or the median over ranks."""
    names = _names(series, metric)
    if not names:
        return np.zeros(0, np.int64), np.zeros(0)
    printed, factor = names[0]
    with sql.over(series=series) as connection:
        found = connection.execute(
            """SELECT step, MEDIAN(value) FROM series
               WHERE metric::VARCHAR = $metric AND isfinite(value) AND ($rank IS NULL OR rank = $rank)
               GROUP BY COALESCE(segment, 0), step ORDER BY COALESCE(segment, 0), step""",
            {"metric": printed, "rank": rank},
        ).fetchnumpy()
    step, value = (np.ma.filled(column, 0) for column in found.values())
    return step.astype(np.int64), value.astype(np.float64) * factor


def _largest(series: pa.Table, metric: str) -> float:
    _, value = _line(series, metric)
    return float(np.percentile(value, 98)) if len(value) else 1.0


def _scaled(line: tuple[Any, Any], unit: float) -> tuple[Any, Any]:
    return line[0], line[1] / unit


def _thinned(step: Any, value: Any, most: int = MOST_POINTS) -> tuple[list[int], list[float]]:
    """At most so many points: the median of each run of steps."""
    if len(step) <= most:
        return step.tolist(), value.tolist()
    edges = np.linspace(0, len(step), most + 1).astype(np.int64)
    middle = [float(np.median(value[a:b])) for a, b in itertools.pairwise(edges)]
    return step[edges[:-1]].tolist(), middle


def _words(metric: str) -> str:
    """`gc_time_ns` as people say it."""
    for suffix in ("_time_ns", "_ns", "_bytes", "_ratio", "_count"):
        metric = metric.removesuffix(suffix)
    return metric.replace("_", " ") + (
        " time" if metric in ("step", "compute", "input", "comm", "gc", "host_gap") else ""
    )
