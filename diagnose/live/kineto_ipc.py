"""Kineto's own control channel: on-demand captures of processes started with `KINETO_USE_DAEMON=1`, without a daemon.

Every such process asks a datagram socket called `dynolog` once in a while for a configuration, naming itself and its
ancestors. Whoever binds that name answers; here it is bound only while a capture is being handed out. With
`KINETO_IPC_SOCKET_DIR` the name is a file in a folder of mode 0700, and a process whose socket is not there neither
waits nor lags at its exit, which a socket left behind would make it do: it is always removed.
Frames: `size_t size; char type[32]` and a body, in the order of the machine. Source: kineto libkineto/src/
IpcFabricConfigClient.cpp, FabricManager.h (facebookincubator/dynolog ipcfabric), torch 2.0 to 2.13.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from diagnose.errors import UsageError
from diagnose.live import places

NAME = "dynolog"
_META = struct.Struct("=Q32s")
_CONTEXT = struct.Struct("=iiq")  # gpu, pid, job
_REQUEST = struct.Struct("=iiq")  # type, number of pids, job
_CREDENTIALS = struct.Struct("3i")
EVENTS, ACTIVITIES = 1, 2
"""Bits of a request's type: a process that asks for events only is being profiled already."""
MOST_PIDS = 64


class Request(NamedTuple):
    """A process asks."""

    pids: tuple[int, ...]
    """Itself, then its ancestors."""
    busy: bool


def options(path: Path, steps: int, start: int | None, roundup: int, extra: dict[str, bool]) -> str:
    """The text that asks for `steps` optimizer steps from `start` (None: the next multiple of `roundup`).

    A process that has not stepped yet would make a capture by time of it: the duration 0 makes it refuse instead.
    """
    lines = [
        f"ACTIVITIES_LOG_FILE={path}",
        f"PROFILE_START_ITERATION={start or 0}",
        f"ACTIVITIES_ITERATIONS={steps}",
        "ACTIVITIES_DURATION_MSECS=0",
        "ACTIVITIES_WARMUP_PERIOD_SECS=0",
    ]
    if start is None:
        lines.append(f"PROFILE_START_ITERATION_ROUNDUP={roundup}")
    names = {"shapes": "REPORT_INPUT_SHAPES", "stack": "WITH_STACK", "flops": "WITH_FLOPS", "modules": "WITH_MODULES"}
    lines += [f"PROFILE_{names[key]}=true" for key, wanted in extra.items() if wanted and key in names]
    return "\n".join(lines) + "\n"


def file_of(path: Path, process: int) -> Path:
    """Where the trace of one process will lie."""
    return path.with_name(f"{path.stem}_{process}{path.suffix}")


def parse(data: bytes) -> tuple[str, Request | None]:
    """Type of a frame, and what it asks; ValueError where it is none."""
    if len(data) < _META.size:
        raise ValueError("a frame shorter than its head")
    size, raw = _META.unpack_from(data)
    kind, body = raw.split(b"\0")[0].decode("ascii", "replace"), data[_META.size :]
    if size != len(body):
        raise ValueError("a frame of another length than it says")
    if kind != "req":
        return kind, None
    if len(body) < _REQUEST.size:
        raise ValueError("a request that ends early")
    asked, count, _ = _REQUEST.unpack_from(body)
    if not 0 < count <= MOST_PIDS or len(body) != _REQUEST.size + 4 * count:
        raise ValueError("a request whose processes do not fit")
    return kind, Request(struct.unpack_from(f"={count}i", body, _REQUEST.size), not asked & ACTIVITIES)


def frame(kind: str, body: bytes) -> bytes:
    """Bytes of one frame."""
    return _META.pack(len(body), kind.encode()) + body


@contextlib.contextmanager
def bound(folder: Path) -> Iterator[socket.socket]:
    """The socket that processes ask, for as long as the block runs. UsageError where it cannot or must not be bound."""
    if not folder.is_dir() or not places.is_private(folder):
        raise UsageError(
            f"{folder}: found a folder open to others; expected one of mode 0700; start the job with launch"
        )
    if len(os.fsencode(folder)) > places.KINETO_FOLDER_BYTES:
        raise UsageError(f"{folder}: longer than {places.KINETO_FOLDER_BYTES} bytes, which Kineto cannot use")
    path = folder / NAME
    server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        _bind(server, path)
        path.chmod(0o600)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            yield server
        finally:
            path.unlink(missing_ok=True)
    finally:
        server.close()


def _bind(server: socket.socket, path: Path) -> None:
    try:
        server.bind(str(path))
    except OSError:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(str(path))
            except OSError:  # left behind by somebody who was killed
                path.unlink(missing_ok=True)
                server.bind(str(path))
                return
        raise UsageError(f"{path}: another capture is under way; wait for it") from None


def hand_out(
    folder: Path, answer: Callable[[Request], str], done: Callable[[], bool], seconds: float
) -> Iterator[Request]:
    """Answer processes until `done` or out of time; yields every request. `answer` gives a configuration, or ""."""
    until = time.monotonic() + seconds
    with bound(folder) as server:
        while time.monotonic() < until and not done():
            if not select.select([server], [], [], 0.1)[0]:
                continue
            data, ancillary, _, peer = server.recvmsg(65536, 256)
            if not _ours(ancillary):
                continue
            try:
                kind, request = parse(data)
            except ValueError:
                continue
            reply = frame("ctxt", struct.pack("=i", 1))
            if request is not None:
                reply = frame("req", answer(request).encode())
                yield request
            elif kind != "ctxt":
                continue
            with contextlib.suppress(OSError):  # it has gone
                server.sendto(reply, peer)


def _ours(ancillary: list[tuple[int, int, bytes]]) -> bool:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return _CREDENTIALS.unpack(data[: _CREDENTIALS.size])[1] in (os.getuid(), 0)
    return False
