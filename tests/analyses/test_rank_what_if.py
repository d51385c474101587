"""Replays of ranks that meet in collectives: injected faults cost what they cost the job, not what ranks waited."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from diagnose import pipeline
from fixtures.simulate.files import write
from fixtures.simulate.job import Faults, Job, Layout, Model, Schedule

SMALL = Model(layers=2, hidden=2048, heads=16, ffn=8192, seq_len=1024)
HEALTHY = Job("ranks", "four ranks", model=SMALL, layout=Layout(dp=4), schedule=Schedule(steps=3, jitter_ratio=0.0))
SLOW = Faults(slow_rank=2, slow_ratio=1.3)


@cache
def replayed(job: Job, ranks: int | None = None) -> list[dict[str, Any]]:
    """Rows of `rank_what_if` of a simulated job."""
    with TemporaryDirectory() as folder:
        write(job, Path(folder), ranks=ranks)
        tables = pipeline.derive(pipeline.read([folder], 1), wanted={"rank_what_if"})
    return list(tables["rank_what_if"].to_pylist())


def gain_ns(found: list[dict[str, Any]], fixed: str, **where: object) -> int:
    """Gain of one fix; 0 where it was not replayed."""
    rows = [r for r in found if r["fixed"] == fixed and all(r[k] == v for k, v in where.items())]
    return int(rows[0]["gain_ns"]) if rows else 0


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_slow_rank(strategy: str) -> None:
    """Rank 2 computes 1.3 times as long: being like the others wins what it costs, and compute is why."""
    job = replace(HEALTHY, layout=Layout(dp=4, strategy=strategy))
    good = replayed(job)
    bad = replayed(replace(job, faults=SLOW))
    loss = bad[0]["step_ns"] - good[0]["step_ns"]

    assert good[0]["error_ratio"] < 1e-3 and bad[0]["error_ratio"] < 1e-3
    assert loss > 0.1 * good[0]["step_ns"] and gain_ns(bad, "rank", rank=2) == pytest.approx(loss, rel=0.02)
    assert gain_ns(bad, "rank_part", rank=2, part="compute") == pytest.approx(loss, rel=0.02)
    assert all(gain_ns(bad, "rank_part", rank=2, part=p) < 0.05 * loss for p in ("input", "host", "gc", "begin"))
    assert all(gain_ns(bad, "rank", rank=r) < 0.02 * loss for r in (0, 1, 3)), "the ranks that wait are not at fault"


def test_a_healthy_job_gains_nothing() -> None:
    """Equal ranks: nothing to win from making them alike."""
    found = replayed(HEALTHY)

    assert gain_ns(found, "balance") < 0.001 * found[0]["step_ns"]
    assert all(r["gain_ns"] < 0.001 * found[0]["step_ns"] for r in found if r["fixed"] in ("rank", "group"))


def test_a_stalled_loader() -> None:
    """All ranks wait for data: without it the job gains the stall once, not once per rank."""
    bad = replayed(replace(HEALTHY, faults=Faults(loader_stall_ns=6_000_000)))
    good = replayed(HEALTHY)

    loss = bad[0]["step_ns"] - good[0]["step_ns"]
    assert gain_ns(bad, "part", part="input") == pytest.approx(loss, rel=0.05)


def test_a_missing_rank_leaves_the_job_unknown() -> None:
    """Three of four ranks: whoever is missing may be the slowest."""
    (row,) = replayed(HEALTHY, ranks=3)

    assert row["gain_ns"] is None and "lack a rank" in row["reason"]


def test_one_rank_has_nothing_to_replay() -> None:
    assert replayed(HEALTHY, ranks=1) == []


@pytest.mark.parametrize(("kind", "rank"), [("ddp", 1), ("fsdp2", 2), ("tp", 3), ("all_to_all", 1)])
def test_real_loops_with_a_rank_that_sleeps_80_ms(kind: str, rank: int) -> None:
    """Gloo on shared cores is noisy: within a fifth of what was injected, on the right rank, on the host's account."""
    folder = Path(__file__).parents[2] / "fixtures" / "gloo_slow_rank" / f"{kind}_slow"
    tables = pipeline.derive(pipeline.read([str(folder)], 1), wanted={"rank_what_if"})
    found = tables["rank_what_if"].to_pylist()

    assert found[0]["error_ratio"] < 0.01
    assert gain_ns(found, "rank", rank=rank) == pytest.approx(80e6, rel=0.2)
    assert gain_ns(found, "rank_part", rank=rank, part="host") > 0.8 * gain_ns(found, "rank", rank=rank)
    assert all(gain_ns(found, "rank", rank=r) < 10e6 for r in range(4) if r != rank)


@pytest.mark.parametrize("late_ns", [300_000, 2_000_000])
def test_threads_that_note_late_that_a_call_ended(late_ns: int) -> None:
    """On shared cores the training thread may go on before the thread that moved the data is scheduled again."""
    read = pipeline.read([str(Path(__file__).parents[2] / "fixtures" / "gloo_slow_rank" / "ddp_slow")], 1)
    events = read["events"]
    moves = pc.starts_with(events["name"].cast(pa.string()), "gloo:")
    column = events.schema.get_field_index("dur_ns")
    longer = pc.if_else(moves, pc.add(events["dur_ns"], late_ns), events["dur_ns"])
    late = read | {"events": events.set_column(column, events.schema.field("dur_ns"), longer)}

    found = pipeline.derive(late, wanted={"rank_what_if"})["rank_what_if"].to_pylist()

    assert found[0]["error_ratio"] < 0.01
    assert gain_ns(found, "rank", rank=1) == pytest.approx(80e6, rel=0.2)
