"""`make bench`: this project beside HolisticTraceAnalysis, on the same files in the same run; nothing is asserted.

Each figure is a whole process: wall and CPU seconds and peak memory as the operating system accounts them
(`wait4`), the median of RUNS. HolisticTraceAnalysis comes from PyPI into an environment of its own.
The trace is `df_index_resolver.json.gz` of HolisticTraceAnalysis' own test data ($DIAGNOSE_CORPUS), else the trace
that ships in fixtures/.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from tile import tile

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "benchmarks" / ".work"
CORPUS = Path(os.environ.get("DIAGNOSE_CORPUS", ROOT.parent / "shared" / "corpus"))
FAMOUS = CORPUS / "hta/tests/data/df_index_resolver/df_index_resolver.json.gz"
SHIPPED = ROOT / "fixtures/modded_nanogpt_h100/trace.json.gz"

BREAKDOWN = "SELECT rank, part, dur_ns FROM window_time"
READ = "import sys; from diagnose import pipeline as p; print(sum(t.nbytes for t in p.read(sys.argv[1:]).values()))"
IMPORTS = "import diagnose.pipeline; from diagnose import ingest; ingest.ingesters()"
THEIRS = """
import sys, tempfile, pathlib
from hta.trace_analysis import TraceAnalysis
path = pathlib.Path(sys.argv[1])
analysis = TraceAnalysis(trace_files={0: str(path)}, trace_dir=str(path.parent))
print(analysis.get_temporal_breakdown(visualize=False))
"""


class Cost(NamedTuple):
    """What one process took."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    output: str


def measure(command: list[str], runs: int) -> Cost:
    """Median wall and CPU time and largest peak memory of `runs` processes."""
    costs = [_once(command) for _ in range(runs)]
    return Cost(
        median(c.wall_s for c in costs),
        median(c.cpu_s for c in costs),
        max(c.peak_bytes for c in costs),
        costs[-1].output,
    )


def _once(command: list[str]) -> Cost:
    with (WORK / "stdout").open("wb") as out, (WORK / "stderr").open("wb") as err:
        start = perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=WORK)
        _, status, used = os.wait4(process.pid, 0)
        wall = perf_counter() - start
    if status:
        sys.exit(f"{' '.join(command)[:200]} failed:\n{(WORK / 'stderr').read_text()[-2000:]}")
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, (WORK / "stdout").read_text())


def their_python() -> str:
    """Python of an environment that holds HolisticTraceAnalysis."""
    home = WORK / "hta"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "HolisticTraceAnalysis"], check=True)
        (home / "ready").touch()
    return str(python)


def row(name: str, size_bytes: int, cost: Cost) -> None:
    """One line of the table."""
    print(
        f"  {name:44}{cost.wall_s:8.2f} s wall{cost.cpu_s:8.2f} s cpu{size_bytes / 1e6 / cost.wall_s:8.1f} MB/s"
        f"{cost.peak_bytes / 1e6:8.0f} MB peak",
        flush=True,
    )


def side_by_side(path: Path, runs: int, theirs: str | None) -> None:
    """Load + breakdown by both, and the ratio."""
    size = path.stat().st_size
    print(f"{path.name}: {size / 1e6:.0f} MB of JSON", flush=True)
    ours = measure([sys.executable, "-m", "diagnose", "query", str(path), BREAKDOWN], runs)
    row("diagnose query: load + breakdown", size, ours)
    if theirs:
        other = measure([theirs, "-c", THEIRS, str(path)], 1 if size > 5e8 else runs)
        row("HolisticTraceAnalysis: load + breakdown", size, other)
        faster, memory = other.wall_s / ours.wall_s, ours.peak_bytes / other.peak_bytes
        print(f"  ratio: {faster:.1f} times faster, {memory:.3f} of its memory", flush=True)


def one_core(path: Path, runs: int) -> int:
    """Ingest alone on one core, without the time Python needs for imports; returns the tables' bytes."""
    size = path.stat().st_size
    core = ["taskset", "-c", "0", sys.executable, "-c"]
    imports = measure([*core, IMPORTS], runs)
    read = measure([*core, READ, str(path)], runs)
    row("diagnose: ingest alone, one core", size, read)
    rate = size / 1e6 / (read.cpu_s - imports.cpu_s)
    tables = int(read.output)
    print(
        f"  without imports ({imports.cpu_s:.2f} s): {rate:.0f} MB/s per core; tables {tables / 1e6:.0f} MB", flush=True
    )
    return tables


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--skip-peer", action="store_true", help="do not run HolisticTraceAnalysis")
    parser.add_argument("--large-bytes", type=float, default=1e9)
    options = parser.parse_args()
    WORK.mkdir(exist_ok=True)
    source = FAMOUS if FAMOUS.exists() else SHIPPED
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {source.name}\n")
    theirs = None if options.skip_peer else their_python()
    small = tile(source, WORK / "small.json", 1)
    side_by_side(small, options.runs, theirs)
    one_core(small, options.runs)
    report = measure(
        [sys.executable, "-m", "diagnose", "run", "-q", str(small), "-o", str(WORK / "report")], options.runs
    )
    row("diagnose run, report included", small.stat().st_size, report)
    growth = []
    for size in (options.large_bytes / 4, options.large_bytes):
        path = WORK / f"tiled-{size / 1e6:.0f}MB.json"
        if not path.exists():
            tile(source, path, int(size))
        print()
        side_by_side(path, 1, theirs if size == options.large_bytes else None)
        tables = one_core(path, 1)
        read = measure([sys.executable, "-c", READ, str(path)], 1)
        row("diagnose: ingest alone", path.stat().st_size, read)
        growth.append((read.peak_bytes, tables))
    (peak_a, tables_a), (peak_b, tables_b) = growth
    print(
        f"  ingest peak grows by {(peak_b - peak_a) / 1e6:.0f} MB between the two sizes; "
        f"the tables themselves by {(tables_b - tables_a) / 1e6:.0f} MB"
    )


if __name__ == "__main__":
    main()
