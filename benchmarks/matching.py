"""`make bench`: collective calls matched across ranks, by key and by order, and clocks from them; nothing is asserted.

Records are those of a simulated job (tensor, expert, data and pipeline groups) with clocks up to 50 ms apart. Times are
of the processor, as other work on the machine is none of theirs; memory is what the peak grew by.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from diagnose.analyses.clocks import clocks
from diagnose.analyses.matches import matches
from fixtures.simulate.many_ranks import PROGRAM, Faults, Shape, calls
from tests.analyses import many_ranks as many

CALLS_PER_RANK = 2_000


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="*", default=[64, 256, 1024])
    options = parser.parse_args()
    for ranks in options.ranks:
        shape = Shape(tp=8, ep=2, dp=ranks // 32, pp=2)
        apart = {rank: (rank * 37 % 101 - 50) * 1_000_000 for rank in range(ranks)}
        for with_seq in (True, False):
            columns = calls(shape, CALLS_PER_RANK // (len(PROGRAM) - 1), 1, Faults(offset_ns=apart), with_seq=with_seq)
            table, members, files = many.calls(columns), many.members(shape), many.files(shape)
            before_mb = _peak_mb()
            start = process_time()
            matched = matches(table, members, files)
            middle = process_time()
            clocks(table, matched)
            end = process_time()
            share, wrong = many.right_and_wrong(matched["match"], columns["truth"])
            print(
                f"{ranks:6} ranks {table.num_rows:10,} records, by {'sequence' if with_seq else 'order':8}:"
                f" {middle - start:6.2f} s matched, {1e9 * (middle - start) / table.num_rows:6,.0f} ns a record"
                f" ({share:.2%} right, {wrong} wrong), {end - middle:6.2f} s clocks, +{_peak_mb() - before_mb:.0f} MB",
                flush=True,
            )


def _peak_mb() -> float:
    """Most memory that this process has held so far."""
    return getrusage(RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main()
