"""Numbers for people: the unit is read from the name's suffix, and text is formatted only at the edge."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping
from typing import Any

UNKNOWN = "unknown"


def show(name: str, value: Any) -> str:
    """`value` of the column `name` as text: ns, bytes, ratios, rates by the suffix of the name.

    >>> show("lost_ns", 1_500_000), show("size_bytes", 2**21), show("share_ratio", 0.25)
    ('1.50 ms', '2.00 MiB', '25.0 %')
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return UNKNOWN
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return _text(value)
    if name == "rank" and value < 0:  # a rank that no evidence gives
        return UNKNOWN
    for suffix, render in _RENDERERS:
        if name.endswith(suffix):
            return render(float(value))
    return f"{value:,}" if isinstance(value, int) else _digits(value)


def fill(template: str, row: Mapping[str, Any]) -> str:
    """Replace `{column}` by `show(column, row[column])`. KeyError where the row lacks a column."""
    return "".join(
        text + (show(field, row[field]) if field else "") for text, field, _, _ in string.Formatter().parse(template)
    )


def duration(ns: float) -> str:
    """Nanoseconds with a unit that keeps three digits: ns, us, ms, s, min, h."""
    for limit, unit, scale in (
        (1e3, "ns", 1),
        (1e6, "us", 1e3),
        (1e9, "ms", 1e6),
        (120e9, "s", 1e9),
        (7200e9, "min", 60e9),
    ):
        if abs(ns) < 0.9995 * limit:  # not 1,000 us
            return f"{ns / scale:.0f} ns" if unit == "ns" else f"{_digits(ns / scale)} {unit}"
    return f"{_digits(ns / 3600e9)} h"


def size(count: float) -> str:
    """Bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:.0f} B" if unit == "B" else f"{_digits(count)} {unit}"


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ranges(value) if all(isinstance(v, int) for v in value) else ", ".join(map(str, value))
    return str(value)


def ranges(numbers: list[int] | tuple[int, ...]) -> str:
    """Whole numbers as `0-3, 7`."""
    runs: list[list[int]] = []
    for n in sorted(set(numbers)):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in runs)


def _digits(value: float) -> str:
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 2) if abs(value) >= 0.1 else min(decimals, 6)}f}"


def _metric(value: float, unit: str) -> str:
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{_digits(value / scale)} {prefix}{unit}"
    return f"{_digits(value)} {unit}"


_RENDERERS = (
    ("_bytes_per_s", lambda v: _metric(v, "B/s")),
    ("_flop_per_s", lambda v: _metric(v, "FLOP/s")),
    ("_flop", lambda v: _metric(v, "FLOP")),
    ("_ns", duration),
    ("_bytes", size),
    ("_ratio", lambda v: f"{v * 100:.1f} %"),
    ("_count", lambda v: f"{v:,.0f}"),
    ("_per_s", lambda v: f"{_digits(v)} /s"),
    ("_mhz", lambda v: f"{v:,.0f} MHz"),
    ("_w", lambda v: f"{v:,.0f} W"),
    ("_c", lambda v: f"{v:,.0f} °C"),
)
