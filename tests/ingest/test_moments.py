"""Wall-clock times in text: as loggers and samplers print them; epochs by their size; what is no time is none."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.ingest._moments import epochs, moments

AT = 1705314153


@pytest.mark.parametrize(
    ("text", "ts_ns", "zoned"),
    [
        ("2024/01/15 10:22:33.123", AT * 10**9 + 123_000_000, False),
        ("[default7]: [2024-01-15 10:22:33,171] [INFO]", AT * 10**9 + 171_000_000, False),
        ("2024-01-15T10:22:33Z", AT * 10**9, True), ("2024-01-15 10:22:33 UTC", AT * 10**9, True),
        ("2024-01-15T12:22:33.5+0200", AT * 10**9 + 500_000_000, True),
        ("2024-01-15T04:52:33-05:30", AT * 10**9, True),
        ("2024-01-15 10:22:33.123456789", AT * 10**9 + 123_456_789, False),
        ("2024-13-15 10:22:33", None, False), ("10:22:33", None, False), ("2024-01-15", None, False), ("", None, False),
    ],
)  # fmt: skip
def test_times_in_text(text: str, ts_ns: int | None, zoned: bool) -> None:
    found = moments(pa.array(["x", text]))

    assert found.known.tolist() == [False, ts_ns is not None]
    if ts_ns is not None:
        assert (int(found.ts_ns[1]), bool(found.zoned[1])) == (ts_ns, zoned)


@given(st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(2099, 12, 31)))
def test_any_time_comes_back(when: dt.datetime) -> None:
    found = moments(pa.array([when.strftime("%Y-%m-%d %H:%M:%S.%f") if when.year >= 1000 else ""]))

    expected = (when - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) * 1000
    assert found.known[0] and int(found.ts_ns[0]) == expected


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_epochs_by_their_size(unit: int) -> None:
    found = epochs(np.array([AT * unit, np.nan, (AT + 1) * unit], np.float64))

    assert found is not None and found.known.tolist() == [True, False, True]
    assert int(found.ts_ns[0]) == AT * 10**9 and int(found.ts_ns[2]) == (AT + 1) * 10**9


@pytest.mark.parametrize("values", [[0.5, 0.6], [12.0], [3600.0, 7200.0], [np.nan], [1e20]])
def test_what_is_no_epoch(values: list[float]) -> None:
    assert epochs(np.array(values)) is None
