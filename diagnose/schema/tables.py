"""What a table is: columns with types, units and a meaning; building and checking Arrow tables of a schema.

A column's unit is its suffix (the closed list is `UNIT_SUFFIXES`). The tables themselves stand in `diagnose.schema`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from diagnose.errors import DiagnoseError

UNIT_SUFFIXES = (
    "_ns", "_bytes_per_s", "_bytes", "_ratio", "_count", "_per_s", "_mhz", "_w", "_c", "_flop_per_s", "_flop",
)  # fmt: skip

TEXT = pa.string()
LABEL = pa.dictionary(pa.int32(), pa.string())  # few distinct values
BOOL = pa.bool_()
INT32 = pa.int32()
INT64 = pa.int64()
UINT64 = pa.uint64()
FLOAT = pa.float64()
RANKS = pa.list_(pa.int32())


class Column(NamedTuple):
    """One column of a table."""

    name: str
    type: pa.DataType
    doc: str


class TableSchema(NamedTuple):
    """What one row means, and the columns."""

    row: str
    columns: tuple[Column, ...]

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema, in column order."""
        return pa.schema([(c.name, c.type) for c in self.columns])

    def empty(self) -> pa.Table:
        """A table of this schema without rows."""
        return self.arrow.empty_table()

    def build(self, columns: Mapping[str, object]) -> pa.Table:
        """Table of this schema from arrays, lists or numpy arrays by name; an absent column is all null.

        All values must have one length; masked numpy arrays become nulls.
        """
        unknown = set(columns) - set(self.arrow.names)
        assert not unknown, f"columns not in the schema: {sorted(unknown)}"
        length = max((len(v) for v in columns.values()), default=0)  # type: ignore[arg-type]
        return pa.table(
            [_array(columns[c.name], c.type) if c.name in columns else pa.nulls(length, c.type) for c in self.columns],
            schema=self.arrow,
        )

    def of_rows(self, rows: Sequence[Mapping[str, object]]) -> pa.Table:
        """Table of this schema from one mapping per row; an absent key is null, keys of no column are left out."""
        return self.build({c.name: [row.get(c.name) for row in rows] for c in self.columns})


def _array(values: object, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values if values.type == kind else values.cast(kind)
    mask = getattr(values, "mask", None)
    data = values if mask is None else values.data  # type: ignore[attr-defined]
    if pa.types.is_dictionary(kind):
        return pa.array(data, pa.string(), mask=mask).cast(kind)
    return (
        pa.array(data, mask=mask).cast(kind)
        if hasattr(data, "dtype") and data.dtype != object
        else pa.array(data, kind, mask=mask)
    )


def table(row: str, *columns: tuple[str, pa.DataType, str]) -> TableSchema:
    """Declare a table: what a row is, then (name, type, doc) per column."""
    return TableSchema(row, tuple(Column(*c) for c in columns))


def check(name: str, found: pa.Table, schema: TableSchema) -> None:
    """Raise DiagnoseError where a table departs from its schema (our own mistake, not the user's)."""
    if found.schema.equals(schema.arrow):
        return
    want = {c.name: c.type for c in schema.columns}
    have = dict(zip(found.schema.names, found.schema.types, strict=True))
    wrong = [
        f"{k}: {have.get(k, 'absent')} for {want.get(k, 'nothing')}"
        for k in {**want, **have}
        if want.get(k) != have.get(k)
    ]
    raise DiagnoseError(f"table {name} departs from its schema: {'; '.join(wrong) or 'column order'}")
