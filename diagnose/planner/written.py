"""Predictions and search results as plain dictionaries: the `plan` of the diagnosis and the JSON of `diagnose plan`.

Keys carry units; every figure of a candidate stands beside the layout it belongs to.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from diagnose.planner.explain import five_steps, refutation, situation
from diagnose.planner.feasibility import warnings_of, why_illegal, why_too_large
from diagnose.planner.flags import flags_of
from diagnose.planner.job import Job
from diagnose.planner.prediction import MFU_CONVENTION, Calibration, Prediction
from diagnose.planner.search import Candidate, SearchResult


def layout_text(job: Job) -> str:
    """A layout in one line: degrees above 1, micro-batch, ZeRO stage, recompute."""
    layout, train = job.layout, job.train
    degrees = {name: getattr(layout, name) for name in ("tp", "cp", "pp", "vpp", "ep", "etp")}
    shown = [f"{name.upper()}{degree}" for name, degree in degrees.items() if degree > 1]
    recompute = f" recompute {'+'.join(train.recompute)}" if train.recompute else ""
    return " ".join([f"DP{layout.dp}", *shown, f"micro-batch {train.micro_batch}", f"ZeRO-{train.zero}"]) + recompute


def plan_dict(result: SearchResult, calibration: Calibration | None = None) -> dict[str, Any]:
    """The whole plan: current layout, calibration, candidates, near layouts, what was refused and why."""
    current = result.current
    return {
        "current": prediction_dict(current),
        "problems": [*why_illegal(current.job), *filter(None, [why_too_large(current.job, calibration)])],
        "warnings": warnings_of(current.job),
        "situation": dict(zip(("is", "reach_for"), situation(current), strict=True)),
        "steps": [{"question": question, "answer": answer} for question, answer in five_steps(current)],
        "calibration": calibration_dict(calibration),
        "candidates": [candidate_dict(each) for each in result.candidates],
        "one_change": [candidate_dict(each) for each in result.one_change],
        "refused": [{"reason": reason, "layouts_count": count} for reason, count in result.refused],
        "tried_count": result.tried_count,
    }


def prediction_dict(each: Prediction) -> dict[str, Any]:
    """One layout's figures; times in ns, sizes in bytes."""
    return {
        "name": layout_text(each.job),
        "layout": dataclasses.asdict(each.job.layout),
        "train": dataclasses.asdict(each.job.train),
        "memory": {f"{part}_bytes": round(size) for part, size in each.memory._asdict().items()},
        "memory_total_bytes": round(each.memory.total),
        "memory_low_bytes": round(each.memory_low_bytes),
        "memory_high_bytes": round(each.memory_high_bytes),
        "step_ns": each.step_ns,
        "parts": [{"part": part, "dur_ns": round(seconds * 1e9)} for part, seconds in each.step._asdict().items()],
        "tokens_per_s_per_gpu": each.tokens_per_s_per_gpu,
        "mfu_ratio": each.mfu_ratio,
        "mfu_convention": MFU_CONVENTION,
        "fits": each.fits,
        "assumptions": list(each.assumptions),
    }


def candidate_dict(each: Candidate) -> dict[str, Any]:
    """A candidate with its speed-up, its reasons and the settings to paste."""
    job = each.prediction.job
    return {
        "layout": dataclasses.asdict(job.layout),
        "prediction": prediction_dict(each.prediction),
        "speedup_ratio": each.speedup_ratio,
        "speedup_low_ratio": each.speedup_low_ratio,
        "speedup_high_ratio": each.speedup_high_ratio,
        "changed": list(each.changed),
        "why": each.why,
        "trades": each.trades,
        "refutation": refutation(each.prediction),
        "warnings": warnings_of(job),
        "flags": flags_of(job),
    }


def calibration_dict(calibration: Calibration | None) -> dict[str, Any] | None:
    """What a measured run changed, and how well the corrected model reproduces that run."""
    if calibration is None or not (calibration.step_measured or calibration.memory_measured):
        return None
    return {
        "factors": dataclasses.asdict(calibration.factors),
        "step_ratio": calibration.step_ratio,
        "outside_ns": round(calibration.outside_s * 1e9),
        "activations_ratio": 1 + calibration.memory.factor,
        "allocator_ratio": calibration.memory.mean[1],
        "memory_offset_bytes": round(calibration.memory.mean[2]),
        "reproduced": [
            {"quantity": quantity, "measured": measured, "modelled": modelled, "error_ratio": modelled / measured - 1}
            for quantity, measured, modelled in calibration.reproduced
        ],
        "notes": list(calibration.notes),
    }
