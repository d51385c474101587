"""`make bench-planner`: predict published runs from one anchor each, next to the naive baseline from the same anchor.

The anchor of a group is the row of median FLOPs per GPU and step (a); (b) is the mean over every choice of anchor. The
error is never taken on the anchor. Naive: constant MFU from the same anchor.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import fmean

sys.path.insert(0, str(__import__("pathlib").Path(__file__).parents[1]))
from benchmarks.validation_rows import Row, flop_per_gpu, rows

from diagnose.planner import calibrate, predict

STEP_BARS = {
    "llm-foundry": (5, 7),
    "BLOOM": (6, 8),
    "Narayanan T1": (5, 5),
    "Narayanan T2": (9, 12),
    "Korthikanti T5": (8, 8),
    "torchtitan": (9, 10),
    "Bridge dense": (7, 7),
    "Megatron README": (8, 10),
    "nanotron": (15, 25),
    "MoE": (12, 15),
}


def groups(found: Iterable[Row]) -> dict[tuple[str, ...], list[Row]]:
    by_key: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in found:
        by_key[row.key].append(row)
    return by_key


def median_row(group: list[Row]) -> Row:
    """The row of (lower) median FLOPs per GPU and step."""
    ordered = sorted(group, key=lambda row: (flop_per_gpu(row), row.number))
    return ordered[(len(ordered) - 1) // 2]


def step_errors(anchor: Row, group: list[Row], model: Callable[[Row, Row], float]) -> list[tuple[Row, float]]:
    return [(row, model(anchor, row) / row.step_s - 1) for row in group if row is not anchor]


class Planner:
    """Predictions after calibration on one anchor (cached: every row is an anchor once)."""

    def __init__(self) -> None:
        self.cache: dict[int, object] = {}

    def __call__(self, anchor: Row, row: Row) -> float:
        calibration = self.cache.get(id(anchor))
        if calibration is None:
            calibration = self.cache[id(anchor)] = calibrate(anchor.job, {"step_ns": anchor.step_s * 1e9})
        return predict(row.job, calibration).step_s


def naive(anchor: Row, row: Row) -> float:
    return anchor.step_s * flop_per_gpu(row) / flop_per_gpu(anchor)


def table_errors(found: list[Row], model: Callable[[Row, Row], float], mfu: bool = False):
    """(a) and (b) in percent, test rows, and the signed errors of (a)."""
    flip = (lambda e: 1 / (1 + e) - 1) if mfu else (lambda e: e)
    by_median, by_all, signed = [], [], []
    for group in groups(found).values():
        if len(group) < 2:
            continue
        signed += [(row, flip(error)) for row, error in step_errors(median_row(group), group, model)]
        for anchor in group:
            by_all += [abs(flip(error)) for _, error in step_errors(anchor, group, model)]
    by_median = [abs(error) for _, error in signed]
    if not by_median:
        return None
    return 100 * fmean(by_median), 100 * fmean(by_all), len(by_median), signed


def step_tables() -> dict[str, list[Row]]:
    names = {
        "llm-foundry": "mosaicml_llmfoundry",
        "BLOOM": "bloom176b_jeanzay",
        "Narayanan T1": "narayanan2021_table1",
        "Narayanan T2": "narayanan2021_table2",
        "Korthikanti T5": "korthikanti2022_table5_time",
        "torchtitan": "torchtitan",
        "Megatron README": "megatron_lm_readme",
        "nanotron": "nanotron_ultrascale",
    }
    found = {label: [row for row in rows(name)[0] if row.step_s and not row.oom] for label, name in names.items()}
    bridge = [row for row in rows("megatron_bridge_perf")[0] if row.step_s]
    found["Bridge dense"] = [row for row in bridge if not row.raw["n_experts"]]
    found["MoE"] = [row for row in bridge if row.raw["n_experts"]]
    return found


def main() -> None:
    verbose = set(sys.argv[1:])
    print(f"{'table':18}{'rows':>6}{'test':>6}{'a %':>8}{'b %':>8}{'naive a':>9}{'naive b':>9}   bar a/b")
    for label, found in step_tables().items():
        mfu = False
        mine, base = table_errors(found, Planner(), mfu), table_errors(found, naive, mfu)
        if mine is None or base is None:
            print(label, len(found), "no test rows")
            continue
        bars = STEP_BARS[label]
        print(f"{label:18}{len(found):6}{mine[2]:6}{mine[0]:8.1f}{mine[1]:8.1f}{base[0]:9.1f}{base[1]:9.1f}   {bars[0]} / {bars[1]}")
        if label in verbose:
            for row, error in sorted(mine[3], key=lambda pair: (pair[0].key, pair[0].number)):
                l = row.job.layout
                p = predict(row.job)
                print(" ", row.number, row.raw["model"][-14:], "/".join(row.key)[-26:], f"h{row.job.model.hidden} a{row.job.model.heads} tp{l.tp} pp{l.pp} vpp{l.vpp} cp{l.cp} ep{l.ep} dp{l.dp} b{row.job.train.micro_batch} m{row.job.microbatches} s{row.job.model.seq_len}", f"{row.step_s:.3f}s raw {p.step_s:.3f} {100*error:+.1f}%", " ".join(f"{k}={100*v/p.step_s:.0f}" for k, v in p.step._asdict().items() if v / p.step_s > 0.005))


if __name__ == "__main__":
    main()
