"""Files of the live hook become series and quality; hostile ones clear lines and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose import hook_records as layout
from diagnose import ingest, pipeline

MS = 1_000_000


def record(step: int, **facts: int) -> list[int]:
    values = [layout.UNKNOWN] * len(layout.FIELDS)
    usual = {"step": step, "end_wall_ns": 10**18 + step * 20 * MS, "step_time_ns": 20 * MS, "flags": 0}
    for name, value in {**usual, **facts}.items():
        values[layout.PLACE[name]] = value
    return values


def write(path: Path, rows: list[list[int]], first_seq: int = 1, **writer: Any) -> Path:
    head = layout.header({"rank": 0, "world_size": 1, "attempt": 0, "host": "node", **writer})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + b"".join(layout.pack(first_seq + n, row) for n, row in enumerate(rows)))
    return path


def read(*paths: Path) -> dict[str, pa.Table]:
    return pipeline.read([str(p) for p in paths], workers=1)


def series(tables: dict[str, pa.Table], metric: str) -> dict[int, float]:
    rows = tables["series"].filter(pc.equal(tables["series"]["metric"].cast(pa.string()), metric))
    return dict(zip(rows["step"].to_pylist(), rows["value"].to_pylist(), strict=True))


def problems(tables: dict[str, pa.Table]) -> Counter[str]:
    return Counter({r["problem"]: r["count"] for r in tables["quality"].to_pylist()})


def test_a_history_is_series_by_step(tmp_path: Path) -> None:
    rows = [record(n, memory_allocated_bytes=n * 100, gc_time_ns=0) for n in range(1, 4)]
    rows[0][layout.PLACE["step_time_ns"]] = layout.UNKNOWN

    tables = read(write(tmp_path / "rank00003.0000.history", rows, rank=3, world_size=4))

    assert series(tables, "step_time_ns") == {2: 20 * MS, 3: 20 * MS}
    assert series(tables, "memory_allocated_bytes") == {1: 100, 2: 200, 3: 300}
    assert series(tables, "gc_time_ns") == {1: 0, 2: 0, 3: 0}, "a zero that was measured is a zero"
    assert series(tables, "input_time_ns") == {}, "what was not measured has no row"
    (file,) = tables["files"].to_pylist()
    assert (file["rank"], file["rank_source"], file["world_size"], file["host"]) == (3, "hook", 4, "node")
    assert problems(tables)["hook_absent"] == 3


def test_what_is_learnt_later_goes_back_to_its_step(tmp_path: Path) -> None:
    waits = {"wait_time_ns": 2 * MS, "wait_count": 1}
    rows = [
        record(1, **waits),
        record(2, previous_ddp_comm_time_ns=5 * MS, previous_device_time_ns=18 * MS, **waits),
        record(3, **waits),
        record(4, previous_ddp_comm_time_ns=6 * MS, **waits),
    ]

    tables = read(write(tmp_path / "h.history", rows))

    assert series(tables, "comm_time_ns") == {1: 7 * MS, 3: 8 * MS}, "2 and 4 were not sampled: unknown"
    assert series(tables, "device_time_ns") == {1: 18 * MS}


def test_without_ddp_the_waits_are_the_communication_if_any_were_seen(tmp_path: Path) -> None:
    seen = write(tmp_path / "a.history", [record(n, wait_time_ns=n * MS, wait_count=1) for n in (1, 2)])
    none = write(tmp_path / "b.history", [record(n, wait_time_ns=0, wait_count=0) for n in (1, 2)])

    assert series(read(seen), "comm_time_ns") == {1: MS, 2: 2 * MS}
    assert series(read(none), "comm_time_ns") == {}


def test_steps_under_a_capture_keep_no_times(tmp_path: Path) -> None:
    rows = [record(1), record(2, flags=layout.CAPTURE), record(3, flags=layout.CAPTURE | layout.USER_STEP), record(4)]

    tables = read(write(tmp_path / "h.history", rows))

    assert series(tables, "step_time_ns") == {1: 20 * MS, 4: 20 * MS}
    assert problems(tables)["skipped_events"] == 2


def test_a_ring_adds_only_what_its_history_lacks(tmp_path: Path) -> None:
    history = write(tmp_path / "rank00000.0000.history", [record(n) for n in range(1, 6)])
    ring = write(tmp_path / "rank00000.ring", [record(n) for n in range(4, 9)], first_seq=4)

    assert list(series(read(ring, history), "step_time_ns")) == [6, 7, 8, 1, 2, 3, 4, 5]
    assert read(ring, history)["series"].num_rows == 8
    assert sorted(series(read(ring), "step_time_ns")) == [4, 5, 6, 7, 8]


def test_restarts_are_stretches_of_one_run(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / f"attempt{n:03d}" / "rank00000.0000.history", [record(1), record(2)], attempt=n)
        for n in (0, 1)
    ]

    tables = read(*paths)

    assert sorted(tables["series"]["segment"].to_pylist()) == [0, 0, 1, 1]
    assert tables["files"]["run"].to_pylist() == [0, 0]


@pytest.mark.parametrize(
    ("facts", "problem", "count"),
    [
        ({"lost_records_count": 7}, "hook_gap", 7),
        ({"flags": layout.HISTORY_FAILED}, "hook_gap", 1),
        ({"flags": layout.CLOCK_JUMP}, "clock_jump", 1),
        ({"hook_errors_count": 3}, "hook_error", 3),
        ({"record_every_count": 4}, "hook_throttled", 1),
    ],
)
def test_gaps_are_told(facts: dict[str, int], problem: str, count: int, tmp_path: Path) -> None:
    clean = read(write(tmp_path / "a.history", [record(1), record(2)]))
    told = read(write(tmp_path / "b.history", [record(1), record(2, **facts)]))

    assert problem not in problems(clean)
    assert problems(told)[problem] == count


def test_a_history_whose_beginning_is_gone_is_told(tmp_path: Path) -> None:
    rows = [record(n, hook_time_ns=1) for n in range(5, 8)]

    tables = read(write(tmp_path / "rank00000.0003.history", rows, first_seq=5))

    assert problems(tables) == {"hook_gap": 4}


def test_missing_and_torn_records_are_told(tmp_path: Path) -> None:
    path = write(tmp_path / "h.history", [record(n) for n in range(1, 10)])
    data = bytearray(path.read_bytes())
    data[layout.HEADER_BYTES + 3 * layout.SLOT.size + 20] ^= 1
    path.write_bytes(bytes(data[:-5]))

    found = problems(read(path))

    assert (found["torn_record"], found["truncated"], found["hook_gap"]) == (1, 1, 1)


def hostile() -> dict[str, bytes]:
    good = layout.header({"rank": 0, "world_size": 1})
    body = layout.pack(1, record(1))
    return {
        "cut": good[:200],
        "no_record": good,
        "no_rank": layout.header({"world_size": 1}) + body,
        "text_rank": layout.header({"rank": "../../x"}) + body,
        "negative_rank": layout.header({"rank": -1}) + body,
        "huge_rank": layout.header({"rank": 1 << 60}) + body,
        "boolean_rank": layout.header({"rank": True}) + body,
        "other_version": good[:8] + b"\x63" + good[9:] + body,
        "zero_slot": good[:12] + b"\0\0\0\0" + good[16:] + body,
        "noise": good + b"\xff" * 5000,
    }


@pytest.mark.parametrize("name", hostile())
def test_a_hostile_file_is_one_clear_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rank00000.0000.history"
    path.write_bytes(hostile()[name])

    tables = read(path)

    (file,) = tables["files"].to_pylist()
    assert file["status"] == "unusable"
    assert file["detail"].startswith("found ") and "\n" not in file["detail"]


def test_wild_values_are_read_as_they_are_and_wild_names_cleaned(tmp_path: Path) -> None:
    extremes = record(1, step_time_ns=-5, memory_allocated_bytes=(1 << 63) - 1, end_wall_ns=-1)
    tables = read(write(tmp_path / "h.history", [extremes], host="\x1b[31mroot\n", world_size="many"))

    assert series(tables, "step_time_ns") == {}, "a negative step is none"
    (file,) = tables["files"].to_pylist()
    assert (file["host"], file["world_size"]) == (None, None)


@given(st.binary(min_size=0, max_size=400), st.integers(0, 4000))
def test_noise_in_the_header_is_never_an_exception(noise: bytes, place: int) -> None:
    data = bytearray(layout.header({"rank": 0, "world_size": 1}) + layout.pack(1, record(1)))
    data[place : place + len(noise)] = noise
    if layout.is_records(bytes(data[:8])):
        with Path("/tmp/diagnose-noise.history").open("wb") as file:
            file.write(data)
        source = ingest.Source("/tmp/diagnose-noise.history")
        assert ingest.read(source)["files"].num_rows == 1


def note(**changes: Any) -> str:
    return json.dumps({"kind": "clock_jump", "step": 5, "ts_ns": 1, "detail": "by +7 s", **changes})


def test_notes_become_quality(tmp_path: Path) -> None:
    lines = [
        note(),
        note(kind="history_failed", detail="No space"),
        note(kind="throttled"),
        note(kind="other"),
        "{",
        "",
    ]
    path = tmp_path / "rank00002.notes.jsonl"
    path.write_text("\n".join([*lines, note(step="x"), note(detail="a\x1b[2Jb", kind="no_place")]))

    rows = {r["problem"]: r for r in read(path)["quality"].to_pylist()}

    assert rows["clock_jump"]["detail"] == "step 5: by +7 s"
    assert rows["hook_gap"]["count"] == 2 and "\x1b" not in rows["hook_gap"]["detail"]
    assert rows["hook_error"]["count"] == 1
    assert rows["unreadable_line"]["count"] == 2
    assert rows["clock_jump"]["rank"] == 2


@pytest.mark.parametrize(
    ("record_", "problem"),
    [({"exit_code": 1}, "job_failed"), ({"exit_code": None}, "job_unfinished"), ({"exit_code": 0}, None)],
)
def test_how_a_launched_job_ended(record_: dict[str, Any], problem: str | None, tmp_path: Path) -> None:
    facts = {"diagnose_launch": 1, "command": ["torchrun", "x.py"], "settings": {"NCCL_DEBUG": "INFO", "A": 5}}
    path = tmp_path / "launch-node.json"
    path.write_text(json.dumps(facts | record_))

    tables = read(path)
    settings = dict(zip(tables["settings"]["key"].to_pylist(), tables["settings"]["value"].to_pylist(), strict=True))

    assert settings["NCCL_DEBUG"] == "INFO" and settings["launch.command"] == "torchrun x.py" and "A" not in settings
    assert list(problems(tables)) == ([problem] if problem else [])


@pytest.mark.parametrize("text", ['{"diagnose_launch": 1', '["diagnose_launch"]', '{"diagnose_launch": [' + "[" * 9999])
def test_a_damaged_launch_record_is_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "launch-node.json"
    path.write_text(text)

    (file,) = read(path)["files"].to_pylist()

    assert file["status"] == "unusable" and "\n" not in file["detail"]
