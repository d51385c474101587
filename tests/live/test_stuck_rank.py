"""A rank that is stopped or holds the interpreter is shown as such, with the layers that still answer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from diagnose.live import launching, ranks, rings, watching
from diagnose.live.watching import ladder
from tests.live import jobs

pytest.importorskip("torch")
LOOP = """
import ctypes, os, pathlib, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method="file://" + sys.argv[1] + "/store", rank=0, world_size=1)
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters())
folder = pathlib.Path(sys.argv[1])


def rss():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


def step():
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()


before = 0
for number in range(10**9):
    step()
    time.sleep(0.005)
    if number == 2:
        before = rss()
    if number == 400:
        (folder / "grown").write_text(str(rss() - before))
    if (folder / "hold").exists():
        (folder / "hold").unlink()
        ctypes.PyDLL(None).usleep(6_000_000)  # keeps the interpreter lock, as a stuck extension does
    if (folder / "end").exists():
        break
print("ended", flush=True)
"""


def test_the_ladder_of_layers(tmp_path: Path) -> None:
    made = launching.plan(tmp_path / "run", os.environ, kineto=False)
    more = {**made.added, "RANK": "0", "WORLD_SIZE": "1", "DIAGNOSE_TORCH_SERVER": "1"}
    job = jobs.start([sys.executable, str(jobs.program(tmp_path, LOOP)), str(tmp_path)], tmp_path, **more)
    try:
        jobs.wait_until((tmp_path / "grown").exists, job)
        assert seen(made.run) == ("alive", True, True, True, "running")

        os.kill(job.pid, signal.SIGSTOP)
        jobs.wait_until(lambda: ranks.state(ranks.of_run(made.run).ranks[0]) == "stopped", job)
        state, control, torch, ring, meaning = seen(made.run)
        assert (state, control, torch, ring) == ("stopped", False, False, True)
        assert meaning.startswith("stopped by a signal")
        os.kill(job.pid, signal.SIGCONT)

        (tmp_path / "hold").touch()
        jobs.wait_until(lambda: not (tmp_path / "hold").exists(), job)
        state, control, torch, ring, meaning = seen(made.run)
        assert (state, control, torch, ring) == ("alive", False, True, True)
        assert "stuck holding the interpreter lock" in meaning

        (tmp_path / "end").touch()
        out, err = job.communicate(timeout=60)
    finally:
        jobs.stop(job)

    assert (job.returncode, out) == (0, "ended\n"), err
    grown = int((tmp_path / "grown").read_text())
    assert grown < 20 << 20, "memory that the hook and everything else took in 400 steps"
    assert seen(made.run)[0] == "ended"


def seen(run: Path) -> tuple[str, bool, bool | None, bool, str]:
    """State, layers that answer, and what that means, of rank 0."""
    found = ranks.of_run(run)
    (row,) = watching.rows(found)
    told = ladder(found.ranks[0], row)
    layers = told["layers"]
    return row["state"], layers["control"], layers["torch"], layers["ring"], told["meaning"]


def test_output_and_exit_code_pass_through_any_command(tmp_path: Path) -> None:
    script = 'echo out; echo err >&2; test -n "$DIAGNOSE_RUN" && exit 7'
    done = jobs.diagnose("launch", "--run", "r", "-q", "--", "sh", "-c", script, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")

    killed = jobs.diagnose("launch", "--run", "r2", "-q", "--", "sh", "-c", "kill -9 $$", cwd=tmp_path)
    assert killed.returncode == 137

    none = jobs.diagnose("launch", cwd=tmp_path)
    assert none.returncode == 2 and re.fullmatch(r"diagnose: launch: found no command.*\n", none.stderr)

    missing = jobs.diagnose("launch", "--run", "r3", "-q", "--", "no-such-program", cwd=tmp_path)
    assert missing.returncode == 2 and len(missing.stderr.splitlines()) == 1


def test_a_broken_hook_does_not_break_import_torch(tmp_path: Path) -> None:
    """The entry point that torch loads must not raise, whatever happens inside."""
    boot = {"PYTHONPATH": str(launching.BOOT), "RANK": "0", "DIAGNOSE_RUN": str(tmp_path / "file" / "run")}
    (tmp_path / "file").write_text("")
    code = "import torch; n = torch.nn.Linear(2, 2); o = torch.optim.SGD(n.parameters())\n"
    code += "for _ in range(3): n(torch.ones(1, 2)).sum().backward(); o.step()\nprint('fine')"
    done = subprocess.run(
        [sys.executable, "-c", code], env=jobs.environment(**boot), capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
    assert "Traceback" not in done.stderr


def test_tail_of_a_ring_needs_no_process(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        rings.tail(tmp_path / "none.ring", 5)
