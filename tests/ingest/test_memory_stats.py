"""`torch.cuda.memory_stats()` and `memory_summary()`: every way of writing them gives the same counters."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import diagnose
from diagnose.ingest import Source, read
from diagnose.schema import Tables

MIB, GIB = 1 << 20, 1 << 30
NESTED = {
    "allocated_bytes": {"all": {"current": 20 * GIB, "peak": 30 * GIB, "allocated": 99 * GIB, "freed": 79 * GIB}},
    "active_bytes": {"all": {"current": 21 * GIB, "peak": 31 * GIB, "allocated": 99 * GIB, "freed": 78 * GIB}},
    "reserved_bytes": {"all": {"current": 40 * GIB, "peak": 41 * GIB, "allocated": 41 * GIB, "freed": GIB}},
    "inactive_split_bytes": {"all": {"current": 12 * GIB, "peak": 13 * GIB, "allocated": GIB, "freed": 0}},
    "requested_bytes": {"all": {"current": 19 * GIB, "peak": 29 * GIB, "allocated": 98 * GIB, "freed": 79 * GIB}},
    "num_alloc_retries": 7,
    "num_ooms": 0,
}
FLAT = OrderedDict(
    (f"{name}.all.{kind}", value)
    for name, pools in NESTED.items()
    if isinstance(pools, dict)
    for kind, value in pools["all"].items()
) | {"num_alloc_retries": 7, "num_ooms": 0}
EXPECTED = (20 * GIB, 30 * GIB, 21 * GIB, 40 * GIB, 41 * GIB, 12 * GIB, 19 * GIB, 7, 0)
COLUMNS = (
    "allocated_bytes", "peak_allocated_bytes", "active_bytes", "reserved_bytes", "peak_reserved_bytes",
    "inactive_split_bytes", "requested_bytes", "retries_count", "ooms_count",
)  # fmt: skip


def tables_of(folder: Path, text: str, name: str) -> Tables:
    (folder / name).write_text(text)
    return read(Source(str(folder / name)))


def counters(found: Tables) -> list[tuple[Any, ...]]:
    return [tuple(row[c] for c in COLUMNS) for row in found["allocator_stats"].to_pylist()]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(FLAT),
        json.dumps(NESTED, indent=2),
        json.dumps([FLAT]),
        repr(OrderedDict(FLAT)),
        repr(list(FLAT.items())),
        repr(dict(FLAT)),
        f"{json.dumps(FLAT)}\n\n",
    ],
    ids=["flat", "nested", "list", "ordered", "pairs", "python", "blank"],
)
def test_every_way_of_writing(text: str, tmp_path: Path) -> None:
    found = tables_of(tmp_path, text, "stats.json")
    assert counters(found) == [EXPECTED]
    assert found["files"]["kind"].to_pylist() == ["memory_stats"]


@pytest.mark.parametrize("several", [{"0": NESTED, "1": FLAT}, {"cuda:0": FLAT, "cuda:1": FLAT}, [FLAT, NESTED]])
def test_several_devices(several: Any, tmp_path: Path) -> None:
    found = tables_of(tmp_path, json.dumps(several), "stats.json")
    assert counters(found) == [EXPECTED, EXPECTED]
    assert found["allocator_stats"]["device"].to_pylist() == [0, 1]


def test_lines_are_prints_in_order(tmp_path: Path) -> None:
    later = FLAT | {"allocated_bytes.all.current": GIB}
    found = tables_of(tmp_path, f"{json.dumps(FLAT)}\n{json.dumps(later)}\n", "stats.jsonl")
    assert found["allocator_stats"]["print"].to_pylist() == [0, 1]
    assert [row[0] for row in counters(found)] == [20 * GIB, GIB]


def test_with_steps_it_is_a_series(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"step": step, **FLAT}) for step in range(3))
    (tmp_path / "stats.jsonl").write_text(lines)
    tables = diagnose.run(tmp_path / "stats.jsonl").tables
    assert "allocator_stats" not in tables
    memory = tables["memory"].select(["step", "allocated_bytes", "peak_reserved_bytes"])
    assert memory.to_pylist() == [
        {"step": s, "allocated_bytes": 20 * GIB, "peak_reserved_bytes": 41 * GIB} for s in range(3)
    ]


def test_cut_dumps_are_one_clear_line(tmp_path: Path) -> None:
    found = tables_of(tmp_path, json.dumps(FLAT)[:400], "stats.json")
    (row,) = found["files"].to_pylist()
    assert row["status"] == "unusable" and "do not parse (line 1)" in row["detail"]


def summary(prefix: str = "") -> str:
    """As torch 2.13 prints it, with its launcher's prefix."""
    rows = [
        "=" * 75, "                  PyTorch CUDA memory summary, device ID 1                 ", "-" * 75,
        "            CUDA OOMs: 0            |        cudaMalloc retries: 7         ", "=" * 75,
        "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ", "-" * 75,
        " Allocated memory      |  20480 MiB |     30 GiB |     99 GiB |     79 GiB ",
        "       from large pool |  20479 MiB |     30 GiB |     99 GiB |     79 GiB ",
        "       from small pool |      1 MiB |      0 GiB |      0 GiB |      0 GiB ", "-" * 75,
        " Active memory         |  21504 MiB |     31 GiB |     99 GiB |     78 GiB ", "-" * 75,
        " Requested memory      |  19456 MiB |     29 GiB |     98 GiB |     79 GiB ", "-" * 75,
        " GPU reserved memory   |  40960 MiB |     41 GiB |     41 GiB |   1024 MiB ", "-" * 75,
        " Non-releasable memory |  12288 MiB |     13 GiB |   1024 MiB |      0 B   ", "-" * 75,
        " Allocations           |     912    |     955    |  100000 K  |   99999 K  ", "=" * 75,
    ]  # fmt: skip
    return "".join(f"{prefix}|{row}|\n" for row in rows)


@pytest.mark.parametrize("prefix", ["", "[rank3]: "])
def test_summary_in_a_log(prefix: str, tmp_path: Path) -> None:
    found = tables_of(tmp_path, f"{prefix}starting\n{summary(prefix)}done\n", "train.log")
    assert counters(found) == [EXPECTED]
    (row,) = found["allocator_stats"].to_pylist()
    assert (row["device"], row["rank"], row["source"]) == (1, 3 if prefix else None, "memory_summary")


def test_parts_sum_to_what_is_reserved(tmp_path: Path) -> None:
    (tmp_path / "rank_0.json").write_text(json.dumps(FLAT))
    diagnosis = diagnose.run(tmp_path / "rank_0.json")
    parts = [r for r in diagnosis.tables["memory_parts"].to_pylist() if r["moment"] == "end"]
    assert {r["part"]: r["bytes"] for r in parts} == {
        "fragmentation": 12 * GIB,
        "cached": 7 * GIB,
        "unknown": 21 * GIB,
    }
    (end,) = (r for r in diagnosis.tables["memory_moments"].to_pylist() if r["moment"] == "end")
    assert (end["pending_bytes"], end["internal_bytes"]) == (GIB, GIB)
    (found,) = [f for f in diagnosis.findings if f.rule == "allocator-retries"]
    assert "retried 7 times" in found.summary
    assert all(pa.types.is_int64(diagnosis.tables["allocator_stats"].schema.field(c).type) for c in COLUMNS)
