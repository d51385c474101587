"""Wall-clock times in text, by whole columns: ISO dates as loggers and samplers print them, and epochs as numbers.

`2024/01/15 10:22:33.123`, `[2025-12-19 10:49:15,171]` and `2024-01-15T10:22:33+01:00` are understood wherever they
stand in a text. Without a zone the answer is nanoseconds since 1970 of the local clock, and `zoned` is false.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_DATE = (
    r"(?P<date>(?:19|20)\d\d[-/][01]\d[-/][0-3]\d)[ T](?P<time>[0-2]\d:[0-5]\d:[0-6]\d)(?:[.,](?P<rest>\d{1,9}))?"
    r"(?P<zone>Z| ?UTC| ?GMT|[+-]\d\d:?\d\d)?"
)
_EPOCH_NS = ((1e17, 1), (1e14, 1_000), (1e11, 1_000_000), (1e8, 1_000_000_000))
"""Epochs above these are ns, us, ms, s: years 1973 to 5138."""


class Moments(NamedTuple):
    """Times of a column; `known` where one was read."""

    ts_ns: Ints
    known: Flags
    zoned: Flags


def moments(text: pa.Array) -> Moments:
    """The first date and time in each text."""
    found = pc.extract_regex(text, _DATE)
    parts = {name: pc.struct_field(found, name) for name in ("date", "time", "rest", "zone")}
    known = np.asarray(pc.is_valid(found) if found.null_count else pc.is_valid(parts["date"]))
    ts_ns, zoned = np.zeros(len(text), np.int64), np.zeros(len(text), bool)
    if not known.any():
        return Moments(ts_ns, known, zoned)
    mine = {name: column.filter(pa.array(known)) for name, column in parts.items()}
    stamp = pc.binary_join_element_wise(pc.replace_substring(mine["date"], "/", "-"), mine["time"], " ")
    seconds = pc.strptime(stamp, "%Y-%m-%d %H:%M:%S", "s", error_is_null=True)
    whole = np.asarray(seconds.cast(pa.int64()).fill_null(0)) * 1_000_000_000
    fraction = np.asarray(pc.utf8_rpad(mine["rest"], 9, "0").cast(pa.int64(), safe=False)) if _any(mine["rest"]) else 0
    zone = mine["zone"].dictionary_encode()
    offsets = np.array([_offset_ns(z) for z in zone.dictionary.to_pylist()], np.int64)
    ts_ns[known] = whole + fraction - (offsets[np.asarray(zone.indices)] if len(offsets) else 0)
    zoned[known] = np.asarray(pc.not_equal(mine["zone"], ""))
    known[np.flatnonzero(known)[np.asarray(seconds.is_null())]] = False
    return Moments(ts_ns, known, zoned)


def _any(column: pa.Array) -> bool:
    return bool(pc.any(pc.not_equal(column, "")).as_py())


def _offset_ns(zone: str) -> int:
    digits = zone.strip("+-").replace(":", "")
    if not digits.isdigit():
        return 0
    ahead = (int(digits[:2]) * 3600 + int(digits[2:]) * 60) * 1_000_000_000
    return -ahead if zone.startswith("-") else ahead


def epochs(value: npt.NDArray[np.float64]) -> Moments | None:
    """Numbers that are times since 1970, in the unit that their size tells; None where they are none."""
    finite = np.isfinite(value)
    middle = float(np.median(value[finite])) if finite.any() else 0.0
    factor = next((f for least, f in _EPOCH_NS if middle >= least), None)
    if factor is None or middle >= 1e19:
        return None
    given = np.where(finite, value, 0.0)
    whole = np.floor(given)
    ts_ns = whole.astype(np.int64) * factor + np.rint((given - whole) * factor).astype(np.int64)
    return Moments(ts_ns, finite, np.ones(len(value), bool))
