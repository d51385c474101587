"""Sums over Arrow tables for the page, whole columns at a time; rows come out as plain dicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc


class Scale(NamedTuple):
    """What totals are divided by: (rank, step) pairs, or ranks where no steps are known."""

    divisor: int
    words: str
    by_step: bool


def scale(tables: dict[str, pa.Table]) -> Scale:
    """Per step where steps are known, else over the recording of one rank."""
    steps = tables.get("steps")
    if steps is not None and steps.num_rows:
        return Scale(steps.num_rows, "per step of a rank", True)
    window = tables.get("window_time")
    ranks = pc.count_distinct(window["rank"]).as_py() if window is not None and window.num_rows else 1
    return Scale(max(1, ranks), "over the recording of a rank", False)


def inside(found: pa.Table, by: Scale) -> pa.Table:
    """Rows inside steps, where totals are per step."""
    return found.filter(pc.is_valid(found["step"])) if by.by_step and "step" in found.column_names else found


def flat(found: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The named columns, dictionaries decoded, in one chunk."""
    arrays = []
    for column in columns:
        values = found[column]
        arrays.append(values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values)
    return pa.table(arrays, names=list(columns)).combine_chunks()


def totals(found: pa.Table, keys: Sequence[str], sums: Sequence[str], *, order: str) -> list[dict[str, Any]]:
    """One dict per distinct `keys`: the sums of `sums` (None where all are null) and `calls`, largest `order` first."""
    if not found.num_rows:
        return []
    wanted = flat(found, [*keys, *sums])
    wanted = wanted.append_column("calls", pa.repeat(pa.scalar(1, pa.int64()), wanted.num_rows))
    options = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)
    grouped = wanted.group_by(list(keys)).aggregate([(c, "sum", options) for c in (*sums, "calls")])
    grouped = grouped.select([*keys, *(f"{c}_sum" for c in (*sums, "calls"))]).rename_columns([*keys, *sums, "calls"])
    rows: list[dict[str, Any]] = grouped.to_pylist()
    return sorted(rows, key=lambda r: (-(r[order] or 0), *(str(r[k]) for k in keys)))
