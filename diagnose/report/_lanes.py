"""Device work of one rank inside an interval as drawable shapes: few enough for a browser, nothing left out in silence.

Method: work at least one pixel long keeps its own shape; shorter pieces of a lane are merged per pixel and the shape
says how many it holds and how long they ran. The pixel grows until the shapes fit the budget.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.report._parts import part
from diagnose.report._text import plotly as literal
from diagnose.report._totals import flat
from diagnose.schema import COMM_DIMS
from diagnose.units import show

Ints = npt.NDArray[np.int64]


class Work(NamedTuple):
    """Pieces of one lane and colour: starts from the left edge, durations, and what to say of each row."""

    lane: str
    part: str
    start_ns: Ints
    dur_ns: Ints
    rows: pa.Table


class Drawing(NamedTuple):
    """Lane names from the top, shape sets for `_figures.timeline`, pieces in all, pieces merged, width of the pixel."""

    lanes: list[str]
    shapes: list[dict[str, Any]]
    pieces_count: int
    merged_count: int
    pixel_ns: int


def draw(tables: dict[str, pa.Table], rank: int, start_ns: int, dur_ns: int, budget: int) -> Drawing:
    """Shapes of `rank` between `start_ns` and `start_ns + dur_ns`, at most about `budget` of them."""
    sets = _work(tables, rank, start_ns, start_ns + dur_ns)
    pixel = max(1, dur_ns // 1600)
    while sum(len(_cuts(w, pixel)) for w in sets) > budget and pixel < dur_ns:
        pixel *= 2
    shapes, merged = [], 0
    for work in sets:
        shape, held = _shape(work, pixel)
        shapes.append(shape)
        merged += held
    lanes = list(dict.fromkeys(w.lane for w in sets))
    return Drawing(lanes, shapes, sum(len(w.dur_ns) for w in sets), merged, pixel)


def _work(tables: dict[str, pa.Table], rank: int, start_ns: int, end_ns: int) -> list[Work]:
    kernels = _within(tables.get("kernels"), rank, start_ns, end_ns, ["event_id", "name", "class", "module", "source"])
    comm = _within(
        tables.get("collectives"),
        rank,
        start_ns,
        end_ns,
        ["event_id", "dim", "op", "size_bytes", "exposed_ns", "module", "source"],
    )
    idle = _within(tables.get("idle"), rank, start_ns, end_ns, ["cause", "host", "before", "module", "source"])
    found = []
    for label, key, lane in (
        ("compute", "compute", "compute"),
        ("unclassified", "unclassified", "unclassified"),
        ("copy", "copy", "copy"),
    ):
        found.append(_piece(lane, key, kernels.filter(pc.equal(kernels["class"], label)), start_ns, end_ns))
    for dim in COMM_DIMS:
        name = part(f"{dim}_comm").label
        found.append(_piece(name, f"{dim}_comm", comm.filter(pc.equal(comm["dim"], dim)), start_ns, end_ns))
    unlisted = kernels.filter(
        pc.and_(
            pc.equal(kernels["class"], "comm"),
            pc.invert(pc.is_in(kernels["event_id"], value_set=comm["event_id"].combine_chunks())),
        )
    )
    found.append(_piece("comm, unknown", "other_comm", unlisted, start_ns, end_ns))
    for cause in sorted(set(idle["cause"].to_pylist()) - {None}):
        found.append(_piece("idle", cause, idle.filter(pc.equal(idle["cause"], cause)), start_ns, end_ns))
    order = {name: i for i, name in enumerate(["compute", "unclassified", "comm", "copy", "idle"])}
    present = [w for w in found if len(w.dur_ns)]
    return sorted(present, key=lambda w: order.get(w.lane, 2))


def _within(found: pa.Table | None, rank: int, start_ns: int, end_ns: int, columns: list[str]) -> pa.Table:
    if found is None:
        names = ["ts_ns", "dur_ns", *columns]
        whole = {"ts_ns", "dur_ns", "event_id", "size_bytes", "exposed_ns"}
        return pa.table({n: pa.array([], pa.int64() if n in whole else pa.string()) for n in names})
    touches = pc.and_(pc.less(found["ts_ns"], end_ns), pc.greater(pc.add(found["ts_ns"], found["dur_ns"]), start_ns))
    return flat(found.filter(pc.and_(pc.equal(found["rank"], rank), touches)), ["ts_ns", "dur_ns", *columns])


def _piece(lane: str, key: str, rows: pa.Table, start_ns: int, end_ns: int) -> Work:
    rows = rows.take(pc.sort_indices(rows, [("ts_ns", "ascending")]))
    ts, dur = rows["ts_ns"].to_numpy(), rows["dur_ns"].to_numpy()
    start, end = np.maximum(ts, start_ns), np.minimum(ts + dur, end_ns)
    return Work(lane, key, start - start_ns, end - start, rows)


def _cuts(work: Work, pixel_ns: int) -> Ints:
    """First row of every shape: a piece of a pixel or longer is its own, shorter ones share their pixel."""
    if not len(work.dur_ns):
        return np.zeros(0, np.int64)
    own = work.dur_ns >= pixel_ns
    cell = work.start_ns // pixel_ns
    new = np.r_[True, (cell[1:] != cell[:-1]) | own[1:] | own[:-1]]
    return np.flatnonzero(new)


def _shape(work: Work, pixel_ns: int) -> tuple[dict[str, Any], int]:
    first = _cuts(work, pixel_ns)
    held = np.diff(np.r_[first, len(work.dur_ns)])
    start = work.start_ns[first]
    dur = np.maximum.reduceat(work.start_ns + work.dur_ns, first) - start
    busy = np.add.reduceat(work.dur_ns, first)
    hover = _hover(work, first)
    for i in np.flatnonzero(held > 1):
        ran = f"{show('_ns', int(busy[i]))} in {show('_ns', int(dur[i]))}"
        hover[i] = f"{held[i]:,} × {literal(part(work.part).label)}<br>{ran}"
    shape = {"part": work.part, "lane": work.lane, "start_ns": start, "dur_ns": dur, "hover": hover}
    return shape, int(held[held > 1].sum())


def _hover(work: Work, rows: Ints) -> list[str]:
    picked = work.rows.take(rows)
    columns = picked.to_pydict()
    names = columns.get("name") or columns.get("op") or columns["cause"]
    texts = []
    for i, name in enumerate(names):
        lines = [f"<b>{literal(name or 'unknown')}</b>", show("_ns", columns["dur_ns"][i])]
        if "op" in columns:
            lines[1] += (
                f", {show('_ns', columns['exposed_ns'][i])} exposed, {show('size_bytes', columns['size_bytes'][i])}"
            )
        if "host" in columns:
            lines[0] = f"<b>{literal(part(work.part).label)}</b>"
            lines += [
                f"{what} {literal(columns[key][i], 64)}"
                for what, key in (("host:", "host"), ("before", "before"))
                if columns[key][i]
            ]
        lines += [literal(columns[key][i], 64) for key in ("module", "source") if columns[key][i]]
        texts.append("<br>".join(lines))
    return texts
