"""Where a run keeps its files: the run folder (records, captures) and a short private folder for sockets.

The run folder may be shared by hosts; histories are only appended to, which any file system can. Sockets and rings
cannot lie everywhere: a socket's path has at most 107 bytes (Kineto's folder 54), and a mapping on a network file
system can kill the process. So each host has a private folder, and `host-*.json` in the run folder says where.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import tempfile
from pathlib import Path
from typing import Any

LOCAL = frozenset(
    ["ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "f2fs", "bcachefs", "ramfs", "jfs", "reiserfs"]
)
"""File systems on which a file may be mapped without fear that it goes away."""
KINETO_FOLDER_BYTES = 54
"""Kineto joins the folder with a name of 52 bytes into a buffer of 108, unchecked."""
SOCKET_BYTES = 107
RUN_NAME = "run"
"""File in the private folder that says which run it is for."""


def private(run: Path) -> Path:
    """The short folder of this user for the sockets of `run` on this host; made with mode 0700 if need be.

    A job started by `diagnose launch` is told ($DIAGNOSE_SOCKETS). Raises OSError where it cannot be made,
    PermissionError where it is not ours alone.
    """
    told = os.environ.get("DIAGNOSE_SOCKETS")
    if told and Path(told).is_dir() and is_private(Path(told)):
        return Path(told)
    key = hashlib.blake2b(os.fsencode(run.absolute()), digest_size=4).hexdigest()
    for parent in (os.environ.get("TMPDIR"), tempfile.gettempdir(), "/tmp"):
        folder = Path(parent or "/tmp") / f"diagnose-{os.getuid()}" / key
        if len(os.fsencode(folder)) <= KINETO_FOLDER_BYTES:
            make_private(folder.parent)
            make_private(folder)
            (folder / RUN_NAME).write_text(str(run.absolute()) + "\n", "utf-8")
            return folder
    raise OSError(f"no folder for sockets of at most {KINETO_FOLDER_BYTES} bytes; set TMPDIR to a short one")


def runs_here() -> list[Path]:
    """Run folders that have a private folder of this user on this host, latest first."""
    found: dict[Path, float] = {}
    for parent in dict.fromkeys((os.environ.get("TMPDIR") or "/tmp", tempfile.gettempdir(), "/tmp")):
        for mark in (Path(parent) / f"diagnose-{os.getuid()}").glob(f"*/{RUN_NAME}"):
            if is_private(mark.parent):
                run = Path(mark.read_text("utf-8", "replace").strip()[:4096])
                if run.is_dir():
                    found[run] = mark.stat().st_mtime
    return sorted(found, key=lambda run: -found[run])


def told(run: Path) -> Path | None:
    """The folder of sockets that the launcher of this host wrote down."""
    folder = _launch(run).get("sockets")
    if not isinstance(folder, str) or "\0" in folder:
        return None
    try:
        return Path(folder) if is_private(Path(folder)) else None
    except OSError:
        return None


def hooked(run: Path) -> bool:
    """Whether the launcher of this host put the hook into the job."""
    settings = _launch(run).get("settings")
    return isinstance(settings, dict) and settings.get("DIAGNOSE_HOOK") == "on"


def _launch(run: Path) -> dict[str, Any]:
    try:
        with (run / f"launch-{socket.gethostname()}.json").open("rb") as file:
            found = json.loads(file.read(1 << 20))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def make_private(folder: Path) -> None:
    """Make a folder that only this user can enter; PermissionError where one is there that others can."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(folder):
        raise PermissionError(f"{folder}: belongs to others or is open to them; expected mode 0700; remove it")


def is_private(folder: Path) -> bool:
    """Whether a folder (no link) is this user's and closed to others."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def is_local(folder: Path) -> bool:
    """Whether the folder lies on a file system of this machine."""
    target = os.path.realpath(folder)
    kind, length = "", -1
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    for line in lines:
        before, _, behind = line.partition(" - ")
        point = before.split(" ")[4].replace("\\040", " ")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= length:
            kind, length = behind.split(" ")[0], len(point)
    return kind in LOCAL


def attempt(run: Path, number: int) -> Path:
    """Folder of one start of the ranks: elastic restarts count on."""
    return run / f"attempt{number:03d}"


def stem(rank: int) -> str:
    """How the names of a rank's files begin."""
    return f"rank{rank:05d}"
