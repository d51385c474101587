"""Kineto's channel: the bytes it speaks, who is answered, and that nothing is left behind."""

from __future__ import annotations

import os
import socket
import struct
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnose.errors import UsageError
from diagnose.live import kineto_capture, kineto_ipc, places

GOLDEN = (
    b"\x18\x00\x00\x00\x00\x00\x00\x00" + b"req".ljust(32, b"\0")
    + b"\x03\x00\x00\x00" + b"\x02\x00\x00\x00" + b"\x07\x00\x00\x00\x00\x00\x00\x00"
    + b"\x0a\x00\x00\x00" + b"\x14\x00\x00\x00"
)  # fmt: skip
"""A request as torch 2.13 sends it: type 3 (idle), job 7, process 10 below 20; little-endian."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, as the address of a socket must be."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as name:
        yield Path(name)


def test_a_request_of_torch_is_understood() -> None:
    assert kineto_ipc.parse(GOLDEN) == ("req", kineto_ipc.Request((10, 20), busy=False))
    busy = GOLDEN[:40] + b"\x01" + GOLDEN[41:]
    assert kineto_ipc.parse(busy) == ("req", kineto_ipc.Request((10, 20), busy=True))


@pytest.mark.parametrize("data", [b"", GOLDEN[:39], GOLDEN[:-1], GOLDEN + b"x", GOLDEN[:44] + b"\xff" + GOLDEN[45:]])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"frame|request"):
        kineto_ipc.parse(data)


def test_the_text_of_a_request() -> None:
    at = kineto_ipc.options(Path("/r/trace.json"), 3, 120, 50, {"shapes": True, "stack": False})
    next_ = kineto_ipc.options(Path("/r/trace.json"), 3, None, 50, {})

    assert at.splitlines() == [
        "ACTIVITIES_LOG_FILE=/r/trace.json", "PROFILE_START_ITERATION=120", "ACTIVITIES_ITERATIONS=3",
        "ACTIVITIES_DURATION_MSECS=0", "ACTIVITIES_WARMUP_PERIOD_SECS=0", "PROFILE_REPORT_INPUT_SHAPES=true",
    ]  # fmt: skip
    assert "PROFILE_START_ITERATION_ROUNDUP=50" in next_


def ask(folder: Path, answers: list[bytes]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.settimeout(5)
        client.bind(str(folder / f"client{len(answers)}"))
        for data in (b"noise", GOLDEN):
            client.sendto(data, str(folder / "dynolog"))
        answers.append(client.recv(65536))


def test_a_process_is_answered_and_the_socket_goes_away(folder: Path) -> None:
    answers: list[bytes] = []
    requests = kineto_ipc.hand_out(folder, lambda request: "A=1\n", lambda: bool(answers), 5.0)
    client = threading.Thread(target=_ask_when_there, args=(folder, answers))
    client.start()
    seen = list(requests)
    client.join()

    assert answers == [struct.pack("=Q32s", 4, b"req") + b"A=1\n"]
    assert [r.pids for r in seen] == [(10, 20)]
    assert not (folder / "dynolog").exists()


def _ask_when_there(folder: Path, answers: list[bytes]) -> None:
    import time

    while not (folder / "dynolog").exists():
        time.sleep(0.01)
    ask(folder, answers)


def test_a_socket_left_behind_is_replaced_and_a_second_capture_refused(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(folder / "dynolog"))
    with kineto_ipc.bound(folder):
        assert (folder / "dynolog").stat().st_mode & 0o077 == 0
        with pytest.raises(UsageError, match="another capture"), kineto_ipc.bound(folder):
            pass
    assert not (folder / "dynolog").exists()


def test_an_open_folder_and_a_long_one_are_refused(folder: Path) -> None:
    folder.chmod(0o755)
    with pytest.raises(UsageError, match="0700"), kineto_ipc.bound(folder):
        pass
    folder.chmod(0o700)
    long = folder / ("x" * 60)
    long.mkdir(mode=0o700)
    with pytest.raises(UsageError, match="54 bytes"), kineto_ipc.bound(long):
        pass


@pytest.mark.parametrize(
    ("environments", "with_torch", "rank"),
    [
        ({10: {b"RANK": b"3"}, 20: {}}, {10, 20}, 3),  # below the torchrun agent
        ({10: {}, 20: {}}, {10, 20}, None),  # the agent itself
        ({10: {b"RANK": b"3"}, 20: {b"RANK": b"3"}}, {10, 20}, None),  # a spawned loader worker below its rank
        ({10: {b"RANK": b"3"}, 20: {b"RANK": b"3"}}, {10}, 3),  # below a shell that has RANK, too
        ({10: {b"RANK": b"-1x"}, 20: {}}, {10}, None),
    ],
)
def test_who_is_a_rank(
    environments: dict[int, dict[bytes, bytes]], with_torch: set[int], rank: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto_capture, "environment", lambda process: environments[process])
    monkeypatch.setattr(kineto_capture, "_has_torch", lambda process: process in with_torch)

    assert kineto_capture.rank_of((10, 20)) == rank


def test_the_private_folder_is_private_and_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIAGNOSE_SOCKETS", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("long" * 20)))
    made = places.private(tmp_path / "run")

    assert len(os.fsencode(made)) <= places.KINETO_FOLDER_BYTES
    assert made.stat().st_mode & 0o777 == 0o700
    assert places.private(tmp_path / "run") == made
    made.chmod(0o755)
    with pytest.raises(PermissionError, match="0700"):
        places.private(tmp_path / "run")
    made.chmod(0o700)
    (made / places.RUN_NAME).unlink()
    made.rmdir()
