"""Event files: what TensorBoard itself reads of a recorded one, and files put together byte by byte."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnose import schema
from diagnose.analyses.trends import trends
from diagnose.ingest import Source, read, tensorboard
from diagnose.ingest.tensorboard._events import scalars
from diagnose.schema import INGESTED, Tables

FOLDER = Path(__file__).parents[2] / "fixtures" / "tensorboard"
EVENTS = FOLDER / "events.out.tfevents.1700000000.node7.4242.0"


def load(path: Path) -> Tables:
    assert tensorboard.sniff(Source(str(path)).head(), path.name)
    tables = read(Source(str(path)))
    for table, found in tables.items():
        schema.check(table, found, INGESTED[table])
    return tables


def values(tables: Tables, tag: str) -> list[tuple[int, float]]:
    rows = tables["series"].to_pylist()
    return [(row["step"], row["value"]) for row in rows if row["metric"] == tag]


def test_what_tensorboard_itself_reads() -> None:
    tables = load(EVENTS)
    expected = json.loads((FOLDER / "expected.json").read_text())

    for tag in ("iteration-time", "loss", "mem/allocated(GiB)"):
        assert values(tables, tag) == [(step, value) for step, _, value in expected[tag]]
    assert values(tables, "iteration-time vs samples") == [], "its step is a number of samples"
    assert {row["metric"] for row in tables["series"].to_pylist()} == {
        "iteration-time", "loss", "mem/allocated(GiB)", "elapsed_time_ns",
    }  # fmt: skip
    assert (tables["files"]["host"].to_pylist(), tables["files"]["status"].to_pylist()) == (["node7"], ["ok"])
    ends = {(row["segment"], row["step"]): row["ts_ns"] for row in tables["step_ends"].to_pylist()}
    assert ends[0, 1] == 1_700_000_002_500_000_000 and ends[1, 40] == 1_700_000_500_500_000_000
    assert len(ends) == 50, "steps 21 to 30 were done twice"
    notes = {row["problem"]: row["count"] for row in tables["quality"].to_pylist()}
    assert notes == {"skipped_events": 50, "unparsed_value": 2}


def record(data: bytes) -> bytes:
    """One TFRecord; checksums are not looked at."""
    return struct.pack("<QI", len(data), 0) + data + struct.pack("<I", 0)


def field(number: int, kind: int, data: bytes) -> bytes:
    return bytes([number << 3 | kind]) + (varint(len(data)) if kind == 2 else b"") + data


def varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def event(wall: float, step: int, tag: str, value: float) -> bytes:
    summary = field(1, 2, field(1, 2, tag.encode()) + field(2, 5, struct.pack("<f", value)))
    return field(1, 1, struct.pack("<d", wall)) + field(2, 0, varint(step)) + field(5, 2, summary)


HEAD = record(field(1, 1, struct.pack("<d", 1.0)) + field(3, 2, b"brain.Event:2"))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(0, 2**40), st.text("ab/é", min_size=1, max_size=4), st.floats(width=32)), max_size=8
    ),
    st.integers(1, 70),
)
def test_any_pieces_give_the_same_scalars(given_rows: list[tuple[int, str, float]], size: int) -> None:
    data = HEAD + b"".join(record(event(5.0, *row)) for row in given_rows)

    found = scalars(data[at : at + size] for at in range(0, len(data), size))

    assert found.step.tolist() == [row[0] for row in given_rows]
    assert [found.tags[n] for n in found.tag.tolist()] == [row[1] for row in given_rows]
    assert [struct.pack("<f", v) for v in found.value.tolist()] == [struct.pack("<f", row[2]) for row in given_rows]
    assert found.damaged_bytes == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=80)
@given(st.binary(max_size=60), st.integers(0, 400))
def test_damage_ends_in_rows_or_in_one_line(tmp_path: Path, noise: bytes, at: int) -> None:
    data = HEAD + b"".join(record(event(5.0 + n, n, "loss", 1.0)) for n in range(6))
    path = tmp_path / "events.out.tfevents.1.h.2.0"
    path.write_bytes(data[: len(HEAD)] + data[len(HEAD) : at] + noise + data[at:])

    tables = read(Source(str(path)))

    assert tables["files"]["status"].to_pylist()[0] in ("ok", "partial", "unusable")


def test_a_cut_file_is_read_to_its_cut(tmp_path: Path) -> None:
    path = tmp_path / EVENTS.name
    path.write_bytes(EVENTS.read_bytes()[:-700])

    tables = load(path)

    assert tables["files"]["status"].to_pylist() == ["partial"]
    assert "truncated" in tables["quality"]["problem"].to_pylist()
    assert len(values(tables, "loss")) < 50


@pytest.mark.parametrize(("slow_s", "shape"), [(2.0, "level"), (2.6, "step")])
def test_steps_are_timed_by_when_they_were_written(tmp_path: Path, slow_s: float, shape: str) -> None:
    """A logger that writes only a loss: the wall clock of its events is the step time."""
    wall, rows = 1_700_000_000.0, []
    for step in range(0, 4000, 10):
        wall += 10 * (2.0 if step < 2400 else slow_s) + 0.1 * ((step // 10) % 3)
        rows.append(record(event(wall, step, "train/loss", 2.0)))
    path = tmp_path / "events.out.tfevents.1.h.2.0"
    path.write_bytes(HEAD + b"".join(rows))

    job: dict[str, Any] = trends(load(path)["series"]).to_pylist()[0]

    assert (job["shape"], job["timed"]) == (shape, True)
    assert job["early"] == pytest.approx(2e9, rel=0.01)
    if shape == "step":
        assert job["late"] == pytest.approx(2.6e9, rel=0.01) and abs(job["from_step"] - 2400) <= 30


def test_a_file_without_scalars_says_so(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.h.2.0"
    path.write_bytes(HEAD)

    assert "without scalars" in load(path)["files"]["detail"][0].as_py()
