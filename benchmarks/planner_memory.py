"""Memory after one anchor, out-of-memory verdicts, and the ranking of layouts, on published runs."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean

from benchmarks.planner import groups, median_row
from benchmarks.validation_rows import Row, rows
from diagnose.planner import calibrate, predict
from diagnose.planner.memory import non_torch_bytes

TABLES = {
    "BLOOM": ("bloom176b_jeanzay", False, 7),
    "torchtitan": ("torchtitan", True, 8),
    "nanotron": ("nanotron_ultrascale", True, 12),
}
"""CSV, whether the figure is the allocator's (no context, no communicators), bar in percent."""


def outside(row: Row, allocator: bool) -> float:
    """Bytes that the model counts and an allocator's figure does not hold."""
    return non_torch_bytes(row.job) if allocator else 0.0


def memory_errors(found: list[Row], allocator: bool) -> tuple[float, float, float, int]:
    """Mean absolute error over anchors (percent), share inside the interval, the same without any anchor, tests."""
    errors, inside = [], []
    for group in groups(found).values():
        for anchor in group:
            given = {"memory_bytes": (anchor.memory_bytes or 0) + outside(anchor, allocator)}
            calibration = calibrate(anchor.job, given)
            for row in group:
                if row is not anchor and row.memory_bytes:
                    each = predict(row.job, calibration)
                    extra = outside(row, allocator)
                    errors.append(abs((each.memory.total - extra) / row.memory_bytes - 1))
                    inside.append(each.memory_low_bytes <= row.memory_bytes + extra <= each.memory_high_bytes)
    blind = []
    for row in found:
        each, peak = predict(row.job), (row.memory_bytes or 0) + outside(row, allocator)
        blind.append(each.memory_low_bytes <= peak <= each.memory_high_bytes)
    return 100 * fmean(errors), fmean(inside), fmean(blind), len(errors)


def out_of_memory(found: list[Row]) -> tuple[int, int, int]:
    """Out-of-memory rows called right from the group's median anchor, such rows, false verdicts on rows that ran."""
    right = total = false = 0
    for key, group in groups(row for row in found if row.memory_bytes and not row.oom).items():
        anchor = median_row(group)
        calibration = calibrate(anchor.job, {"memory_bytes": anchor.memory_bytes})
        for row in found:
            if row.key != key or row is anchor:
                continue
            says = predict(row.job, calibration).fits is False
            if row.oom:
                right, total = right + says, total + 1
            elif row.memory_bytes:
                false += says
    return right, total, false


def print_memory() -> None:
    print("\nmemory after one anchor, mean over anchors")
    print(f"{'table':18}{'rows':>6}{'tests':>7}{'error %':>9}{'inside':>8}{'inside, no anchor':>19}   bar")
    for label, (name, allocator, bar) in TABLES.items():
        found = [row for row in rows(name)[0] if row.memory_bytes and not row.oom]
        error, inside, blind, tests = memory_errors(found, allocator)
        missed = "" if error <= bar and inside >= 0.9 else "MISSED"
        print(f"{label:18}{len(found):6}{tests:7}{error:9.1f}{inside:8.0%}{blind:19.0%}   {bar} % {missed}")
    right, total, false = out_of_memory(rows("bloom176b_jeanzay")[0])
    print(f"BLOOM out of memory: {right} of {total} called, {false} false   bar: 5 of 6, none false")


def ranking(found: list[Row]) -> list[tuple[float, int, int]]:
    """Per group of at least three layouts: top-1 regret, pairs ordered right and wrong (pairs over 3 % apart)."""
    steps = [row for row in found if row.step_s and not row.oom]
    by_model: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in steps:
        model = row.job.model
        by_model[model.layers, model.hidden, model.heads, row.job.train.global_batch, row.key[-1]].append(row)
    anchors = {
        key: calibrate(median_row(group).job, {"step_ns": (median_row(group).step_s or 0) * 1e9})
        for key, group in groups(steps).items()
    }
    result = []
    for group in by_model.values():
        if len({(row.job.layout, row.job.train.micro_batch) for row in group}) < 3:
            continue
        said = [predict(row.job, anchors[row.key]).step_s for row in group]
        true = [row.step_s or 0.0 for row in group]
        right = wrong = 0
        for i in range(len(group)):
            for j in range(i):
                if max(true[i], true[j]) > 1.03 * min(true[i], true[j]):
                    agrees = (true[i] - true[j]) * (said[i] - said[j]) > 0
                    right, wrong = right + agrees, wrong + (not agrees)
        result.append((true[said.index(min(said))] / min(true) - 1, right, wrong))
    return result


def print_ranking() -> None:
    found = ranking(rows("bloom176b_jeanzay")[0])
    right, wrong = sum(group[1] for group in found), sum(group[2] for group in found)
    regret, tau = fmean(group[0] for group in found), (right - wrong) / (right + wrong)
    print(f"\nranking on BLOOM: {len(found)} groups, mean top-1 regret {regret:.1%} (bar 3 %), ", end="")
    print(f"Kendall tau {tau:.2f} over {right + wrong} pairs more than 3 % apart (bar 0.5)")
