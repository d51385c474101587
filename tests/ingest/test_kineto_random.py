"""Any list of events, in any spelling and any pieces, comes back as json.loads sees it; damage costs what it hits."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnose.errors import InputError
from diagnose.ingest import kineto
from tests.ingest.traces import problems, read, rows

QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

text = st.text(st.sampled_from('ab{}[],:"\\ \t\n/é模'), max_size=12) | st.sampled_from(
    ['},{"ph":"X"', '}],"traceEvents":[{', "nan", ", inf]", "a}, {b", '{"ph": "X", "cat": "cpu_op"']
)
plain = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | text
nested = st.recursive(plain, lambda x: st.lists(x, max_size=4) | st.dictionaries(text, x, max_size=3), max_leaves=8)
microseconds = st.integers(0, 5 * 10**15).map(lambda ns: Decimal(ns) / 1000)
categories = st.sampled_from(["cpu_op", "kernel", "python_function", "cuda_runtime", "user_annotation", "gpu_memcpy"])


@st.composite
def events(draw: Any, names: Any = text) -> dict[str, Any]:
    """One timed event; its keys come in any order."""
    found = {
        "ph": "X",
        "cat": draw(categories),
        "name": draw(names),
        "pid": draw(st.integers(0, 9)),
        "tid": draw(st.integers(0, 9)),
        "ts": draw(microseconds),
        "dur": draw(microseconds),
        "args": draw(st.dictionaries(st.sampled_from(["x", "y", "External id", "grid", "}"]), nested, max_size=3)),
    }
    return dict(draw(st.permutations(list(found.items())))) if draw(st.booleans()) else found


def dump(value: dict[str, Any], style: str) -> str:
    exact = {k: "@" + format(v, "f") if isinstance(v, Decimal) else v for k, v in value.items()}
    layout: dict[str, Any] = {
        "compact": {"separators": (",", ":")},
        "spaced": {},
        "pretty": {"indent": 2},
        "wide": {"separators": (" ,\n", " :\t")},
    }[style]
    body = json.dumps(exact, ensure_ascii=len(value["name"]) % 2 == 0, **layout)
    for key in ("ts", "dur"):
        body = body.replace(f'"{exact[key]}"', exact[key][1:], 1)
    return body


def times(value: dict[str, Any]) -> tuple[str, int, int]:
    return value["name"], int(value["ts"] * 1000), int(value["dur"] * 1000)


styles = st.sampled_from(["compact", "spaced", "pretty", "wide"])


def document(found: list[dict[str, Any]], style: str, between: str, as_list: bool) -> str:
    listed = between.join(dump(e, style) for e in found)
    return f"[{listed}]" if as_list else f'{{"baseTimeNanoseconds": 0, "traceEvents": [{listed}], "x": [{{}}, {{}}]}}'


@QUICK
@given(
    st.lists(events(), max_size=12),
    styles,
    st.sampled_from([",", ", ", ",\n  ", "\n,\n"]),
    st.booleans(),
    st.integers(1, 200),
)
@pytest.mark.parametrize("block", [64, 1 << 16])
def test_as_json_reads_it(
    monkeypatch: pytest.MonkeyPatch,
    block: int,
    found: list[dict[str, Any]],
    style: str,
    between: str,
    as_list: bool,
    piece: int,
) -> None:
    monkeypatch.setattr(kineto, "BLOCK_BYTES", block)
    tables = read(document(found, style, between, as_list), piece)
    assert Counter(rows(tables["events"], "name", "ts_ns", "dur_ns")) == Counter(map(times, found))
    assert set(problems(tables)) <= {"missing_base", "no_timed_events", "merged_processes"}
    assert rows(tables["events"], "event_id") == list(range(len(found)))


@QUICK
@given(st.lists(events(), min_size=1, max_size=12), styles, st.floats(0, 1), st.booleans())
def test_a_cut_loses_no_whole_event(found: list[dict[str, Any]], style: str, share: float, as_list: bool) -> None:
    whole = document(found, style, ", ", as_list)
    kept = whole.encode()[: int(share * len(whole.encode()))]
    ends, at = [], whole.index("[") + 1
    for value in found:
        at = whole.index(dump(value, style), at) + len(dump(value, style))
        ends.append(len(whole[:at].encode()))
    expected = Counter(times(e) for e, end in zip(found, ends, strict=True) if end <= len(kept))
    try:
        tables = read(kept)
    except InputError:
        assert not expected
        return
    counted = Counter(rows(tables["events"], "name", "ts_ns", "dur_ns"))
    assert not expected - counted
    assert (counted - expected).total() <= problems(tables).get("repaired_event", 0), "the cut one, mended"
    if len(kept) < len(whole.rstrip("}]").encode()):
        assert "truncated" in problems(tables) or "no_timed_events" in problems(tables)


@QUICK
@given(
    st.lists(events(st.text("abc.:_", min_size=1, max_size=8)), min_size=2, max_size=12),
    styles,
    st.data(),
    st.sampled_from([64, 1 << 16]),
)
def test_a_damaged_byte_costs_at_most_its_event(
    monkeypatch: pytest.MonkeyPatch, found: list[dict[str, Any]], style: str, data: Any, block: int
) -> None:
    monkeypatch.setattr(kineto, "BLOCK_BYTES", block)
    for value in found:
        value["args"] = {}
    whole = document(found, style, ", ", as_list=False)
    target = data.draw(st.integers(0, len(found) - 1))
    begin = whole.index("[") + 1
    for value in found[:target]:
        begin = whole.index(dump(value, style), begin) + len(dump(value, style))
    begin = whole.index(dump(found[target], style), begin)
    raw = bytearray(whole.encode())
    place = data.draw(st.integers(begin, begin + len(dump(found[target], style)) - 1))
    raw[len(whole[:place].encode())] = data.draw(st.sampled_from(list(b'x{}[]",:\\\x00 9\xff')))
    tables = read(bytes(raw))
    others = Counter(times(e) for i, e in enumerate(found) if i != target)
    lost = others - Counter(rows(tables["events"], "name", "ts_ns", "dur_ns"))
    assert not lost
    assert tables["events"].num_rows <= len(found) + 1


@QUICK
@given(st.binary(max_size=200))
def test_anything_else_is_refused_or_empty(raw: bytes) -> None:
    try:
        tables = read(b'{"traceEvents": [' + raw)
    except InputError:
        return
    assert tables["files"].num_rows >= 1
