"""From files on disk to one set of tables: ranks, their conflicts, and a mixed folder that is read all the same."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from diagnose import schema
from diagnose.ingest import Options, expand, merge, read, unusable
from diagnose.schema import INGESTED, Tables


def trace(rank: int | None = None, world: int = 4, shift_us: int = 0) -> bytes:
    """A small Kineto trace: one operator, one kernel and the call that launched it."""
    host = {"ph": "X", "pid": 7, "tid": 7}
    device = {"correlation": 1, "stream": 7, "device": 0}
    events = [
        {**host, "cat": "cpu_op", "name": "aten::mm", "ts": 10, "dur": 5, "args": {"rank": 9}},
        {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 11, "dur": 2, "args": {"correlation": 1}},
        {**host, "pid": 0, "cat": "kernel", "name": "gemm", "ts": 20, "dur": 9, "args": device},
    ]
    events = [{**event, "ts": event["ts"] + shift_us} for event in events]
    head: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [], "baseTimeNanoseconds": 0}
    if rank is not None:
        head["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
    return json.dumps({**head, "traceEvents": events}).encode()


def load(folder: Path, files: dict[str, bytes], options: Options = Options()) -> Tables:  # noqa: B008
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    sources, problems = expand([str(folder)])
    sources = pickle.loads(pickle.dumps(sources))  # as they reach another process
    parts = [read(source, options) for source in sources]
    parts += [unusable(row["path"], row["detail"], row["problem"]) for row in problems]
    tables = merge(parts)
    for name, table in tables.items():
        schema.check(name, table, INGESTED[name])
    return tables


def ranks(tables: Tables, folder: Path) -> dict[str, tuple[int | None, str | None]]:
    rows = tables["files"].to_pylist()
    return {row["path"].removeprefix(f"{folder}/"): (row["rank"], row["rank_source"]) for row in rows}


def problems(tables: Tables, folder: Path) -> list[tuple[str, str]]:
    rows = tables["quality"].to_pylist()
    return [
        (row["path"].removeprefix(f"{folder}/"), row["problem"])
        for row in rows
        if row["path"]
        and row["problem"].startswith(("rank_", "duplicate", "unusable", "misnamed", "unknown_format", "other_"))
    ]


def test_content_before_name_before_folder_before_unknown(tmp_path: Path) -> None:
    found = load(tmp_path, {
        "a/rank9.json": trace(2), "b/rank3.json": trace(shift_us=1), "rank_1/trace.json": trace(shift_us=2),
        "worker_77.json": trace(shift_us=3),
    })  # fmt: skip
    assert ranks(found, tmp_path) == {
        "worker_77.json": (-1, "unknown"), "a/rank9.json": (2, "distributedInfo"), "b/rank3.json": (3, "file_name"),
        "rank_1/trace.json": (1, "folder"),
    }  # fmt: skip
    assert sorted(problems(found, tmp_path)) == [
        ("a/rank9.json", "rank_conflict"), ("b/rank3.json", "rank_inferred"), ("rank_1/trace.json", "rank_inferred"),
        ("worker_77.json", "rank_unknown"),
    ]  # fmt: skip
    files = {row["file"]: row["rank"] for row in found["files"].to_pylist()}
    events = found["events"].to_pylist()
    assert len(events) == 12 and all(event["rank"] == files[event["file"]] for event in events)


def test_a_rank_beyond_the_world_is_not_believed(tmp_path: Path) -> None:
    text = trace(0).replace(b'"rank": 0, ', b"")
    assert b'"world_size": 4' in text
    found = load(tmp_path, {"rank7.json": text})
    assert ranks(found, tmp_path) == {"rank7.json": (-1, "unknown")}
    assert problems(found, tmp_path) == [("rank7.json", "rank_conflict"), ("rank7.json", "rank_unknown")]


def test_a_mixed_folder_is_read_all_the_same(tmp_path: Path) -> None:
    found = load(tmp_path, {
        "et.json": b'{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}',
        "memory_timeline.json": b"[[0], [[0, 1]]]",
        "snapshot.json": pickle.dumps({"segments": []}), "page.json": b"<!DOCTYPE html>", "notes.txt": b"hello",
        "plain.json.gz": trace(0), "packed.json": gzip.compress(trace(1)), "empty.json": b"",
        "steps.jsonl": b'{"step": 1, "loss": 2}',
        "env.txt": b"NCCL_ALGO=Ring\n",
    })  # fmt: skip
    status = {row["path"].removeprefix(f"{tmp_path}/"): row["status"] for row in found["files"].to_pylist()}
    usable = {"plain.json.gz", "packed.json", "steps.jsonl", "env.txt"}
    assert status == {name: "ok" if name in usable else "unusable" for name in status} and len(status) == 10
    assert sorted(set(found["events"]["rank"].to_pylist())) == [0, 1]
    assert found["series"].num_rows == 1 and "NCCL_ALGO" in found["settings"]["key"].to_pylist()
    named = dict(problems(found, tmp_path))
    assert named["plain.json.gz"] == named["packed.json"] == "misnamed_compression"
    assert named["notes.txt"] == "unknown_format" and named["empty.json"] == "unusable"
    for row in found["files"].to_pylist():
        assert row["status"] == "ok" or ("found" in row["detail"] and "\n" not in row["detail"])


def test_a_cut_archive_is_partial_and_says_where(tmp_path: Path) -> None:
    whole = gzip.compress(trace(0) + b" " * 100_000 + bytes(range(32, 127)) * 50, mtime=0)
    found = load(tmp_path, {"rank0.json.gz": whole[:-40]})
    assert found["files"]["status"].to_pylist() == ["partial"] and found["events"].num_rows == 3
    row = next(row for row in found["quality"].to_pylist() if row["problem"] == "damaged_compression")
    assert row["byte_offset"] > 100_000 and "cut" in row["detail"]


def test_the_same_trace_packed_and_plain_is_one(tmp_path: Path) -> None:
    found = load(
        tmp_path, {"rank0.json": trace(0), "copy/rank0.json.gz": gzip.compress(trace(0)), "rank1.json": trace(1)}
    )
    assert found["files"].num_rows == 2 and found["events"].num_rows == 6
    assert problems(found, tmp_path) == [("copy/rank0.json.gz", "duplicate_file")]


def test_two_jobs_in_one_folder_are_two_runs(tmp_path: Path) -> None:
    found = load(tmp_path, {f"{world}/rank{r}.json": trace(r, world, world + r) for world in (4, 8) for r in range(2)})
    assert found["files"]["run"].to_pylist() == [0, 0, 1, 1]
    assert found["quality"]["problem"].to_pylist().count("several_runs") == 1


def test_ranks_that_were_not_asked_for_keep_only_their_file(tmp_path: Path) -> None:
    files = {f"rank{r}.json": trace(r, shift_us=r) for r in range(3)}
    found = load(tmp_path, files, Options(ranks=frozenset({1, 5})))
    assert set(found["events"]["rank"].to_pylist()) == {1} and found["files"].num_rows == 3


@pytest.mark.parametrize(
    "content", [b"", b"   \n", b"\0\0\0", b"\xff\xfe", b"{", b"[", b"[]", b"{}", b"\x1f\x8b", b"PK\x03\x04", b"1"]
)
def test_no_content_is_ever_a_traceback(tmp_path: Path, content: bytes) -> None:
    found = load(tmp_path, {"x.json": content})
    assert found["files"]["status"].to_pylist() == ["unusable"]
    assert "\n" not in found["files"]["detail"][0].as_py()
