"""What is read of a trace depends on no boundary of a block, and on no thread that happens to be the first."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from diagnose.errors import InputError
from diagnose.ingest import kineto
from tests.ingest.traces import BASE, Pieces, event, problems, read, rows, trace

BLOCKS = [*range(64, 200, 19), 1000, 1 << 20]


def in_blocks(monkeypatch: pytest.MonkeyPatch, text: str) -> Iterator[Any]:
    for block in BLOCKS:
        monkeypatch.setattr(kineto, "BLOCK_BYTES", block)
        yield read(text, piece=61)


def test_old_spellings_in_every_kind_of_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """All kinds of a block are parsed at once, and one of them is the first whose old spelling is seen."""
    kinds = ["Operator", "Runtime", "Kernel"]
    found = [event("k", cat, i, 1, **{"external id": i + 1}) for i in range(20) for cat in kinds]
    for block in [1000, 1 << 20, 1 << 20]:
        monkeypatch.setattr(kineto, "BLOCK_BYTES", block)
        counted = Counter(rows(read(trace(*found))["events"], "kind", "external_id"))
        assert counted == Counter((kind, i + 1) for i in range(20) for kind in ("op", "runtime", "kernel"))


def test_old_spellings_behind_many_events_without_the_key() -> None:
    found = [event(ts=i) for i in range(500)] + [event("late", ts=i, **{"external id": 7}) for i in range(500)]
    tables = read(trace(*found))
    assert Counter(rows(tables["events"], "name", "external_id")) == {("aten::mm", None): 500, ("late", 7): 500}


def test_names_are_no_keys() -> None:
    tables = read(trace(event("external id", "Operator", **{"external id": 3}), event("Input dims")))
    assert rows(tables["events"], "name", "external_id") == [("external id", 3), ("Input dims", None)]
    tables = read(trace(event("a", "Operator", **{"external id": 3, "Input Dims": [{'a"external id': 1}]})))
    assert rows(tables["op_args"], "input_dims") == ['[{"a\\"external id":1}]']


def test_phases_that_are_not_read_hide_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their slices hold a list of objects, or the next event where the writer changed its separator."""
    begin = {"ph": "B", "cat": "cpu_op", "name": "b", "pid": 7, "tid": 7, "ts": 1, "args": {"x": [{}, {"y": 1}, {}]}}
    found = [begin if i % 3 == 0 else event(str(i), ts=i) for i in range(24)]
    texts = [json.dumps(e) for e in found]
    listed = ", ".join(texts[:12]) + ",\n" + ",\n".join(texts[12:])
    text = f'{{"baseTimeNanoseconds": 1, "traceEvents": [{listed}]}}'
    for tables in in_blocks(monkeypatch, text):
        assert sorted(rows(tables["events"], "name"), key=int) == [str(i) for i in range(24) if i % 3]
        assert problems(tables) == {"unknown_category": 8}


@pytest.mark.parametrize("phase", ["s", "B"])
def test_an_event_whose_brace_was_lost_is_not_lost_in_silence(phase: str) -> None:
    other = {"ph": phase, "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 7, "tid": 7, "ts": 1}
    a, b, c = ({k: v for k, v in event(name).items() if k != "args"} for name in "abc")
    text = trace(other, a, other, b, other, c)
    at = text.index('{"ph": "X", "cat": "cpu_op", "name": "b"')
    tables = read(text[:at] + "x" + text[at + 1 :])
    assert {"a", "c"} <= set(rows(tables["events"], "name"))
    assert {"damaged_event", "repaired_event"} & problems(tables).keys()


def test_phase_and_category_are_read_exactly() -> None:
    """Many names stand so close behind a short category that a hash of these bytes is no proof."""
    letters = [chr(c) for c in range(35, 127) if chr(c) not in '\\"']
    found = [{"ph": p, "cat": "x", "name": "name" + a, "pid": 7, "tid": 7, "ts": 1} for p in "CiXM" for a in letters]
    tables = read(json.dumps(found, separators=(",", ":")))
    kinds = ("counter", "instant", "other")
    assert Counter(rows(tables["events"], "kind", "name")) == Counter((k, "name" + a) for k in kinds for a in letters)


def test_long_categories_are_told_apart() -> None:
    found = [event(cat=cat) for cat in ("gpu_user_annotation", "gpu_user_annotations", "gpu_user_annotation")]
    tables = read(trace(*found))
    assert rows(tables["events"], "kind").count("device_annotation") == 2
    assert problems(tables) == {"unknown_category": 1}


def test_braces_in_texts_behind_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    tail = {"a": [{}, {}], "b": "}{", "c": ["}[", True], "d": "z" * 200, "baseTimeNanoseconds": BASE}
    text = json.dumps({"traceEvents": [event(ts=1)], **tail})
    for tables in in_blocks(monkeypatch, text):
        assert rows(tables["files"], "base_ns", "status") == [(BASE, "ok")]
        assert problems(tables) == {}


@pytest.mark.parametrize("gap", ["", "\n", " " * 150])
def test_a_comma_before_the_end_is_seen_at_every_boundary(monkeypatch: pytest.MonkeyPatch, gap: str) -> None:
    for text in (trace(event("a"), event("b"))[:-2] + f",{gap}]}}", f'{{"traceEvents": [ ,{gap}]}}'):
        for tables in in_blocks(monkeypatch, text):
            assert ("trailing_comma", len(text) - 2) in rows(tables["quality"], "problem", "byte_offset")


def test_places_of_mended_events_are_places_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = json.dumps(event("lost", ts="?")).replace('"lost"', '"lo\\st"')
    text = trace(*[event(str(i)) for i in range(4)]).removesuffix("]}") + ", " + lost + "]}"
    for tables in in_blocks(monkeypatch, text):
        assert set(rows(tables["quality"], "problem", "byte_offset")) == {
            ("invalid_escape", text.index(lost)),
            ("unparsed_value", text.index(lost)),
        }


def test_a_list_that_ends_with_a_block_is_not_the_end_of_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event cannot be decoded, so its end is guessed from what looks like the end of the events."""
    bad = '{"ph": "X", "name": "C:\\dir", "cat": "cpu_op", "pid": 7, "tid": 7, "args": {"a": [{}], "b": 1}, "ts": 1}'
    text = '{"traceEvents": [null, ' + ", ".join([bad] * 4) + "]}"
    for tables in in_blocks(monkeypatch, text):
        assert rows(tables["events"], "name", "dur_ns") == [("C:\\dir", 0)] * 4
        assert problems(tables) == {"damaged_event": 1, "invalid_escape": 4, "missing_base": 4}


class Breaking(Pieces):
    """A source that fails after some pieces."""

    def chunks(self, size: int = 0) -> Iterator[bytes]:
        for number, piece in enumerate(super().chunks(size)):
            if number == 20:
                raise InputError(self.label, "a read error", "a readable file", "check the path")
            yield piece


def test_an_error_of_the_source_arrives_and_spoils_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto, "BLOCK_BYTES", 1000)
    text = trace(*[event(str(i), ts=i) for i in range(200)])
    with pytest.raises(InputError, match="a read error"):
        kineto.read(Breaking(text, 500))
    assert Counter(rows(read(text)["events"], "name")) == Counter(str(i) for i in range(200))


def test_several_threads_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto, "BLOCK_BYTES", 2000)
    cats = ["cpu_op", "kernel", "cuda_runtime"]

    def names(reader: int) -> list[str]:
        found = [event(f"{reader} {i}", cats[i % 3], ts=i) for i in range(100)]
        return sorted(rows(read(trace(*found), piece=777)["events"], "name"))

    with ThreadPoolExecutor(4) as pool:
        for reader, read_names in enumerate(pool.map(names, range(4))):
            assert read_names == sorted(f"{reader} {i}" for i in range(100))
