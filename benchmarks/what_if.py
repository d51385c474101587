"""The what-if of a pipeline of 128 workers and 100 micro-batches: time, memory, and whether the slow worker is found.

python -m benchmarks.what_if [--stages 16] [--replicas 8] [--microbatches 100] [--steps 1]
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from diagnose import pipeline
from diagnose.analyses.what_if import what_if
from fixtures.simulate.pipeline_operations import Replicas, operations, write
from fixtures.simulate.pipelines import Pipeline

LINK_NS = 300_000
SLOW = {(3, 5): 1.2}
"""(replica, stage) -> how many times as long it computes."""


def main() -> None:
    """Simulate, replay, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("stages", 16), ("replicas", 8), ("microbatches", 100), ("steps", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    links = {(a, b): LINK_NS for a in range(given.stages) for b in (a - 1, a + 1)}
    even = Replicas(
        Pipeline(stages=given.stages, microbatches=given.microbatches, link_ns=links), given.replicas, steps=given.steps
    )
    slow = Replicas(even.pipeline, given.replicas, steps=given.steps, slow_workers=SLOW)
    with TemporaryDirectory() as folder:
        length = write(slow, Path(folder))
        work = pipeline.derive(pipeline.read([folder], 1), wanted={"stage_work"})["stage_work"]
    begin = time.perf_counter()
    rows = what_if(work).to_pylist()
    took = time.perf_counter() - begin
    slowest = next(row for row in rows if row["fixed"] == "slowest_workers")
    gain = max(row["gain_ns"] for row in rows if row["fixed"] == "worker")
    lost = length - operations(even)[1]
    print(f"{given.stages * given.replicas} workers, {given.microbatches} micro-batches, {work.num_rows:,} operations")
    print(f"{len(rows)} answers in {took:.1f} s, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")
    print(f"replay error {rows[0]['error_ratio']:.2e}; M_W {slowest['explained_ratio']:.3f}, ranks {slowest['ranks']}")
    print(f"injected loss {lost / 1e6:.1f} ms, found {gain / 1e6:.1f} ms")


if __name__ == "__main__":
    main()
