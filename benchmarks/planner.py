"""`make bench-planner`: predict published runs from one anchor each, next to the naive baseline from the same anchor.

The anchor of a group is the row of median FLOPs per GPU and step (a; the lower one of an even group); (b) is the mean
over every choice of anchor. The error is never taken on the anchor. Naive: constant MFU from the same anchor. Tables
are read from $DIAGNOSE_VALIDATION. `python benchmarks/planner.py -v TABLE` prints every row of a table.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.validation_rows import ROOT, Row, flop_per_gpu, rows
from diagnose.planner import Calibration, calibrate, predict


class StepTable(NamedTuple):
    """A step-time table: CSV, rows to keep, and the bars for (a) and (b) in percent (None: printed, not gated)."""

    csv: str
    keep: Callable[[Row], bool]
    bars: tuple[float, float] | None


def everything(_: Row) -> bool:
    return True


STEP_TABLES = {
    "llm-foundry": StepTable("mosaicml_llmfoundry", everything, (5, 7)),
    "BLOOM": StepTable("bloom176b_jeanzay", everything, (6, 8)),
    "Narayanan T1": StepTable("narayanan2021_table1", everything, (5, 5)),
    "Narayanan T2": StepTable("narayanan2021_table2", everything, (9, 12)),
    "Korthikanti T5": StepTable("korthikanti2022_table5_time", everything, (8, 8)),
    "torchtitan": StepTable("torchtitan", everything, (9, 10)),
    "Bridge dense": StepTable("megatron_bridge_perf", lambda row: not row.raw["n_experts"], (7, 7)),
    "Megatron README": StepTable("megatron_lm_readme", everything, (8, 10)),
    "nanotron": StepTable("nanotron_ultrascale", everything, (15, 25)),
    "MoE": StepTable("megatron_bridge_perf", lambda row: bool(row.raw["n_experts"]), (12, 15)),
    "Llama 3": StepTable("llama3_table4", everything, None),
}


class Errors(NamedTuple):
    """Mean absolute error in percent for the median anchor and over all anchors; test rows; the rows behind (a)."""

    median_anchor: float
    every_anchor: float
    tested: int
    signed: list[tuple[Row, float]]


def groups(found: Iterable[Row]) -> dict[tuple[str, ...], list[Row]]:
    by_key: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in found:
        by_key[row.key].append(row)
    return by_key


def median_row(group: list[Row]) -> Row:
    """The row of (lower) median FLOPs per GPU and step; ties in the order of the table."""
    ordered = sorted(group, key=lambda row: (flop_per_gpu(row), row.number))
    return ordered[(len(ordered) - 1) // 2]


class Planner:
    """Step seconds after calibration on one anchor (cached: every row is an anchor once)."""

    def __init__(self) -> None:
        self.cache: dict[int, Calibration] = {}

    def __call__(self, anchor: Row, row: Row) -> float:
        if id(anchor) not in self.cache:
            assert anchor.step_s
            self.cache[id(anchor)] = calibrate(anchor.job, {"step_ns": anchor.step_s * 1e9})
        return predict(row.job, self.cache[id(anchor)]).step_s


def naive(anchor: Row, row: Row) -> float:
    """Constant MFU from the same anchor."""
    assert anchor.step_s
    return anchor.step_s * flop_per_gpu(row) / flop_per_gpu(anchor)


def table_errors(found: list[Row], model: Callable[[Row, Row], float]) -> Errors | None:
    """Errors of a table under the anchor protocol; None without a group of two."""
    by_all, signed = [], []
    for group in groups(found).values():
        if len(group) < 2:
            continue
        for anchor in group:
            errors = [(row, model(anchor, row) / (row.step_s or 1) - 1) for row in group if row is not anchor]
            by_all += [abs(error) for _, error in errors]
            if anchor is median_row(group):
                signed += errors
    if not signed:
        return None
    return Errors(100 * fmean(abs(error) for _, error in signed), 100 * fmean(by_all), len(signed), signed)


def step_tables() -> dict[str, list[Row]]:
    """Usable rows of every step-time table."""
    return {
        label: [row for row in rows(table.csv)[0] if row.step_s and not row.oom and table.keep(row)]
        for label, table in STEP_TABLES.items()
    }


def print_steps(verbose: set[str]) -> None:
    print("step time, mean absolute error in percent: (a) median anchor, (b) every anchor")
    print(f"{'table':18}{'rows':>6}{'test':>6}{'a':>8}{'b':>8}{'naive a':>9}{'naive b':>9}   bar a / b")
    for label, found in step_tables().items():
        mine, base = table_errors(found, Planner()), table_errors(found, naive)
        if mine is None or base is None:
            print(f"{label:18}{len(found):6}     no group with a test row")
            continue
        bars = STEP_TABLES[label].bars
        passed = bars and mine.median_anchor <= bars[0] and mine.every_anchor <= bars[1]
        below = mine.median_anchor < base.median_anchor and mine.every_anchor < base.every_anchor
        verdict = "not gated" if bars is None else f"{bars[0]} / {bars[1]} {'' if passed and below else 'MISSED'}"
        print(
            f"{label:18}{len(found):6}{mine.tested:6}{mine.median_anchor:8.1f}{mine.every_anchor:8.1f}"
            f"{base.median_anchor:9.1f}{base.every_anchor:9.1f}   {verdict}"
        )
        if label in verbose:
            print_rows(mine)


def print_rows(errors: Errors) -> None:
    for row, error in sorted(errors.signed, key=lambda pair: (pair[0].key, pair[0].number)):
        layout, train = row.job.layout, row.job.train
        print(
            f"  {row.number:4} {row.raw['model'][:24]:24} {'/'.join(row.key)[:44]:44} tp{layout.tp} pp{layout.pp} "
            f"v{layout.vpp} cp{layout.cp} ep{layout.ep} dp{layout.dp} b{train.micro_batch} m{row.job.microbatches} "
            f"s{row.job.model.seq_len}: {row.step_s:.3f} s {100 * error:+.1f} %"
        )


def main() -> None:
    if not ROOT.is_dir():
        print(f"no validation tables in {ROOT}; set DIAGNOSE_VALIDATION to the folder that holds them")
        return
    from benchmarks.planner_links import print_links, print_speed
    from benchmarks.planner_memory import print_memory, print_ranking
    from benchmarks.planner_pairs import print_pairs

    arguments = sys.argv[1:]
    print_steps(set(arguments[1:]) if arguments[:1] == ["-v"] else set())
    print_memory()
    print_ranking()
    print_pairs()
    print_links()
    print_speed()


if __name__ == "__main__":
    main()
