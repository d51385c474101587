"""Rings and histories survive what happens to a process and its disk."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from pathlib import Path

import pytest

from diagnose import hook_records as layout
from diagnose.live import rings
from diagnose.live._history import History
from diagnose.live._ring import Ring

WRITER = {"rank": 0, "world_size": 1, "attempt": 0}
STEP = layout.PLACE["step"]


def values(step: int) -> list[int]:
    row = [layout.UNKNOWN] * len(layout.FIELDS)
    row[STEP] = step
    return row


def steps_of(path: Path) -> list[int]:
    data = path.read_bytes()
    found = layout.decode(layout.parse_header(data[: layout.HEADER_BYTES]), data[layout.HEADER_BYTES :])
    assert found.torn_count == 0
    steps: list[int] = found.values["step"].tolist()
    return steps


def test_the_ring_keeps_the_last_steps(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "ring", WRITER, slots=16)
    for step in range(1, 41):
        ring.put(values(step), 0)

    assert steps_of(tmp_path / "ring") == list(range(25, 41))
    for count in (1, 5, 15, 100):
        tail = rings.tail(tmp_path / "ring", count)
        assert tail.records.values["step"].tolist() == list(range(max(25, 41 - count), 41))


def test_the_tail_of_a_young_ring(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "ring", WRITER, slots=16)
    assert len(rings.tail(tmp_path / "ring", 5).records.seq) == 0
    ring.put(values(1), 0)
    assert rings.tail(tmp_path / "ring", 5).records.values["step"].tolist() == [1]


def test_the_ring_is_allocated_in_full(tmp_path: Path) -> None:
    """A sparse file would kill the process with SIGBUS when the disk is full."""
    Ring(tmp_path / "ring", WRITER)
    status = (tmp_path / "ring").stat()

    assert status.st_blocks * 512 >= status.st_size
    assert status.st_mode & 0o077 == 0


def test_kill_at_random_moments_leaves_the_last_step_and_no_torn_record(tmp_path: Path) -> None:
    """50 seeded trials: a child writes as fast as it can and says so through a pipe; then it is killed."""
    for trial in range(50):
        folder = tmp_path / str(trial)
        folder.mkdir()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _write_for_ever(folder, writer)
        os.close(writer)
        os.read(reader, 8)  # it has begun
        time.sleep(random.Random(trial).uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        told = 0
        while data := os.read(reader, 1 << 16):
            told = max(told, int.from_bytes(data[-(len(data) % 8 or 8) - 8 :][:8], "little") if len(data) >= 16 else 0)
        os.close(reader)

        head = layout.parse_header((folder / "rank00000.ring").read_bytes()[: layout.HEADER_BYTES])
        kept = rings.tail(folder / "rank00000.ring", 64)
        steps = kept.records.values["step"].tolist()
        assert steps[-1] >= max(head.last, told, 1), "the last finished step is there"
        assert steps == list(range(steps[0], steps[-1] + 1))
        for segment in folder.glob("rank*.history"):
            history = steps_of(segment)
            assert history == list(range(1, len(history) + 1))
            assert history[-1:] <= steps[-1:]


def _write_for_ever(folder: Path, pipe: int) -> None:
    ring = Ring(folder / "rank00000.ring", WRITER)
    history = History(folder / "rank00000", WRITER)
    os.set_blocking(pipe, False)
    step = 0
    while True:
        step += 1
        ring.put(values(step), 0)
        try:
            os.write(pipe, step.to_bytes(8, "little"))
        except BlockingIOError:
            os._exit(1)
        if step % 50 == 0:
            history.flush(ring)


def test_a_full_disk_stops_the_history_and_nothing_else(tmp_path: Path) -> None:
    ring, history = Ring(None, WRITER), History(tmp_path / "rank00000", WRITER)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (layout.HEADER_BYTES + 10 * layout.SLOT.size + 100, hard))
        failed = []
        for step in range(1, 31):
            ring.put(values(step), 0)
            history.flush(ring, last=True)
            failed.append(history.failed)
        assert any(failed)
        assert history.problem
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    ring.put(values(31), 0)
    history.flush(ring, last=True)

    assert not history.failed
    found = [step for path in sorted(tmp_path.glob("*.history")) for step in steps_of(path)]
    assert sorted(set(found)) == list(range(1, 32)), "what the ring still had is caught up"


def test_what_the_ring_lost_meanwhile_is_counted(tmp_path: Path) -> None:
    ring, history = Ring(None, WRITER, slots=32), History(tmp_path / "rank00000", WRITER)
    for step in range(1, 101):
        ring.put(values(step), 0)
    history.flush(ring)

    assert history.lost_count == 100 - 24
    assert steps_of(tmp_path / "rank00000.0000.history")[-1] == 100


def test_a_removed_folder_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "attempt000"
    folder.mkdir()
    ring, history = Ring(None, WRITER), History(folder / "rank00000", WRITER)
    ring.put(values(1), 0)
    history.flush(ring)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    ring.put(values(2), 0)
    history.flush(ring)

    assert [steps_of(p) for p in folder.glob("rank*.history")] == [[2]]


def test_the_history_is_bounded(tmp_path: Path) -> None:
    size = layout.HEADER_BYTES + 10 * layout.SLOT.size
    ring, history = Ring(None, WRITER), History(tmp_path / "rank00000", WRITER, segment_bytes=size)
    for step in range(1, 201):
        ring.put(values(step), 0)
        history.flush(ring)

    kept = sorted(tmp_path.glob("*.history"))
    assert len(kept) == layout.HISTORY_SEGMENTS
    assert steps_of(kept[-1])[-1] == 200


def test_no_room_for_a_ring_is_an_error_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        Ring(tmp_path / "ring", WRITER)

    assert not (tmp_path / "ring").exists()
