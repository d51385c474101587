"""What evidence a training job started in this environment would leave, what is missing, and the line to add.

Looks at the environment, the limits and the folders of this machine; starts nothing but one look for torch's version,
in the interpreter that would train, without importing torch. What only the job itself can tell (its GPU, its NCCL) is
said to be unknown.
"""

from __future__ import annotations

import importlib.metadata
import os
import resource
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from diagnose.live import places

LEAST_FREE_BYTES = 5 << 30
HOOK_TORCH = (2, 5)
LAUNCH = "diagnose launch -- COMMAND   sets it"


class Check(NamedTuple):
    """One kind of evidence: whether it would be left, what that rests on, and what to do (empty where nothing)."""

    what: str
    state: str
    """ok | missing | harmful | unknown"""
    seen: str
    do: str = ""


def checks(environment: Mapping[str, str], folder: Path) -> list[Check]:
    """All checks, in the order in which people start a job; `folder` is where its records would go."""
    return [
        _torch(), _hook(environment), _kineto(environment), _flight_recorder(environment), _nccl(environment),
        _timing(environment), _autoload(environment), _sockets(folder), _room(folder), _descriptors(), _ptrace(),
    ]  # fmt: skip


def _torch() -> Check:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        seen = f"no torch beside {sys.executable}"
        return Check("PyTorch", "unknown", seen, "run diagnose doctor in the environment that trains")
    numbers = version.split("+")[0].split(".")
    new = tuple(int(n) for n in numbers[:2] if n.isdigit()) >= HOOK_TORCH
    do = "" if new else "import diagnose.live and call install() in the script: this torch loads no entry points"
    return Check("PyTorch", "ok" if new else "missing", f"torch {version}", do)


def _hook(given: Mapping[str, str]) -> Check:
    if given.get("DIAGNOSE_RUN"):
        return Check("step records", "ok", f"DIAGNOSE_RUN={given['DIAGNOSE_RUN']}")
    return Check("step records", "missing", "no hook is set up", LAUNCH)


def _kineto(given: Mapping[str, str]) -> Check:
    what, folder = "captures on request", given.get("KINETO_IPC_SOCKET_DIR", "")
    if not given.get("KINETO_USE_DAEMON"):
        return Check(what, "missing", "KINETO_USE_DAEMON is not set", LAUNCH)
    if not folder:
        lag = "every process waits up to 10 s at its exit for a daemon that is not there"
        return Check(what, "harmful", f"KINETO_USE_DAEMON without KINETO_IPC_SOCKET_DIR: {lag}", LAUNCH)
    if len(os.fsencode(folder)) > places.KINETO_FOLDER_BYTES:
        seen = f"KINETO_IPC_SOCKET_DIR has {len(os.fsencode(folder))} bytes; Kineto has room for 54"
        return Check(what, "harmful", seen, "export KINETO_IPC_SOCKET_DIR to a shorter folder")
    path = Path(folder)
    if not path.is_dir() or not places.is_private(path):
        return Check(what, "missing", f"{folder} is no folder of mode 0700", f"mkdir -m 700 -p {folder}")
    if (path / "dynolog").exists():
        seen = f"{folder}/dynolog is there: if no capture runs, processes lag at their exit"
        return Check(what, "harmful", seen, f"rm {folder}/dynolog")
    return Check(what, "ok", f"KINETO_IPC_SOCKET_DIR={folder}")


def _flight_recorder(given: Mapping[str, str]) -> Check:
    what = "flight recorder"
    size = given.get("TORCH_FR_BUFFER_SIZE", given.get("TORCH_NCCL_TRACE_BUFFER_SIZE"))
    if size == "0":
        return Check(what, "missing", "switched off: its buffer has size 0", "export TORCH_FR_BUFFER_SIZE=2000")
    if given.get("TORCH_NCCL_DUMP_ON_TIMEOUT") == "0":
        seen = "nothing is dumped on a time-out"
        return Check(what, "missing", seen, "export TORCH_NCCL_DUMP_ON_TIMEOUT=1")
    place = given.get("TORCH_FR_DUMP_TEMP_FILE", given.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE"))
    unset = "torch 2.13 has it on by default, older ones may not; dumps go to /tmp of each host"
    seen = f"dumps go to {place}RANK" if place else unset
    return Check(what, "ok" if size or place else "unknown", seen, "" if place else LAUNCH)


def _nccl(given: Mapping[str, str]) -> Check:
    level = given.get("NCCL_DEBUG", "").upper()
    if level in ("INFO", "TRACE"):
        file = given.get("NCCL_DEBUG_FILE")
        return Check("NCCL log", "ok", f"NCCL_DEBUG={level}" + (f", in {file}" if file else ", in the job's output"))
    seen = f"NCCL_DEBUG={level}" if level else "NCCL_DEBUG is not set"
    return Check("NCCL log", "missing", seen + ": links and transports are not told", "export NCCL_DEBUG=INFO")


def _timing(given: Mapping[str, str]) -> Check:
    if given.get("TORCH_NCCL_ENABLE_TIMING", "0") not in ("", "0"):
        seen = "TORCH_NCCL_ENABLE_TIMING is on: it can undo the overlap of communication and compute"
        return Check("overlap", "harmful", seen, "unset TORCH_NCCL_ENABLE_TIMING")
    return Check("overlap", "ok", "no timing of collectives that would disturb it")


def _autoload(given: Mapping[str, str]) -> Check:
    if given.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        seen = "TORCH_DEVICE_BACKEND_AUTOLOAD=0: diagnose launch cannot load its hook"
        return Check("loading the hook", "missing", seen, "unset TORCH_DEVICE_BACKEND_AUTOLOAD")
    return Check("loading the hook", "ok", "entry points of torch are loaded (not with python -I or -E)")


def _sockets(folder: Path) -> Check:
    try:
        made = places.private(folder)
    except OSError as error:
        return Check("private folder", "missing", str(error), "export TMPDIR to a short folder of yours")
    return Check("private folder", "ok", f"{made}")


def _room(folder: Path) -> Check:
    there = folder if folder.is_dir() else folder.absolute().parent
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Check("room for captures", "missing", f"{there}: {error.strerror}", "choose another folder: --run DIR")
    seen = f"{free >> 30} GiB free at {there}" + ("" if places.is_local(there) else " (a network file system)")
    return Check("room for captures", "ok" if free >= LEAST_FREE_BYTES else "missing", seen)


def _descriptors() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    state = "ok" if soft >= 4096 else "missing"
    return Check("open files", state, f"at most {soft}", "" if state == "ok" else f"ulimit -n {min(hard, 65536)}")


def _ptrace() -> Check:
    """Whether py-spy and gdb could look into a stuck process."""
    try:
        scope = Path("/proc/sys/kernel/yama/ptrace_scope").read_text("utf-8").strip()
    except OSError:
        scope = "0"
    if scope == "0" or os.geteuid() == 0:
        return Check("stacks from outside", "ok", f"ptrace_scope {scope}")
    return Check(
        "stacks from outside", "missing", f"ptrace_scope {scope}", "sudo py-spy dump, or rely on attach stacks"
    )
