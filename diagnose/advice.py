"""Which layout would be better, put into a diagnosis: from the facts of the job to the planner, and back to findings.

A plan needs the whole model, the batch, the layout and the GPU; each fact is given (job.toml), read from an input, or
inferred from process groups, and says so. A model is never guessed: where a fact is missing or two facts contradict
each other there is no plan, and `plan_reason` names what to add. Nothing here predicts: `diagnose.planner` does,
calibrated with this run; it is not even imported where the facts do not suffice.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from diagnose import _job_facts
from diagnose._job_facts import Facts
from diagnose._memory_compared import compared
from diagnose.errors import UsageError
from diagnose.findings import Diagnosis, Finding

SHOWN = 5
FAR_RATIO = 3.0
"""Beyond this, measured against modelled step, the job described is not the job that ran (or a recorded step is not an
optimizer step): calibration explains a factor of 2 at most, its bounds in `planner.calibrate`."""
LESS_RATIO = 0.01
"""A part that shrinks by at least this share of the current step answers a finding about it."""


class _Answer(NamedTuple):
    """What a candidate must change to answer a finding: parts of the step, or of memory, that shrink."""

    step: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()


_COMM = ("tp", "cp", "ep", "pp", "dp")
ANSWERS: dict[str, _Answer] = {
    "comm-share": _Answer(_COMM),
    "unhidden-gradients": _Answer(("dp",)),
    "sharding-traffic": _Answer(("dp",)),
    "thin-tensor-parallel": _Answer(("tp",)),
    "tensor-parallel-crosses-nodes": _Answer(("tp",)),
    "expert-parallel-crosses-nodes": _Answer(("ep",)),
    "latency-bound-collectives": _Answer(_COMM),
    "exposed-dispatch": _Answer(("ep",)),
    "pipeline-bubble": _Answer(("bubble",)),
    "recompute-overhead": _Answer(("compute",)),
    "low-compute-efficiency": _Answer(("compute",)),
    "activations-dominate": _Answer(memory=("activations",)),
    "state-dominates": _Answer(memory=("parameters", "gradients", "optimizer")),
    "communication-buffers": _Answer(memory=("comm_buffers",)),
    "near-limit": _Answer(memory=("parameters", "gradients", "optimizer", "activations", "comm_buffers")),
}
"""Finding -> what a layout must shrink to answer it. Other findings (a late rank, input) no layout answers."""


def with_plan(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with `plan`, or with the one line why there is none."""
    facts = _job_facts.collect(diagnosis)
    if facts.reason:
        return dataclasses.replace(diagnosis, plan=None, plan_reason=facts.reason)
    try:
        plan = _plan(diagnosis, facts)
    except UsageError as error:
        return dataclasses.replace(diagnosis, plan=None, plan_reason=str(error))
    if isinstance(plan, str):
        return dataclasses.replace(diagnosis, plan=None, plan_reason=plan)
    return dataclasses.replace(diagnosis, plan=plan, plan_reason="")


def _plan(diagnosis: Diagnosis, facts: Facts) -> dict[str, Any] | str:
    from diagnose import _measured_rates
    from diagnose.planner import Job, calibrate, predict, search
    from diagnose.planner.measured import measured_of
    from diagnose.planner.memory import memory_by_part
    from diagnose.planner.written import plan_dict

    job = Job.from_dict(facts.tables)
    measured = measured_of({"step_time": diagnosis.step_time, "memory": diagnosis.memory})
    plain = predict(job)
    if measured.get("step_ns"):
        ratio = (measured["step_ns"] - measured.get("outside_ns", 0)) / plain.step_ns
        if not 1 / FAR_RATIO <= ratio <= FAR_RATIO:
            return (
                f"the run took {ratio:.2g} times what the model gives for this job: a recorded step may not be an "
                "optimizer step, or job.toml describes another job"
            )
        if rates := _measured_rates.of_kinds(diagnosis.tables, job.cluster.gpu):
            measured["kind_ratio"] = rates
    calibration = calibrate(job, measured) if measured else None
    plan = plan_dict(search(job, calibration, SHOWN), calibration)
    plan["facts"] = [dataclasses.asdict(fact) for fact in facts.known]
    plan["gpu_memory_bytes"] = job.cluster.gpu_memory_bytes
    plan["uncalibrated_step_ns"] = plain.step_ns
    if "memory_parts" in diagnosis.tables:
        plan["memory_compared"] = compared(diagnosis.tables["memory_parts"].to_pylist(), memory_by_part(job))
    for candidate in (*plan["candidates"], *plan["one_change"]):
        candidate["answers"] = _answered(diagnosis.findings, plan["current"], candidate["prediction"])
    return plan


def _answered(findings: list[Finding], current: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Rules whose findings this candidate makes smaller."""
    before, after = (
        {part["part"]: part["dur_ns"] for part in each["parts"]} | {"whole": each["step_ns"]}
        for each in (current, other)
    )
    kept, needed = current["memory"], other["memory"]
    found = []
    for rule in dict.fromkeys(finding.rule for finding in findings):
        answer = ANSWERS.get(rule, _Answer())
        saved_ns = sum(before[part] - after[part] for part in answer.step)
        saved_bytes = sum(kept[f"{part}_bytes"] - needed[f"{part}_bytes"] for part in answer.memory)
        if saved_ns > LESS_RATIO * before["whole"] or saved_bytes > LESS_RATIO * current["memory_total_bytes"]:
            found.append(rule)
    return found
