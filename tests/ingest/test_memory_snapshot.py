"""Memory snapshots: every age and re-save gives the same tables; what asks to run code is refused and nothing runs."""

from __future__ import annotations

import json
import pickle
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from diagnose.errors import InputError
from diagnose.ingest import Source, expand, read
from diagnose.ingest.memory_snapshot import _document, sniff
from diagnose.schema import INGESTED, Tables, check

MIB = 1 << 20
FRAMES = [{"filename": "m.py", "name": "forward", "line": 3}, {"filename": "t.py", "name": "main", "line": 9}]


def document(**more: Any) -> dict[str, Any]:
    """A segment of 4 MiB with a live block of 1 MiB, one that waits, and a hole; two events and a failure."""
    shared = list(FRAMES)
    blocks = [
        {"address": 4096, "size": MIB, "requested_size": MIB - 7, "state": "active_allocated", "frames": shared},
        {"address": 4096 + MIB, "size": MIB, "requested_size": MIB, "state": "active_awaiting_free", "frames": shared},
        {"address": 4096 + 2 * MIB, "size": 2 * MIB, "requested_size": 0, "state": "inactive", "frames": []},
    ]
    segment = {"device": 0, "address": 4096, "total_size": 4 * MIB, "stream": 0, "segment_type": "large",
               "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks}  # fmt: skip
    trace = [
        {"action": "alloc", "addr": 4096, "size": MIB - 7, "stream": 0, "time_us": 5, "frames": shared},
        {"action": "free_completed", "addr": 99, "size": 10, "stream": 0, "time_us": 6, "frames": []},
        {"action": "oom", "size": 64 * MIB, "device_free": MIB, "stream": 0, "time_us": 7, "frames": shared},
    ]
    marks = [
        {"stage": "START", "name": "Optimizer.step#A", "device": 0, "time_us": 5},
        {"stage": "END", "name": "Optimizer.step#A", "device": 0, "time_us": 7},
    ]
    settings = {
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64",
        "max_split_size": 64 * MIB,
        "expandable_segments": False,
    }
    whole = {
        "segments": [segment],
        "device_traces": [trace],
        "allocator_settings": settings,
        "external_annotations": marks,
    }
    return whole | more


def tables_of(folder: Path, content: Any, name: str = "snapshot.pickle", protocol: int = 4) -> Tables:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol))
    ((source,), problems) = expand([str(path)])
    assert not problems
    found = read(source)
    for table in found.keys() & INGESTED.keys():
        check(table, found[table], INGESTED[table])
    return found


def rows(found: Tables, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[c] for c in columns) for row in found[table].to_pylist()]


def problems(found: Tables) -> dict[str, str]:
    return {row["problem"]: row["detail"] for row in found["quality"].to_pylist()}


def test_every_column(tmp_path: Path) -> None:
    found = tables_of(tmp_path, document())
    assert rows(found, "blocks", "address", "size_bytes", "requested_bytes", "state") == [
        (4096, MIB, MIB - 7, "active_allocated"),
        (4096 + MIB, MIB, MIB, "active_pending_free"),
        (4096 + 2 * MIB, 2 * MIB, None, "inactive"),
    ]
    assert rows(found, "segments", "size_bytes", "pool", "expandable") == [(4 * MIB, "0,0", False)]
    assert rows(found, "allocations", "action", "address", "size_bytes", "ts_ns", "device_free_bytes") == [
        ("alloc", 4096, MIB - 7, 5000, None),
        ("free_completed", 99, 10, 6000, None),
        ("oom", None, 64 * MIB, 7000, MIB),
    ]
    assert rows(found, "stacks", "frames") == [("m.py:3 forward\nt.py:9 main",)]
    assert len(set(pc.drop_null(found["blocks"]["stack"]).to_pylist())) == 1, "one stack, one key"
    assert rows(found, "marks", "name", "ts_ns", "dur_ns") == [("Optimizer.step#A", 5000, 2000)]
    assert ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64") in rows(found, "settings", "key", "value")
    assert rows(found, "files", "kind", "status", "start_ns", "end_ns") == [("memory_snapshot", "ok", 5000, 7000)]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_protocols_and_json_say_the_same(protocol: int, tmp_path: Path) -> None:
    expected = tables_of(tmp_path, document())
    as_json = json.dumps(document()).encode()
    for found in (tables_of(tmp_path, document(), protocol=protocol), tables_of(tmp_path, as_json, "s.json")):
        for table in ("segments", "blocks", "allocations", "stacks", "marks"):
            assert found[table].to_pylist() == expected[table].to_pylist(), table


def test_segments_alone_are_the_oldest_form(tmp_path: Path) -> None:
    found = tables_of(tmp_path, document()["segments"])
    assert len(found["blocks"]) == 3 and len(found["allocations"]) == 0
    assert "no_history" in problems(found)


def test_history_of_pytorch_2_0(tmp_path: Path) -> None:
    blocks = [
        {"size": 1024, "requested_size": 1000, "state": "active_allocated",
         "history": [{"addr": 1, "real_size": 1000, "frames": FRAMES}, {"addr": 1, "real_size": 9, "frames": []}]},
        {"size": 512, "requested_size": 0, "state": "inactive"},
    ]  # fmt: skip
    old = {"device": 1, "address": 640, "total_size": 1536, "stream": 0, "segment_type": "small", "blocks": blocks}
    found = tables_of(tmp_path, {"segments": [old], "device_traces": []})
    assert rows(found, "blocks", "address", "requested_bytes") == [(640, 1000), (1664, None)]
    assert rows(found, "stacks", "frames") == [("m.py:3 forward\nt.py:9 main",)]
    assert found["segments"]["expandable"].to_pylist() == [None]


def test_a_cut_history_is_said(tmp_path: Path) -> None:
    said = problems(tables_of(tmp_path, document(trace_alloc_overflowed=[True])))["incomplete_history"]
    assert "overflowed" in said and "1 frees without an allocation" in said


def test_unknown_actions_and_odd_numbers_are_said(tmp_path: Path) -> None:
    odd = document()
    odd["device_traces"][0].append({"action": "of_next_year", "addr": 1, "size": 1})
    odd["device_traces"][0].append({"action": "alloc", "addr": 1 << 70, "size": "many"})
    found = tables_of(tmp_path, odd)
    assert problems(found)["unknown_action"] == "left out: of_next_year x 1"
    assert "unparsed_value" in problems(found)
    assert rows(found, "files", "status") == [("partial",)]


def test_blocks_larger_than_their_segment_are_said(tmp_path: Path) -> None:
    wrong = document()
    wrong["segments"][0]["total_size"] = MIB
    assert "inconsistent_state" in problems(tables_of(tmp_path, wrong))


@pytest.mark.parametrize("content", [{"segments": 3}, {"segments": [1]}, {"segments": [], "device_traces": [[5]]}])
def test_other_data_is_one_clear_line(content: Any, tmp_path: Path) -> None:
    (row,) = tables_of(tmp_path, content)["files"].to_pylist()
    assert row["status"] == "unusable" and "no memory snapshot" in row["detail"] and "\n" not in row["detail"]


def test_what_is_no_snapshot_is_left_to_others() -> None:
    assert sniff(pickle.dumps(document(), 2), "x")
    assert sniff(json.dumps(document()).encode(), "x")
    assert not sniff(b'{"traceEvents": [{"args": {"segments": 1}}]}', "x")
    assert not sniff(pickle.dumps({"entries": []}, 4), "x")
    assert not sniff(b"segments of a text", "x")


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (subprocess.call, (["touch", "/tmp/never-made-by-diagnose"],))


def test_code_in_a_snapshot_is_refused_small_and_large(tmp_path: Path) -> None:
    path = tmp_path / "evil.pickle"
    path.write_bytes(pickle.dumps(document(user=Evil()), 4))
    ((source,), _) = expand([str(path)])
    place = path.read_bytes().index(b"subprocess") - 2  # its opcode and length come first
    with pytest.raises(InputError, match="subprocess"):
        _document.flat_of(source)
    with pytest.raises(InputError, match=rf"subprocess\.\w+ .* named at byte {place:,};") as refused:
        _document.flat_of(source, small_bytes=16)
    assert "nothing was run" in refused.value.found
    assert not Path("/tmp/never-made-by-diagnose").exists()


def as_sqlite(path: Path, content: dict[str, Any], spelling: dict[str, str] | None = None) -> bytes:
    """The bytes of a snapshot written to SQLite; `spelling` renames columns."""
    named = (spelling or {}).get
    segments, blocks, entries = [], [], []
    for number, segment in enumerate(content["segments"], start=1):
        row = {k: v for k, v in segment.items() if k != "blocks"}
        segments.append(row | {"id": number, "segment_pool_id": str(row["segment_pool_id"])})
        blocks += [block | {"segment_id": number} for block in segment["blocks"]]
    for device, trace in enumerate(content["device_traces"]):
        entries += [entry | {"device": device} for entry in trace]
    with closing(sqlite3.connect(path)) as database:
        for table, rows_ in (("segments", segments), ("blocks", blocks), ("device_traces", entries)):
            names = list(dict.fromkeys(name for row in rows_ for name in row))
            database.execute(f"CREATE TABLE {table} ({', '.join(named(n, n) for n in names)})")
            values = [[json.dumps(v) if isinstance(v := row.get(n), list) else v for n in names] for row in rows_]
            database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", values)
        database.commit()
    return path.read_bytes()


@pytest.mark.parametrize("spelling", [{}, {"addr": "address", "address": "addr", "total_size": "size"}])
@pytest.mark.parametrize("small_bytes", [1 << 30, 16])
def test_sqlite_says_the_same(spelling: dict[str, str], small_bytes: int, tmp_path: Path) -> None:
    content = document()
    del content["allocator_settings"], content["external_annotations"]
    as_sqlite(tmp_path / "snapshot.db", content, {"device_id": "device", **spelling})
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(content, 4))
    saved, pickled = (
        _document.flat_of(Source(str(tmp_path / name)), small_bytes) for name in ("snapshot.db", "snapshot.pickle")
    )
    for table in ("segments", "blocks", "allocations", "stacks"):
        assert {c: v.to_pylist() for c, v in saved.columns[table].items()} == {
            c: v.to_pylist() for c, v in pickled.columns[table].items()
        }
    assert saved.notes == pickled.notes and saved.start_ns == pickled.start_ns


def test_a_view_in_a_database_is_never_read(tmp_path: Path) -> None:
    content = document()
    as_sqlite(tmp_path / "snapshot.db", content)
    with closing(sqlite3.connect(tmp_path / "snapshot.db")) as database:
        database.execute("DROP TABLE segments")
        database.execute("CREATE VIEW segments AS SELECT load_extension('evil')")
        database.commit()
    with pytest.raises(InputError, match="segment that is not there"):
        _document.flat_of(Source(str(tmp_path / "snapshot.db")))


@pytest.mark.parametrize("share", [0.4, 0.9])
def test_a_damaged_database_is_one_clear_line(share: float, tmp_path: Path) -> None:
    content = document(device_traces=[document()["device_traces"][0] * 400])
    whole = as_sqlite(tmp_path / "whole.db", content)
    found = tables_of(tmp_path, whole[: int(len(whole) * share)], "snapshot.db")
    (row,) = found["files"].to_pylist()
    assert row["status"] == "unusable" and "SQLite" in row["detail"]


@pytest.mark.parametrize("content", [pickle.dumps(document(), 4), json.dumps(document()).encode()])
def test_the_child_process_gives_the_same(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "large.pickle"
    path.write_bytes(content)
    here, apart = (_document.flat_of(Source(str(path)), small) for small in (1 << 30, 16))
    assert here.settings == apart.settings and here.notes == apart.notes
    for table, columns in here.columns.items():
        assert {c: pa.array(v).to_pylist() for c, v in columns.items()} == {
            c: pa.array(v).to_pylist() for c, v in apart.columns[table].items()
        }


@pytest.mark.parametrize("share", [0.1, 0.5, 0.97])
def test_a_cut_snapshot_is_one_clear_line(share: float, tmp_path: Path) -> None:
    path = tmp_path / "cut.pickle"
    content = pickle.dumps(document(), 4)
    path.write_bytes(content[: int(len(content) * share)])
    for small_bytes in (1 << 30, 16):
        with pytest.raises(InputError) as caught:
            _document.flat_of(Source(str(path)), small_bytes)
        assert "\n" not in str(caught.value)


KNOWN_MIB = {
    "MAGMA27-cs336/memory_snapshot.pickle": (13524.0, 1313.9, 12210.1, 314.0),
    "Yiyi-LLM-inference/1.3b_snapshot.pickle": (7256.0, 5420.2, 1835.8, 198.0),
    "bcrafton-cs336/memory_snapshot.pickle": (4042.0, 2930.5, 1111.5, 148.0),
    "pt_snap_cli/tests/fixtures/snapshots/snapshot_expandable.pkl": (614.0, 389.8, 224.2, 137.1),
    "pt_snap_cli/tests/fixtures/snapshots/snapshot_with_empty_cache.pkl": (486.0, 397.1, 88.9, 17.8),
    "pt_snap_cli/tests/fixtures/snapshots/snapshot_with_empty_cache_expandable.pkl": (468.0, 389.8, 78.2, 18.9),
    "pt_snap_cli/tests/fixtures/snapshots/snapshot_with_multi_devices.pkl": (994.0, 389.8, 604.2, 20.0),
    "pt_snap_cli/tests/fixtures/snapshots/snapshot_1768383987920985470.pkl": (526.0, 0.0, 526.0, 20.0),
}
"""reserved, allocated, free in reserved, largest free block."""


@pytest.mark.parametrize(("name", "expected"), KNOWN_MIB.items())
def test_public_snapshots(name: str, expected: tuple[float, ...], corpus: Path) -> None:
    found = read(Source(str(corpus / "memsnap" / name)))
    blocks = found["blocks"]
    free = pc.equal(blocks["state"].cast(pa.string()), "inactive")
    live = pc.equal(blocks["state"].cast(pa.string()), "active_allocated")
    sums = [pc.sum(found["segments"]["size_bytes"]).as_py()]
    sums += [pc.sum(blocks["size_bytes"].filter(mask)).as_py() or 0 for mask in (live, free)]
    sums.append(pc.max(blocks["size_bytes"].filter(free)).as_py() or 0)
    assert [round(s / MIB, 1) for s in sums] == list(expected)


def test_pointers_of_git_lfs_are_named(corpus: Path) -> None:
    folder = corpus / "memsnap" / "pt_snap_cli" / "tests" / "fixtures" / "snapshots"
    for path in folder.glob("*.pickle"):
        (row,) = read(Source(str(path)))["files"].to_pylist()
        assert row["status"] == "unusable" and "git-lfs pointer" in row["detail"]
