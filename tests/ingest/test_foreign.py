"""Files of other tools are named; ours are never taken for one of them."""

from __future__ import annotations

import json
import pickle
import sqlite3
from pathlib import Path

import pytest

from diagnose.ingest import Source, foreign, ingesters, read


def database(folder: Path, table: str) -> bytes:
    path = folder / f"{table}.sqlite"
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE {table} (id INTEGER)")
    connection.commit()
    connection.close()
    return path.read_bytes()


PLANE = b"\x0a\x20\x08\x01\x12\x0d/device:GPU:0\x1a\x00\x00\x00"
PACKET = b"\x0a\x06\x50\x01\x08\x02\x40\x00"
PROFILE = '{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "%s"}}'

FILES: dict[str, tuple[bytes, str, str]] = {
    # name: content, kind, problem
    "report.nsys-rep": (b"\x01\0\0\0NVIDIA Tegra Profiler Report\0\0", "nsys", "other_profiler"),
    "old.qdrep": (b"\x07\0\0\0\0\0\0", "nsys", "other_profiler"),
    "kernels.csv": (b"Time (%),Total Time (ns),Instances\n50,100,2\n", "nsys", "other_profiler"),
    "trace_view.json": (f"[{PROFILE % 'Ascend Hardware'}]".encode(), "msprof", "other_profiler"),
    "msprof.json": (f'{{"traceEvents": [{PROFILE % "CANN"}]}}'.encode(), "msprof", "other_profiler"),
    "vm.xplane.pb": (PLANE, "xplane", "other_profiler"),
    "vm.trace.json.gz": (
        b'{"displayTimeUnit": "ns", "metadata": {"highres-ticks": true}, "traceEvents": []}', "xplane",
        "other_profiler",
    ),
    "out_kernel_trace.csv": (b'"Kind","Agent_Id","Queue_Id"\n"KERNEL_DISPATCH",1,2\n', "rocprof", "other_profiler"),
    "results.csv": (b'"Index","KernelName","gpu-id"\n0,"k",1\n', "rocprof", "other_profiler"),
    "results.json": (b'{"rocprofiler-sdk-tool": [{"metadata": {}}]}', "rocprof", "other_profiler"),
    "v1.json": (f'{{"traceEvents": [{PROFILE % "0 CPU HIP API"}]}}'.encode(), "rocprof", "other_profiler"),
    "out.pftrace": (PACKET * 6, "perfetto", "other_profiler"),
    "prof.txt": (b"==4242== NVPROF is profiling process 4242\n", "nvprof", "other_profiler"),
    "et.json": (b'{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{}]}', "execution_trace", "unknown_format"),
    "memory_timeline.json": (b"[[0, 1], [[0, 1], [0, 2]]]", "memory_timeline", "unknown_format"),
    "other.pkl": (pickle.dumps({"a": 1}, 4), "pickle", "unknown_format"),
    "stacks.txt": (b"main.py(1): f;main.py(2): g;torch/nn.py(3): h 1234\n", "stacks", "other_profiler"),
    "page.json": (b"\n<!DOCTYPE html><title>404</title>", "html", "unknown_format"),
    "error.json": (b'<?xml version="1.0"?><Error/>', "xml", "unknown_format"),
    "lfs.json": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "git_lfs", "unknown_format"),
    "shot.png": (b"\x89PNG\r\n\x1a\n\0", "image", "unknown_format"),
    "diagnosis.json": (b'{"schema_version": 1, "tool": {"name": "diagnose"}}', "diagnosis", "unknown_format"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_foreign_file_is_one_line_that_names_it(tmp_path: Path, name: str) -> None:
    content, kind, problem = FILES[name]
    (tmp_path / name).write_bytes(content)
    tables = read(Source(str(tmp_path / name)))
    (row,) = tables["files"].to_pylist()
    assert (row["kind"], row["status"], row["rank"]) == (kind, "unusable", None)
    assert "\n" not in row["detail"] and row["detail"].count(";") == 2
    notes = [note for note in tables["quality"].to_pylist() if note["problem"] != "misnamed_compression"]
    expected = "unknown_format" if kind == "stacks" else problem
    assert [note["problem"] for note in notes] == [expected]


@pytest.mark.parametrize(
    ("table", "kind"),
    [("CUPTI_ACTIVITY_KIND_KERNEL", "nsys"), ("rocpd_kernelapi", "rocprof"), ("users", "sqlite")],
)
def test_databases(tmp_path: Path, table: str, kind: str) -> None:
    found = foreign.format_of(database(tmp_path, table), "x.db")
    assert found is not None and found.kind == kind


TRACE = {"schemaVersion": 1, "deviceProperties": [], "distributedInfo": {"rank": 0, "pg_config": [{"pg_name": "0"}]}}
OURS = {
    "kineto": [
        json.dumps({**TRACE, "traceEvents": [{"ph": "X", "name": "CANN", "args": {"segments": 1, "nodes": [1]}}]}),
        '{\n  "schemaVersion": 1,\n  "deviceProperties": [\n  ],\n  "traceEvents": [\n  {\n    "ph": "X", "name": "a"',
        json.dumps([{"ph": "X", "name": "aten::mm", "pid": "CPU functions", "tid": 0, "ts": 1, "dur": 1, "args": {}}]),
        json.dumps({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "ncclDevKernel", "ts": 1, "dur": 2}]}),
    ],
    "series": ['{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n', "step,loss\n1,2\n2,1\n"],
    "settings_text": ["NCCL_DEBUG=INFO\nA=1\n", "export A=1\n"],
    "job_toml": ["# facts\n[layout]\ntp = 8\n"],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in OURS.items() for text in texts])
def test_exactly_one_ingester_takes_each_of_our_formats(kind: str, text: str) -> None:
    assert [name for name, one in ingesters().items() if one.sniff(text.encode(), "x")] == [kind]


@pytest.mark.parametrize("name", FILES)
def test_no_other_ingester_wants_a_foreign_file(name: str) -> None:
    takers = [taker for taker, one in ingesters().items() if one.sniff(FILES[name][0], name)]
    assert takers[0] == "foreign"


def test_real_files(corpus: Path) -> None:
    """Every trace of the corpus is left alone; every pickle but an lfs pointer, too."""
    from diagnose.ingest import expand

    sources, _ = expand([str(corpus)])
    for source in sources:
        found = foreign.format_of(source.head(), source.name)
        if source.name.endswith((".pt.trace.json.gz", ".pt.trace.json")) or "chrome-trace" in source.name:
            assert found is None, source.label
        if source.name.endswith((".pickle", ".pkl")):
            assert found is None or found.kind == "git_lfs", source.label
