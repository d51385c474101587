"""Small training programs and real jobs of them for tests: torch on CPU, gloo, several processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from diagnose.live import ranks, watching

TRAIN = """
import os, sys, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset


def main():
    steps, pause, slow_rank, slow_pause, workers = int(sys.argv[1]), *(float(a) for a in sys.argv[2:6])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(3)]))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(steps * 8, 64))
    workers = workers if rank == 0 else 0
    spawn = "spawn" if workers else None
    losses = []
    for (batch,) in DataLoader(data, batch_size=8, num_workers=int(workers), multiprocessing_context=spawn):
        loss = net(batch).square().mean()
        time.sleep(pause + (slow_pause if rank == slow_rank else 0))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    if rank == 0:
        print("losses", *(value.item().hex() for value in losses), flush=True)
    del net
    dist.destroy_process_group()
    sys.exit(int(sys.argv[6]))


if __name__ == "__main__":
    main()
"""
"""Steps, pause of every step, the slow rank and its pause on top, loader workers of rank 0, exit code."""


def program(folder: Path, text: str = TRAIN) -> Path:
    """The program as a file."""
    path = folder / "train.py"
    path.write_text(text)
    return path


def torchrun(processes: int, *words: object) -> list[str]:
    """Command of a job on a port that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [
        sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", f"--master-port={port}",
        *map(str, words),
    ]  # fmt: skip


FORKED = """
import os, runpy, socket, sys
import torch

ranks, sys.argv = int(sys.argv[1]), sys.argv[2:]
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1]), "WORLD_SIZE": str(ranks)}
children = []
for rank in range(ranks):
    children.append(os.fork())
    if children[-1] == 0:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks)}
        runpy.run_path(sys.argv[0], run_name="__main__")
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
sys.exit(max(codes))
"""
"""Ranks of a program that share one import of torch, which is most of what a short job takes."""


def forked(processes: int, *words: object) -> list[str]:
    """Command of a job without launcher."""
    return [sys.executable, "-c", FORKED, str(processes), *map(str, words)]


def environment(**more: str) -> dict[str, str]:
    """Ours, without what a test before may have left."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DIAGNOSE_RUN", "DIAGNOSE_HOOK", "KINETO_"))}
    return {**kept, "OMP_NUM_THREADS": "1", "TORCH_GLOO_LAZY_INIT": "1", **more}


def diagnose(*words: object, cwd: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """A command of ours."""
    return subprocess.run(
        [sys.executable, "-m", "diagnose", *map(str, words)],
        capture_output=True, text=True, cwd=cwd, env=environment(), timeout=timeout, check=False,
    )  # fmt: skip


def start(command: list[str], cwd: Path, **more: str) -> subprocess.Popen[str]:
    """A job in the background, in a process group of its own."""
    return subprocess.Popen(
        command, cwd=cwd, env=environment(**more), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip


def stop(job: subprocess.Popen[str]) -> None:
    """End a job that a failed test left running."""
    if job.poll() is None:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    for pipe in (job.stdout, job.stderr):
        if pipe is not None:
            pipe.close()


def wait_until(true: Callable[[], bool], job: subprocess.Popen[str], seconds: float = 90) -> None:
    """Wait for something that a running job does."""
    until = time.monotonic() + seconds
    while not true():
        assert job.poll() is None, f"the job ended: {job.stderr.read() if job.stderr else ''}"
        assert time.monotonic() < until, "not in time"
        time.sleep(0.05)


def stepping(run: Path, processes: int, step: int) -> Callable[[], bool]:
    """Whether all ranks have got as far as `step`."""

    def reached() -> bool:
        rows = watching.rows(ranks.of_run(run))
        return len(rows) == processes and all((row["step"] or 0) >= step for row in rows)

    return reached
