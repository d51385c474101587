"""What the live hook costs: the long A/B in one running job, ten steps with the hook and ten without, in turns.

    make bench-hook        # 400 pairs, some minutes; an otherwise idle machine tells most

Prints the median difference of neighbouring blocks with its 95 % interval, and beside it what the hook's own timer
says. On a GPU machine: `python benchmarks/hook.py --device cuda` (also holds event times against synchronised ones,
after the measurement).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOOP = """
import sys, time
import torch

device, layers = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(layers)]).to(device)
optimizer = torch.optim.Adam(net.parameters())
data = torch.randn(64, 512, device=device)
while True:
    net(data).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
CHECK = """
import time
import torch
from diagnose.live._device import Device

device, data = Device.of_process(), torch.randn(4096, 4096, device="cuda")
device = Device(torch.cuda)
seen, told = [], []
for _ in range(30):
    torch.cuda.synchronize()
    began = time.perf_counter_ns()
    for _ in range(10):
        data @ data
    told.append(device.mark())
    torch.cuda.synchronize()
    seen.append(time.perf_counter_ns() - began)
known = [t for t in told[3:] if t > 0]
print(f"event times: median {sorted(known)[len(known) // 2] / 1e6:.3f} ms, "
      f"synchronised {sorted(seen)[len(seen) // 2] / 1e6:.3f} ms; given up {device.given_up_count}")
"""


def main() -> None:
    """Run the job, measure it, end it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the job below must not outlive us
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "loop.py").write_text(LOOP)
        diagnose = [sys.executable, "-m", "diagnose"]
        job = subprocess.Popen(
            [*diagnose, "launch", "-q", "--run", "run", "--", sys.executable, "loop.py", given.device,
             str(given.layers)],
            cwd=folder, start_new_session=True,
        )  # fmt: skip
        try:
            while job.poll() is None and not _steps(diagnose, folder):
                time.sleep(1)
            subprocess.run(
                [*diagnose, "attach", "run", "overhead", "--pairs", str(given.pairs)], cwd=folder, check=False
            )
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    if given.device == "cuda":
        subprocess.run([sys.executable, "-c", CHECK], check=True)


def _steps(diagnose: list[str], folder: Path) -> bool:
    done = subprocess.run(
        [*diagnose, "attach", "run", "live", "--json"], cwd=folder, capture_output=True, text=True, check=False
    )
    rows = json.loads(done.stdout)["ranks"] if done.returncode == 0 else []
    return any((row["step"] or 0) > 100 for row in rows)


if __name__ == "__main__":
    main()
