"""Causes put into simulated runs are named, on the right rank and from the right step; ordinary runs name none."""

from __future__ import annotations

import pytest

from benchmarks.drift import series
from diagnose.analyses.slowdowns import slowdowns
from diagnose.analyses.stalls import stalls
from diagnose.analyses.trends import trends
from diagnose.schema import INGESTED
from fixtures.simulate.drift import CAUSES, Run, simulate

STEPS = 1500
SINGLE = {"gc", "periodic"}
LOOKED_AT = [cause for cause in CAUSES if cause not in SINGLE]


def without(run: Run, *names: str) -> Run:
    return Run({name: value for name, value in run.columns.items() if name not in names}, run.truth)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("cause", LOOKED_AT)
def test_cause_is_named_first(cause: str, seed: int) -> None:
    run = simulate(cause, 500 + seed, STEPS)

    moved = trends(series(run))
    found = slowdowns(moved).to_pylist()

    assert found[0]["cause"] == cause, moved.to_pylist()[0]
    assert found[0]["ranks"] == ([run.truth["rank"]] if "rank" in run.truth else None)
    if found[0]["shape"] == "step":
        assert abs(found[0]["from_step"] - run.truth["step"]) <= 60


@pytest.mark.parametrize("seed", range(8))
def test_ordinary_runs_name_no_cause(seed: int) -> None:
    moved = trends(series(simulate(None, 700 + seed, STEPS)))

    assert moved.to_pylist()[0]["shape"] == "level"
    assert slowdowns(moved).num_rows == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_single_long_steps_are_blamed_on_their_part(seed: int) -> None:
    paused = stalls(series(simulate("gc", 500 + seed, STEPS))).to_pylist()
    saved = stalls(series(run := simulate("periodic", 500 + seed, STEPS))).to_pylist()

    pauses = [row for row in paused if row["part"] == "gc"]
    assert len({row["rank"] for row in pauses}) == 8 and len(pauses) > 20
    rhythm = [row for row in saved if row["kind"] == "periodic"]
    assert {row["period_count"] for row in rhythm} == {run.truth["period"]}
    assert {row["rank"] for row in rhythm} == {None} == {row["part"] for row in rhythm}, "no part of it is logged"


def test_without_the_parts_the_cause_stays_unknown_and_says_what_to_collect() -> None:
    run = simulate("input", 501, STEPS)
    bare = Run({"step_ms": run.columns["step_ms"]}, run.truth)

    (found,) = slowdowns(trends(series(bare))).to_pylist()

    assert found["cause"] == "unknown" and "input" in found["collect"] and "clocks" in found["collect"]


def test_without_a_sign_growing_collectives_are_not_blamed_on_a_link() -> None:
    run = without(simulate("link", 501, STEPS), "busbw", "expert_imbalance", "router_entropy")

    (found,) = slowdowns(trends(series(run))).to_pylist()

    assert found["cause"] == "unknown"


def test_a_rank_that_waits_is_not_blamed() -> None:
    """Without parts, a rank's own work is its step without communication: the slow rank has the short collectives."""
    run = simulate("rank", 502, STEPS)
    bare = Run({name: run.columns[name] for name in ("step_ms", "comm_ms")}, run.truth)

    (found,) = slowdowns(trends(series(bare))).to_pylist()

    assert (found["cause"], found["ranks"]) == ("rank", [run.truth["rank"]])


def test_a_part_that_did_not_grow_is_not_called_the_part_that_did() -> None:
    """The hook times input and collections, not compute: a rank whose compute slowed has no part to name."""
    run = simulate("rank", 502, STEPS)
    bare = Run({name: run.columns[name] for name in ("step_ms", "comm_ms", "data_ms", "gc_ms")}, run.truth)

    (found,) = slowdowns(trends(series(bare))).to_pylist()

    assert (found["cause"], found["ranks"], found["part"]) == ("rank", [run.truth["rank"]], None)


def test_a_batch_ramp_is_no_drift() -> None:
    batch = [256] * 400 + [512] * 1200
    rows = [(n, "step_time_ns", 1e8 * b / 256) for n, b in enumerate(batch)]
    rows += [(n, "global_batch_count", float(b)) for n, b in enumerate(batch)]
    table = INGESTED["series"].build({name: list(column) for name, column in zip(
        ("step", "metric", "value"), zip(*rows, strict=True), strict=True)})  # fmt: skip

    job = trends(table).to_pylist()[0]

    assert (job["shape"], job["ramp_count"], job["first_step"]) == ("level", 400, 400)


def test_a_rate_alone_shows_a_slowdown_without_seconds() -> None:
    values = [1000.0] * 600 + [900.0] * 600
    table = INGESTED["series"].build(
        {"step": list(range(1200)), "metric": ["tokens_per_s_per_gpu"] * 1200, "value": values}
    )

    moved = trends(table)
    job = moved.to_pylist()[0]
    (found,) = slowdowns(moved).to_pylist()

    assert (job["shape"], job["timed"], job["from_step"]) == ("step", False, 600)
    assert job["change_ratio"] == pytest.approx(1000 / 900 - 1)
    assert (found["cause"], found["grown_ns"], found["lost_ns"]) == ("unknown", None, 0)


def test_a_resumed_run_keeps_its_order() -> None:
    """The second segment repeats steps 400 to 599 and is slower: the change is at its beginning, not in between."""
    step = [*range(600), *range(400, 1200)]
    segment = [0] * 600 + [1] * 800
    value = [1e9] * 600 + [1.1e9] * 800
    table = INGESTED["series"].build(
        {"step": step, "metric": ["step_time_ns"] * 1400, "value": value, "segment": segment}
    )

    job = trends(table).to_pylist()[0]

    assert (job["shape"], job["from_step"], job["steps_count"]) == ("step", 400, 1400)
