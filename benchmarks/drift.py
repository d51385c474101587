"""Causes of slowing down, put into simulated runs, against what the diagnosis names first: the confusion matrix.

400 runs of 3,000 steps on 8 ranks with one of ten causes at 2 to 30 % of the step, noise with heavy tails, warm-up and
stray stalls, and 400 stationary ones. Passed if the right cause is first in 95 % and at most 1 % of the stationary runs
raise `throughput-drift`.

    python benchmarks/drift.py [--runs 400] [--steps 3000]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from diagnose import engine, pipeline
from diagnose.schema import INGESTED, Tables
from fixtures.simulate.drift import CAUSES, Run, simulate

RULES = {
    "allocator-drift": "fragmentation", "fragmentation-growth": "fragmentation", "memory-creep": "leak",
    "imbalance-growth": "imbalance", "router-collapse": "router_collapse", "link-turned-slow": "link",
    "rank-turned-slow": "rank", "gc-pauses": "gc", "throttled-clocks": "clocks", "input-drift": "input",
    "periodic-stall": "periodic",
}  # fmt: skip
GENERAL = ("throughput-drift", "step-change")
LEAST_RIGHT, MOST_FALSE = 0.95, 0.01


def series(run: Run) -> pa.Table:
    """The run's records as the table that an ingester would make of them."""
    parts = []
    for name, value in run.columns.items():
        ranks, steps = value.shape
        metric = pa.DictionaryArray.from_arrays(pa.array(np.zeros(value.size, np.int32)), pa.array([name]))
        columns = {
            "rank": np.repeat(np.arange(ranks, dtype=np.int32), steps),
            "step": np.tile(np.arange(1, steps + 1), ranks),
            "metric": metric,
            "value": np.ascontiguousarray(value).ravel(),
        }
        parts.append(INGESTED["series"].build(columns))
    return pa.concat_tables(parts).unify_dictionaries()


def named_first(tables: Tables, rules: list[engine.Rule]) -> tuple[str, set[str]]:
    """Cause that the first finding names, and all rules that found something."""
    files = INGESTED["files"].build({"file": [0], "path": ["steps.jsonl"], "kind": ["series"], "status": ["ok"]})
    derived = pipeline.derive({"files": files, **tables})
    found = engine.ranked(engine.evaluate(rules, derived))
    fired = {finding.rule for finding in found}
    specific = [finding for finding in found if finding.rule not in GENERAL and finding.rule in RULES]
    if not specific:
        return ("unexplained" if fired & set(GENERAL) else "none"), fired
    first = specific[0].rule
    leaks = "leak" in derived["slowdowns"]["cause"].to_pylist()
    return ("leak" if first == "gc-pauses" and leaks else RULES[first]), fired


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=400, help="with a cause, and as many without")
    parser.add_argument("--steps", type=int, default=3000)
    given = parser.parse_args()
    rules = [rule for rule in pipeline.rules() if rule.symptom == "drifting_throughput"]
    matrix: dict[str, Counter[str]] = {}
    drifting = 0
    for cause in (*CAUSES, None):
        runs = given.runs if cause is None else given.runs // len(CAUSES)
        for seed in range(runs):
            first, fired = named_first({"series": series(simulate(cause, seed, given.steps))}, rules)
            matrix.setdefault(cause or "none", Counter())[first] += 1
            drifting += cause is None and "throughput-drift" in fired
    _print(matrix)
    caused = sum(sum(matrix[c].values()) for c in CAUSES)
    right = sum(matrix[c][c] for c in CAUSES) / caused
    false = drifting / sum(matrix["none"].values())
    print(f"\nright cause first: {right:.1%} of {caused}; throughput-drift on stationary runs: {false:.1%}")
    return 0 if right >= LEAST_RIGHT and false <= MOST_FALSE else 1


def _print(matrix: dict[str, Counter[str]]) -> None:
    columns = [*CAUSES, "none", "unexplained"]
    print(" " * 16 + " ".join(f"{name[:8]:>8}" for name in columns))
    for truth, counts in matrix.items():
        print(f"{truth:16}" + " ".join(f"{counts[name] or '.':>8}" for name in columns))


if __name__ == "__main__":
    sys.exit(main())
