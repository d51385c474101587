"""Marks of pipeline work in traces: what names say, when a stage worked, and ranges that are no pipeline's."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.analyses._pipeline_marks import Said, read_name
from diagnose.analyses._pipeline_places import pipeline_places
from diagnose.analyses.bubbles import bubbles
from diagnose.analyses.stage_work import stage_work
from fixtures.simulate import pipelines
from fixtures.simulate.pipelines import MS, Done, Pipeline
from tests.rules.build import table

EPOCH = 1_700_000_000_000_000_000
MEGATRON = {"F": "megatron/core/pipeline_parallel/schedules.py(205): forward_step",
            "B": "/opt/megatron/core/pipeline_parallel/schedules.py(371): backward_step"}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("PP:3F12", [Said(0, "forward", 3, -1, 12)]),
        ("PP:0I2", [Said(0, "backward_input", 0, -1, 2)]),
        ("PP:0W2", [Said(0, "weight", 0, -1, 2)]),
        ("PP:(1F4;6B0)OVERLAP_F_B", [Said(0, "forward", 1, -1, 4), Said(0, "backward", 6, -1, 0)]),
        ("Forward 3", [Said(1, "forward", microbatch=3)]),
        ("Backward 0", [Said(1, "backward", microbatch=0)]),
        (MEGATRON["F"], [Said(2, "forward")]),
        (MEGATRON["B"], [Said(2, "backward")]),
        ("torch/distributed/pipelining/stage.py(670): backward_weight_one_chunk", [Said(2, "weight")]),
        (r"C:\env\deepspeed\runtime\pipe\engine.py(720): _exec_forward_pass", [Said(2, "forward")]),
        ("forward_step", [Said(3, "forward")]),
        ("stage 1 backward mb 3", [Said(3, "backward", 1, -1, 3)]),
        ("stage2/chunk1/fwd/4", [Said(3, "forward", 2, 1, 4)]),
        ("PP:1SEND_F0", []), ("PP:2UNSHARD", []), ("forward_prefetch", []), ("FSDP::pre_forward", []),
        ("megatron/core/pipeline_parallel/schedules.py(1100): forward_backward_no_pipelining", []),
        ("DistributedDataParallel.forward", []), ("MyModel: forward", []), ("feedforward", []), ("Forwarder 3", []),
    ],
)  # fmt: skip
def test_what_a_name_says(name: str, said: list[Said]) -> None:
    assert list(read_name(name)) == said


def marked(done: list[Done], name: Any, kind: str = "annotation", shift_ns: int = 0) -> list[dict[str, Any]]:
    """Marks of simulated work, `name(piece)`; rank = stage."""
    return [
        {"event_id": i, "rank": d.stage, "file": d.stage, "kind": kind, "name": name(d), "thread": 1, "process": 1,
         "ts_ns": EPOCH + d.start_ns + shift_ns * d.stage, "dur_ns": d.end_ns - d.start_ns}
        for i, d in enumerate(done)
    ]  # fmt: skip


def steps(stages: int) -> Any:
    rows = [{"rank": r, "step": 5, "host_ts_ns": EPOCH - MS, "host_dur_ns": 10**11} for r in range(stages)]
    return table("steps", rows)


def group(*ranks: int, dim: str = "pp") -> Any:
    return table("groups", [{"group": "1", "size": len(ranks), "ranks": list(ranks), "dim": dim}])


def phase(done: Done) -> str:
    return f"PP:{done.stage + 4 * done.chunk}{done.phase}{done.microbatch}"


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zb1p"])
def test_torch_marks_tell_schedule_and_bubble(schedule: str) -> None:
    job = Pipeline(schedule, 4, 8, 2 if schedule == "interleaved" else 1)
    events = table("events", marked(pipelines.run(job), phase))
    (row,) = bubbles(stage_work(events=events, steps=steps(4))).to_pylist()

    assert row["schedule"] == schedule
    assert row["step"] == 5
    assert row["bubble_ns"] == pytest.approx(row["law_ns"], abs=20)


def test_frames_count_micro_batches_and_need_a_pipeline_group() -> None:
    done = pipelines.run(Pipeline("1f1b", 4, 8))
    events = table("events", marked(done, lambda d: MEGATRON[d.phase], "python"))
    known = {"events": events, "steps": steps(4)}
    (row,) = bubbles(stage_work(**known, groups=group(0, 1, 2, 3))).to_pylist()
    assert (row["schedule"], row["microbatches_count"]) == ("1f1b", 8)

    assert stage_work(**known, groups=group(0, 1, 2, 3, dim="dp")).num_rows == 0, "no pipeline, only the same function"
    assert stage_work(**known).num_rows == 0
    assert stage_work(**known, groups=group(0)).num_rows == 0


def test_frames_of_interleaved_stages_are_told_by_their_order() -> None:
    done = pipelines.run(Pipeline("interleaved", 4, 8, 2))
    events = table("events", marked(done, lambda d: MEGATRON[d.phase], "python"))
    (row,) = bubbles(stage_work(events=events, steps=steps(4), groups=group(0, 1, 2, 3))).to_pylist()
    assert (row["schedule"], row["microbatches_count"], row["chunks_count"]) == ("interleaved", 8, 2)
    assert row["bubble_ns"] == pytest.approx(row["law_ns"], abs=20)


def test_groups_of_the_first_and_last_stage_are_no_pipelines() -> None:
    rows = [(0, 7), (0, 2, 4, 7), (1, 3, 5, 6), (1, 6), (0, 1), (2, 3)]
    given = [
        {"group": str(i), "size": len(r), "ranks": list(r), "dim": "dp" if i > 3 else "pp"} for i, r in enumerate(rows)
    ]
    assert pipeline_places(table("groups", given)) == {
        0: (0, 0), 2: (1, 0), 4: (2, 0), 7: (3, 0), 1: (0, 1), 3: (1, 1), 5: (2, 1), 6: (3, 1),
    }  # fmt: skip


def test_the_group_gives_the_stage_whatever_the_ranks_are() -> None:
    done = [d._replace(stage=3 - d.stage) for d in pipelines.run(Pipeline("1f1b", 4, 8))]
    events = table("events", marked(done, lambda d: MEGATRON[d.phase], "python"))
    work = stage_work(events=events, steps=steps(4), groups=group(3, 2, 1, 0))
    assert {(row["stage"], row["rank"]) for row in work.to_pylist()} == {(n, 3 - n) for n in range(4)}


def test_ranges_of_a_job_without_pipeline_are_no_stages() -> None:
    rows = [
        {"rank": r, "kind": "annotation", "name": name, "ts_ns": EPOCH + MS * i, "dur_ns": MS}
        for r in range(4)
        for i, name in enumerate(("forward", "backward") * 3)
    ]
    assert stage_work(events=table("events", rows), steps=steps(4)).num_rows == 0


def test_clocks_are_brought_together() -> None:
    """Each clock is 30 ms behind the one before: uncorrected, stages would work before their input is there."""
    events = table("events", marked(pipelines.run(Pipeline("1f1b", 4, 8)), phase, shift_ns=-30 * MS))
    clocks = table("clocks", [{"rank": r, "reference": 0, "offset_ns": 30 * MS * r} for r in range(4)])
    (row,) = bubbles(stage_work(events=events, steps=steps(4), clocks=clocks)).to_pylist()
    assert abs(row["transfer_ns"]) <= 20


def test_a_device_works_when_its_kernels_run_not_when_the_host_marks() -> None:
    """The host is through in 1 ms per mark; kernels run later, one after the other, with a receive before."""
    rows, kernels = [], []
    for i, name in enumerate(("PP:0F0", "PP:0F1", "PP:0B0")):
        rows.append({"rank": 0, "kind": "annotation", "name": name, "ts_ns": EPOCH + i * MS, "dur_ns": MS})
        for j, kind in enumerate(("comm", "compute", "compute")):
            begun = EPOCH + 100 * MS + 30 * MS * i + 10 * MS * j
            kernels.append({"rank": 0, "device": 0, "class": kind, "launch_ns": EPOCH + i * MS + 1000 * j,
                            "ts_ns": begun, "dur_ns": 9 * MS})  # fmt: skip
    work = stage_work(events=table("events", rows), steps=steps(1), kernels=table("kernels", kernels)).to_pylist()
    assert [(r["ts_ns"] - EPOCH, r["dur_ns"]) for r in work] == [
        (110 * MS, 19 * MS), (140 * MS, 19 * MS), (170 * MS, 19 * MS),
    ]  # fmt: skip


def exchanged(job: Pipeline) -> dict[str, Any]:
    """Kernels and exchanges of a simulated pipeline on devices: three kernels a piece, sends and receives around it."""
    kernels: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    last = job.stages - 1
    for order, d in enumerate(pipelines.run(job)):
        launch = EPOCH + 1000 * order
        exchanges = [(d.stage > 0, -1, 3), (d.stage < last, 1, 900)] if d.phase == "F" else [
            (d.stage < last, 1, 3), (d.stage > 0, -1, 900)
        ]  # fmt: skip
        calls += [
            {"rank": d.stage, "step": 5, "op": "send" if late > 3 else "recv", "dim": "pp", "launch_ns": launch + late,
             "peer": d.stage + way, "ts_ns": EPOCH, "dur_ns": MS}
            for there, way, late in exchanges if there
        ]  # fmt: skip
        third = (d.end_ns - d.start_ns) // 3
        for i in range(3):
            kernels.append(
                {"rank": d.stage, "step": 5, "device": 0, "class": "compute", "launch_ns": launch + 100 * (i + 1),
                 "phase": {"F": "forward", "B": "backward"}[d.phase], "ts_ns": EPOCH + d.start_ns + i * third,
                 "dur_ns": third if i < 2 else d.end_ns - d.start_ns - 2 * third}
            )  # fmt: skip
        kernels.append(kernels[-1] | {"launch_ns": launch + 950, "dur_ns": 1000, "ts_ns": EPOCH + d.end_ns - 1000})
    return {"kernels": table("kernels", kernels), "collectives": table("collectives", calls)}


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_sends_and_receives_alone_tell_schedule_and_bubble(schedule: str) -> None:
    known = {"events": table("events", []), "steps": steps(4), **exchanged(Pipeline(schedule, 4, 8))}
    (row,) = bubbles(stage_work(**known, groups=group(0, 1, 2, 3))).to_pylist()

    assert (row["schedule"], row["microbatches_count"]) == (schedule, 8)
    assert row["bubble_ns"] == pytest.approx(row["law_ns"], abs=20)
    assert stage_work(**known, groups=group(0, 1, 2, 3, dim="dp")).num_rows == 0, "sends of something else"


def test_a_step_with_more_forwards_than_backwards_is_not_told() -> None:
    known = {"events": table("events", []), "steps": steps(4), **exchanged(Pipeline("1f1b", 4, 8))}
    kernels = known["kernels"].to_pylist()
    cut = [row for row in kernels if row["phase"] == "forward" or row["launch_ns"] < EPOCH + 10_000]
    known["kernels"] = table("kernels", cut)
    assert stage_work(**known, groups=group(0, 1, 2, 3)).num_rows == 0


def test_a_host_waits_for_its_receive_before_the_first_operator() -> None:
    def event(name: str, start: int, end: int, kind: str = "op") -> dict[str, Any]:
        return {"rank": 0, "kind": kind, "name": name, "ts_ns": EPOCH + start * MS, "dur_ns": (end - start) * MS}

    rows = [
        event("Forward 0", 0, 50, "annotation"), event("c10d::recv_", 0, 1), event("gloo:recv", 0, 20, "annotation"),
        event("aten::mm", 21, 22), event("aten::mm", 40, 41), event("c10d::send", 42, 49),
        event("gloo:recv", 3, 35, "annotation"),
    ]  # fmt: skip
    sent = table("collectives", [{"rank": 0, "op": "p2p"}])
    assert stage_work(events=table("events", rows), steps=steps(1)).num_rows == 0, "anybody may call a range Forward 0"
    (row,) = stage_work(events=table("events", rows), steps=steps(1), collectives=sent).to_pylist()
    assert (row["ts_ns"] - EPOCH, row["dur_ns"]) == (20 * MS, 22 * MS), "a receive posted ahead is no waiting"


def test_without_steps_a_micro_batch_that_comes_again_begins_another() -> None:
    done = pipelines.run(Pipeline("gpipe", 2, 4))
    later = [d._replace(start_ns=d.start_ns + 10**10, end_ns=d.end_ns + 10**10) for d in done]
    events = table("events", marked([*done, *later], lambda d: f"PP:{d.stage}{d.phase}{d.microbatch}"))
    assert [row["step"] for row in bubbles(stage_work(events=events)).to_pylist()] == [0, 1]
