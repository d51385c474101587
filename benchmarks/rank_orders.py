"""`make bench-ranks`: what is told about simulated jobs of up to 1,024 ranks, for every order of their dimensions.

Told with descriptions, with a given layout, and with neither (traffic alone): groups whose dimension is right, unknown
or wrong, and node spans that are exact. Then, at full size, pairs that hold under faults of numbering and lost rows,
and clocks up to 50 ms and 50 ppm apart that come back inside the stated error. Exit code 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import permutations
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from diagnose.analyses.clocks import clocks
from diagnose.analyses.groups import groups
from diagnose.analyses.matches import matches
from diagnose.schema import INGESTED
from fixtures.simulate.many_ranks import DESCRIPTIONS, DIMS, Faults, Shape, calls
from tests.analyses import many_ranks as many
from tests.analyses.rows import build

PER_NODE = 8
SIZES = {64: (2, 2, 2, 4, 2), 256: (4, 2, 2, 4, 4), 1024: (4, 2, 4, 4, 8)}
"""Ranks -> sizes of tp, cp, ep, dp, pp."""
NUMBERING = ("doubled_ranks", "repeated_ranks", "restarted_ranks", "skipped_ranks")


def told(shape: Shape, traffic: pa.Table) -> Counter[tuple[str, str]]:
    """(evidence, right | unknown | wrong | span wrong) -> groups."""
    bare = many.members(shape)
    described = build("members", [{**row, "description": DESCRIPTIONS[row["group"][:2]]} for row in bare.to_pylist()])
    sizes = {f"layout.{dim}": getattr(shape, dim) * (shape.ep if dim == "dp" else 1) for dim in DIMS}
    nodes = {"cluster.gpus_per_node": PER_NODE}
    given = {**sizes, "layout.rank_order": "-".join(shape.order), **nodes}
    found: Counter[tuple[str, str]] = Counter()
    for evidence, members, settings in (
        ("description", described, nodes),
        ("layout", bare, given),
        ("traffic", bare, nodes),
    ):
        rows = [{"key": key, "value": str(value)} for key, value in settings.items()]
        for row in groups(members, traffic, build("settings", rows)).to_pylist():
            right = row["dim"] == row["group"][:2]
            answer = "right" if right else "unknown" if row["dim_source"] == "unknown" else "wrong"
            found[evidence, answer] += 1
            found[evidence, "span wrong"] += row["node_count"] != len({rank // PER_NODE for rank in row["ranks"]})
    return found


def traffic_of(shape: Shape) -> pa.Table:
    """Two layers of the job as `calls`, sends and receives by name."""
    columns = calls(shape, 2, 1)
    op = [way or name for name, way in zip(columns["op"].tolist(), columns["direction"].tolist(), strict=True)]
    return INGESTED["calls"].build(
        {
            "rank": columns["rank"], "group": pa.array(columns["group"].tolist(), pa.string()), "op": pa.array(op),
            "seq": columns["seq"], "size_bytes": columns["size_bytes"],
            "peer": np.ma.array(columns["peer"], mask=columns["peer"] < 0),
        }
    )  # fmt: skip


def paired(shape: Shape, faults: Faults, layers: int, **how: bool) -> tuple[float, int, int, float]:
    """(share of rows put together rightly, instances that mix true ones by a key and without, worst clock error over
    its bar)."""
    columns = calls(shape, layers, 5, faults)
    table = many.calls(columns, **how)
    matched = matches(table, many.members(shape), many.files(shape))
    share, wrong = many.right_and_wrong(matched["match"], columns["truth"])
    by_key = pc.is_in(matched["level"].cast(pa.string()), pa.array(["comm_id", "seq"])).combine_chunks()
    keyed = many.right_and_wrong(
        matched["match"].filter(by_key), columns["truth"][np.asarray(by_key.fill_null(False))]
    )[1]
    worst = max(_over_bar(row, faults) for row in clocks(table, matched).to_pylist())
    return share, keyed, wrong - keyed, worst


def _over_bar(row: dict[str, Any], faults: Faults) -> float:
    """Error of a rank's corrected clock over the stated error, where the offset holds."""
    moment = row["at_ns"] - 10**18
    shown = {
        r: faults.offset_ns.get(r, 0) + faults.drift_ratio.get(r, 0) * moment for r in (row["rank"], row["reference"])
    }
    away = abs(shown[row["rank"]] - shown[row["reference"]] + row["offset_ns"])
    return float(away / (row["error_ns"] + 1))


def orders_of(ranks: int, orders: list[tuple[str, ...]]) -> int:
    """Print what is told of every order; how much of it is wrong."""
    found: Counter[tuple[str, str]] = Counter()
    start = process_time()
    for order in orders:
        shape = Shape(*SIZES[ranks], order=order)
        found += told(shape, traffic_of(shape))
    for evidence in ("description", "layout", "traffic"):
        said = ", ".join(f"{found[evidence, a]:,} {a}" for a in ("right", "unknown", "wrong", "span wrong"))
        print(f"{ranks:5} ranks, {len(orders)} orders, by {evidence:11}: {said}", flush=True)
    print(f"{'':5} {process_time() - start:.0f} s", flush=True)
    return sum(count for (_, answer), count in found.items() if "wrong" in answer)


def faults_of(ranks: int, order: tuple[str, ...]) -> int:
    """Print what holds under each fault; how much is wrong."""
    shape = Shape(*SIZES[ranks], order=order)
    random = np.random.default_rng(ranks)
    offset = {r: int(v) for r, v in enumerate(random.integers(-50_000_000, 50_000_000, ranks))}
    drift = {r: float(v) for r, v in enumerate(random.uniform(-50e-6, 50e-6, ranks))}
    some = tuple(random.choice(ranks, ranks // 8, replace=False).tolist())
    faults = {name: Faults(offset_ns=offset, **{name: some}) for name in NUMBERING}
    faults |= {"lost rows": Faults(offset_ns=offset, lost_ratio=0.01)}
    faults |= {"drift": Faults(offset_ns=offset, drift_ratio=drift)}
    bad = 0
    for name, fault in faults.items():
        for key, how in (("sequence", {}), ("Comms Id", {"comm_id": True})):
            share, wrong, below, worst = paired(shape, fault, 24, **how)
            bad += (share < 0.99) + wrong + (worst > 1)
            said = f"{share:.2%} right, {wrong} wrong by a key, {below} by order"
            clock = f"clocks at most {worst:.2f} of their bar off"
            print(f"{ranks:5} ranks, {name:15} {key}: {said}, {clock}", flush=True)
    return bad


def main() -> int:
    """Print the tables; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="*", choices=SIZES, default=list(SIZES))
    parser.add_argument("--orders", type=int, default=120, help="how many of the 120 orders")
    options = parser.parse_args()
    orders = list(permutations(DIMS))[:: max(120 // options.orders, 1)]
    bad = sum(orders_of(ranks, orders) + faults_of(ranks, orders[len(orders) // 2]) for ranks in options.ranks)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
