"""`calibrate`: let one measured run correct the model, without believing it knows more than one number can say.

A single step time cannot tell slow products from slow links. So every kind of time has a prior spread, and the residual
is given to the kinds in proportion to spread^2 * their share of the step (the smallest correction that explains the
measurement: one Gauss-Newton step per iteration of a maximum a posteriori estimate). A communication-bound run
therefore corrects communication, a compute-bound one compute. What stays beyond the bounds is carried as one ratio
on the step. Memory in the same way: the residual is shared by activations (relative spread) and buffers and cache
(absolute spread).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Mapping
from typing import Any

from diagnose.errors import UsageError
from diagnose.planner.job import Job
from diagnose.planner.measured import measured_of
from diagnose.planner.memory import peak_memory
from diagnose.planner.prediction import Calibration, model_flop, peak_flop_per_s
from diagnose.planner.step_time import Factors, step_time, wire_kind
from diagnose.planner.traffic import groups_of

SPREAD = {
    "matmul": 0.15,
    "attention": 0.30,
    "elementwise": 0.25,
    "tp": 0.25,
    "cp": 0.40,
    "ep": 0.40,
    "pp": 0.40,
    "dp": 0.40,
    "tp_far": 0.25,
    "cp_far": 0.40,
    "ep_far": 0.40,
    "dp_far": 0.40,
    "host": 0.50,
    "optimizer": 0.40,
}
"""Prior spread (standard deviation of the logarithm) of each kind: products are predictable, networks and hosts
are not."""
BOUND = 2.0
"""A factor stays within this many spreads of 1; the rest of the residual becomes the step ratio."""
ROW_SPREAD = 0.07
"""How far any one layout is from a model of its machine: the accuracy peers publish (Calculon 4 to 9 %, Primus under
10 %, vTrain 8 to 15 %). A run is believed to prior^2 / (prior^2 + ROW_SPREAD^2)."""
FAULT_SHARE, FAULT_SPREAD = 0.425 * 0.017, math.log(3.04)
"""Share of jobs that single faulty workers explain, and how much slower those are: of 3,079 jobs 42.5 % straggle, of
these 1.7 % for that reason, by a factor of 3.04 (what-if analysis of stragglers, OSDI 2025)."""
MEASURES = ("step_ns", "tokens_per_s_per_gpu", "mfu_ratio", "memory_bytes")


def calibrate(job: Job, measured: Any) -> Calibration:
    """The correction that one measured run of `job` implies: any of MEASURES, or a Diagnosis (object or its dict).

    `part_ns` maps parts of the step (compute, tp, cp, ep, pp, dp) to measured ns and is used with `step_ns`;
    `outside_ns` is time of the step that no layout changes; `kind_ratio` maps kinds of SPREAD to measured / modelled
    time of the same work. UsageError on nothing measured or on nonsense.
    """
    measured = _as_measures(measured)
    parts = dict(measured.pop("part_ns", {}))
    kinds = dict(measured.pop("kind_ratio", {}))
    outside = float(measured.pop("outside_ns", 0.0)) * 1e-9
    notes = tuple(measured.pop("notes", ()))
    given = {key: float(value) for key, value in measured.items() if value is not None}
    if (
        not given
        or set(given) - set(MEASURES)
        or any(value <= 0 or not math.isfinite(value) for value in given.values())
    ):
        raise UsageError(f"calibration: found {dict(measured)}; expected positive values of {', '.join(MEASURES)}")
    calibration = Calibration(notes=notes)
    seconds = _measured_step_s(job, given)
    if seconds:
        outside = outside if outside < seconds else 0.0
        known = _from_kinds(job, kinds) | _from_parts(job, parts, set(kinds))
        plain = step_time(job, Factors(**{kind: math.exp(value) for kind, value in known.items()})).total
        residual = math.log((seconds - outside) / plain)
        target = plain * math.exp(residual * trust(job, residual))
        factors = _factors(job, target, known)
        modelled = step_time(job, factors).total
        calibration = dataclasses.replace(
            calibration,
            factors=factors,
            step_ratio=target / modelled,
            step_measured=True,
            outside_s=outside,
            reproduced=(("step_s", seconds, target + outside),),
            notes=(*notes, *_doubt(job, residual)),
        )
    if "memory_bytes" in given:
        calibration = _with_memory(job, calibration, given["memory_bytes"])
    return calibration


def trust(job: Job, residual: float = 0.0) -> float:
    """Share of a run's residual (a logarithm) that is put down to its machine and software, and carried to other
    layouts.

    A run is a usual one, ROW_SPREAD from a perfect model of its machine, or with FAULT_SHARE a faulty one; the farther
    it is from the model, the likelier is a fault, which no other layout has.
    """
    prior = _prior_variance(job)
    fault = _fault_probability(prior, residual)
    usual, faulty = prior + ROW_SPREAD**2, prior + ROW_SPREAD**2 + FAULT_SPREAD**2
    return (1 - fault) * prior / usual + fault * prior / faulty


def _prior_variance(job: Job) -> float:
    """Variance of the logarithm of a step that the spreads of its kinds imply."""
    here = step_time(job).total
    return sum((SPREAD[kind] * _slope(job, Factors(), kind, here) / here) ** 2 for kind in SPREAD)


def _fault_probability(prior: float, residual: float) -> float:
    """Of a run so far from the model, by Bayes' rule over two normal laws."""
    usual, faulty = prior + ROW_SPREAD**2, prior + ROW_SPREAD**2 + FAULT_SPREAD**2
    odds = FAULT_SHARE / (1 - FAULT_SHARE) * math.sqrt(usual / faulty)
    odds *= math.exp(min(700.0, residual**2 / 2 * (1 / usual - 1 / faulty)))
    return odds / (1 + odds)


def _doubt(job: Job, residual: float) -> tuple[str, ...]:
    """One line where the run is so far from its model that it is not carried to other layouts."""
    if _fault_probability(_prior_variance(job), residual) <= 0.5:
        return ()
    ratio = math.exp(residual)
    how = f"{ratio:.1f} times" if ratio > 1 else f"only {ratio:.0%} of"
    return (
        f"the measured step is {how} what the model gives for this machine: check the job description, and look for a "
        "fault before changing the layout; little of the difference is carried to other layouts",
    )


def _measured_step_s(job: Job, given: Mapping[str, float]) -> float | None:
    if "step_ns" in given:
        return given["step_ns"] * 1e-9
    if "tokens_per_s_per_gpu" in given:
        return job.tokens / given["tokens_per_s_per_gpu"] / job.layout.world_size
    if "mfu_ratio" in given:
        return model_flop(job) / given["mfu_ratio"] / job.layout.world_size / peak_flop_per_s(job)
    return None


def _as_measures(measured: Any) -> dict[str, Any]:
    """A mapping of measures, whatever it came as."""
    if hasattr(measured, "to_dict"):
        measured = measured.to_dict()
    if "step_time" in measured or "schema_version" in measured:
        found = measured_of(measured)
        if not found:
            raise UsageError("calibration: the diagnosis has neither a step time nor a memory peak; record one of them")
        return found
    return dict(measured)


def _from_kinds(job: Job, ratios: Mapping[str, float]) -> dict[str, float]:
    """Logarithms of factors that kinds of work imply, measured on their own (products by shape, links by size)."""
    logs = {}
    for name, ratio in ratios.items():
        kind = _kind(job, name)
        if kind in SPREAD and ratio > 0:
            logs[kind] = _believed(kind, ratio)
    return logs


def _kind(job: Job, name: str) -> str:
    """The factor that a measurement of this run speaks about: that of the links its groups use."""
    return wire_kind(name, getattr(groups_of(job), name)) if name in WIRES else name


WIRES = ("tp", "cp", "ep", "dp")
"""Dimensions whose links inside and across a fast domain have factors of their own."""


def _believed(kind: str, ratio: float) -> float:
    """Logarithm of measured / modelled, as far as the prior spread of the kind allows."""
    spread = SPREAD[kind]
    belief = spread**2 / (spread**2 + ROW_SPREAD**2)
    return max(-BOUND * spread, min(BOUND * spread, belief * math.log(ratio)))


def _from_parts(job: Job, parts: Mapping[str, float], known: Container[str] = ()) -> dict[str, float]:
    """Logarithms of factors that measured parts of the step imply, of kinds that are not `known` already."""
    plain = step_time(job)
    logs: dict[str, float] = {}
    for part, kinds in KINDS.items():
        modelled, measured = getattr(plain, part) * 1e9, parts.get(part)
        if measured and modelled > 0:
            logs |= {_kind(job, kind): _believed(kind, measured / modelled) for kind in kinds if kind not in known}
    return logs


KINDS = {
    "compute": ("matmul", "attention", "elementwise"),
    "tp": ("tp",),
    "cp": ("cp",),
    "ep": ("ep",),
    "pp": ("pp",),
    "dp": ("dp",),
}
"""Which factors a measured part of the step speaks about."""


def _factors(job: Job, seconds: float, known: Mapping[str, float], rounds: int = 4) -> Factors:
    """Maximum a posteriori factors for one measured step; factors in `known` (logarithms) stay as measured."""
    logs = dict.fromkeys(SPREAD, 0.0) | dict(known)
    used = {_kind(job, name) for name in WIRES}
    free = [kind for kind in SPREAD if kind not in known and (kind in used or kind.removesuffix("_far") not in WIRES)]
    for _ in range(rounds):
        at = Factors(**{kind: math.exp(value) for kind, value in logs.items()})
        here = step_time(job, at).total
        slope = {kind: _slope(job, at, kind, here) for kind in free}
        scale = sum((SPREAD[kind] * slope[kind]) ** 2 for kind in free)
        missing = seconds - here + sum(slope[kind] * logs[kind] for kind in free)
        for kind in free:
            spread = SPREAD[kind]
            step = spread**2 * slope[kind] * missing / scale if scale else 0.0
            logs[kind] = max(-BOUND * spread, min(BOUND * spread, step))
    return Factors(**{kind: math.exp(value) for kind, value in logs.items()})


def _slope(job: Job, at: Factors, kind: str, here: float, nudge: float = 0.02) -> float:
    """Change of the step per unit of the logarithm of one factor."""
    moved = dataclasses.replace(at, **{kind: getattr(at, kind) * math.exp(nudge)})
    return (step_time(job, moved).total - here) / nudge


def _with_memory(job: Job, calibration: Calibration, measured: float) -> Calibration:
    """Share the residual of a measured peak between activations, buffers and cache, and this layout's own deviation."""
    memory = peak_memory(job)
    prior = calibration.memory
    posterior = prior.after(memory, measured)
    modelled = memory.total + posterior.residual_bytes(memory)
    return dataclasses.replace(
        calibration,
        memory=posterior,
        memory_measured=True,
        reproduced=(*calibration.reproduced, ("memory_bytes", measured, modelled)),
    )
