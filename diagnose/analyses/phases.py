"""Forward, backward and optimizer: how long each took on the device, and what it was made of.

A phase is that of the call which launched the work, so a phase's span overlaps its neighbour's where streams run side
by side or the device lags behind the host. Recomputed forward work belongs to the backward that asked for it. Work
whose phase nothing tells is a row `unknown`, never left out.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Flags, Ints, codes, dictionary, flags, integers
from diagnose.analyses._host import PHASES
from diagnose.analyses._intervals import total, union
from diagnose.schema import INT32, INT64, LABEL, table

SCHEMA = table(
    "phase of one step",
    ("rank", INT32, "global rank"),
    ("step", INT64, "step"),
    ("phase", LABEL, "forward | backward | optimizer | unknown"),
    ("busy_ns", INT64, "union of its compute kernels"),
    ("exposed_comm_ns", INT64, "exposed communication launched in it"),
    ("span_ns", INT64, "first start to last end of its device work"),
)

_ALL = (*PHASES, "unknown")


def phases(kernels: pa.Table, steps: pa.Table, collectives: pa.Table) -> pa.Table:
    """One row per (rank, step, phase) with device work; work outside all steps is left out."""
    known = kernels.filter(kernels["step"].is_valid())
    key, cells = _cells(known)
    order = np.argsort(key, kind="stable")
    bounds = np.searchsorted(key[order], np.arange(len(cells) + 1))
    start = integers(known["ts_ns"])[order]
    end = start + integers(known["dur_ns"])[order]
    compute = _compute(known)[order]
    exposed = _exposed(collectives)
    rows = []
    for cell, low, high in zip(cells, bounds, bounds[1:], strict=False):
        first, last, busy = start[low:high], end[low:high], compute[low:high]
        rank, step, phase = cell
        rows.append(
            (
                rank,
                step,
                _ALL[phase],
                total(union(first[busy], last[busy])),
                exposed.get(cell, 0),
                last.max() - first.min(),
            )
        )
    columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA.columns)
    return SCHEMA.build(dict(zip(SCHEMA.arrow.names, map(list, columns), strict=True)))


def _cells(rows: pa.Table) -> tuple[Ints, list[tuple[int, int, int]]]:
    """(index of each row's cell, the (rank, step, phase) cells in order)."""
    place = np.array([_ALL.index(name) if name in _ALL else len(PHASES) for name in dictionary(rows["phase"])])
    phase = np.append(place, len(PHASES))[codes(rows["phase"])]
    keys = np.column_stack([integers(rows["rank"], -1), integers(rows["step"]), phase])
    cells, key = np.unique(keys, axis=0, return_inverse=True)
    return key.reshape(-1), [(int(a), int(b), int(c)) for a, b, c in cells]


def _compute(rows: pa.Table) -> Flags:
    wanted = np.array([name == "compute" for name in dictionary(rows["class"])], dtype=bool)
    return np.asarray(wanted[codes(rows["class"])], dtype=bool)


def _exposed(collectives: pa.Table) -> dict[tuple[int, int, int], int]:
    """Exposed communication by cell."""
    inside = collectives.filter(pa.array(flags(collectives["step"].is_valid())))
    key, cells = _cells(inside)
    sums = np.zeros(len(cells), dtype=np.int64)
    np.add.at(sums, key, integers(inside["exposed_ns"]))
    return dict(zip(cells, sums.tolist(), strict=True))
