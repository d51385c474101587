"""Start an unchanged training command so that it leaves evidence: environment only, its output and exit code its own.

Nothing that the user set is changed. Collective timing (TORCH_NCCL_ENABLE_TIMING) is never switched on: it can undo the
overlap of communication and compute. What went wrong is kept beside the records: `launch-HOST.json` has the command,
its exit code and the settings it ran with.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from diagnose.errors import UsageError
from diagnose.live import _writer, places

if TYPE_CHECKING:
    from diagnose.live._watch import Watch

BOOT = Path(__file__).parent / "boot"
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
KEPT = ("NCCL_", "TORCH_", "TORCHELASTIC_", "CUDA_", "PYTORCH_", "OMP_", "GLOO_", "KINETO_", "SLURM_JOB", "DIAGNOSE_")
"""Settings that say how the job ran; anything else in the environment is nobody's business."""
SECRET = ("KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL")


class Plan(NamedTuple):
    """Where a launched job leaves its evidence, and what it is told."""

    run: Path
    sockets: Path
    added: dict[str, str]


def plan(run: Path, given: Mapping[str, str], hook: bool = True, kineto: bool = True) -> Plan:
    """Make the folders and choose the settings. UsageError where the run folder cannot be used."""
    run = run.absolute()
    try:
        run.mkdir(mode=0o700, parents=True, exist_ok=True)
        sockets = places.private(run)
    except OSError as error:
        raise UsageError(f"{run}: cannot be used ({error.strerror or error}); choose another folder: --run") from error
    added = {"DIAGNOSE_RUN": str(run), "DIAGNOSE_SOCKETS": str(sockets), "DIAGNOSE_HOOK": "on" if hook else "guard"}
    added["PYTHONPATH"] = os.pathsep.join([str(BOOT), *filter(None, [given.get("PYTHONPATH")])])
    if kineto and "KINETO_USE_DAEMON" not in given:
        added |= _kineto(run, sockets)
    added |= _nccl(run, given)
    return Plan(run, sockets, added)


def _kineto(run: Path, sockets: Path) -> dict[str, str]:
    config = sockets / "kineto.conf"
    config.write_text("ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n")
    return {
        "KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": str(sockets), "KINETO_CONFIG": str(config),
        "KINETO_ONDEMAND_TRACE_DIR": str(run / "captures"), "KINETO_LOG_LEVEL": "99",
    }  # fmt: skip


def _nccl(run: Path, given: Mapping[str, str]) -> dict[str, str]:
    """NCCL's log in files of its own, unless the user asked NCCL to say something somewhere."""
    if "NCCL_DEBUG" in given or "NCCL_DEBUG_FILE" in given:
        return {}
    (run / "nccl").mkdir(mode=0o700, exist_ok=True)
    subsystems = {} if "NCCL_DEBUG_SUBSYS" in given else {"NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH"}
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(run / "nccl" / "nccl-%h-%p.log"), **subsystems}


def run(command: list[str], made: Plan, watch: bool = False) -> int:
    """Run the command to its end; its exit code as a shell would report it (128 + signal). UsageError if it cannot."""
    environment = {**os.environ, **made.added}
    record = {
        "diagnose_launch": 1, "command": command, "host": socket.gethostname(), "started_ns": time.time_ns(),
        "sockets": str(made.sockets), "settings": _settings(environment), "exit_code": None, "process": os.getpid(),
    }  # fmt: skip
    path = made.run / f"launch-{socket.gethostname()}.json"
    _save(path, record)
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise UsageError(f"{command[0]}: cannot be started ({error.strerror}); expected a command after --") from error
    guard = _watch(made) if watch else None
    with _forwarding(child):
        code = child.wait()
    if guard is not None:
        guard.stop()
    code = 128 - code if code < 0 else code
    _save(path, record | {"exit_code": code, "ended_ns": time.time_ns()})
    _tidy(made)
    return code


def _watch(made: Plan) -> Watch:
    from diagnose.live._watch import Watch

    return Watch(made.run, made.sockets)


@contextlib.contextmanager
def _forwarding(child: subprocess.Popen[bytes]) -> Any:
    """Signals that only we got go to the child; an interrupt of the terminal reaches it by itself."""

    def pass_on(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in FORWARDED}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value[:1000]
        for name, value in sorted(environment.items())
        if name.startswith(KEPT) and not any(word in name.upper() for word in SECRET)
    }


def _save(path: Path, record: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # a full disk does not stop the job
        _writer.save(path, record)


def _tidy(made: Plan) -> None:
    """Rings that could not lie in the run folder go there now; the folder of sockets goes away."""
    with contextlib.suppress(OSError):
        for ring in made.sockets.glob("attempt*-rank*.ring"):
            attempt, _, name = ring.name.partition("-")
            shutil.copyfile(ring, made.run / attempt / name)
    shutil.rmtree(made.sockets, ignore_errors=True)
