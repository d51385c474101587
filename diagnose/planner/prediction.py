"""`predict`: the figures of one layout, what they rest on, and how far they can be off."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from diagnose.formulas.transformer import attention_flop_per_token
from diagnose.planner.devices import find_device
from diagnose.planner.job import Job
from diagnose.planner.memory import Memory, peak_memory
from diagnose.planner.residual import MemoryBelief
from diagnose.planner.stages import active_parameter_count
from diagnose.planner.step_time import Factors, StepTime, step_time
from diagnose.planner.transients import reclaimable_bytes

MFU_CONVENTION = "model FLOPs without recompute, causal attention counted half, output head in, embedding out"
SAFE_MEMORY_RATIO = 0.94
"""Share of the device's memory a plan may count on: the driver and the allocator keep the rest."""
UNMEASURED_STEP_RATIO = 0.30
"""Half width of the step-time range without any measurement."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What one measured run changes: factors on kinds of time, a last ratio, and the two memory terms formulas lack."""

    factors: Factors = field(default_factory=Factors)
    step_ratio: float = 1.0
    outside_s: float = 0.0
    """Time of the measured step that no layout changes: late ranks, input, garbage collection. Part of `other`."""
    memory: MemoryBelief = field(default_factory=MemoryBelief)
    memory_measured: bool = False
    step_measured: bool = False
    reproduced: tuple[tuple[str, float, float], ...] = ()
    """What the calibrated model says about the measured run itself: (quantity, measured, modelled)."""
    notes: tuple[str, ...] = ()


NO_CALIBRATION = Calibration()


@dataclass(frozen=True, slots=True)
class Prediction:
    """One layout's figures. `memory` and its interval in bytes, times in seconds; `fits` is None when it is a
    close call."""

    job: Job
    memory: Memory
    memory_low_bytes: float
    memory_high_bytes: float
    step: StepTime
    tokens_per_s_per_gpu: float
    mfu_ratio: float
    fits: bool | None
    assumptions: tuple[str, ...]

    @property
    def step_s(self) -> float:
        return self.step.total

    @property
    def step_ns(self) -> int:
        return round(self.step.total * 1e9)


def predict(job: Job, calibration: Calibration | None = None) -> Prediction:
    """Memory on the fullest stage, step time in parts, throughput, MFU, and whether it fits."""
    calibration = calibration or NO_CALIBRATION
    memory, low, high = memory_range(job, calibration)
    step = StepTime(*(part * calibration.step_ratio for part in step_time(job, calibration.factors)))
    step = step._replace(other=step.other + calibration.outside_s)
    return Prediction(
        job=job,
        memory=memory,
        memory_low_bytes=low,
        memory_high_bytes=high,
        step=step,
        tokens_per_s_per_gpu=job.tokens / step.total / job.layout.world_size,
        mfu_ratio=model_flop(job) / step.total / job.layout.world_size / peak_flop_per_s(job),
        fits=fits(job, memory.total, low, high, calibration.memory_measured),
        assumptions=assumptions_of(job, calibration),
    )


def model_flop(job: Job, causal: bool = True) -> float:
    """Model FLOPs of one step, forward and backward (see MFU_CONVENTION)."""
    model = job.model
    per_token = 2.0 * (active_parameter_count(model) - (0 if model.tied else model.vocab * model.hidden))
    attention = attention_flop_per_token(model.seq_len, model.heads, model.head_dim + model.rope_dim // 2, causal)
    return 3.0 * job.tokens * (per_token + model.layers * attention)


def peak_flop_per_s(job: Job) -> float:
    """The device's dense peak at the precision of the products."""
    device = find_device(job.cluster.gpu)
    assert device is not None
    wide = job.train.precision in ("bf16", "fp16", "fp32", "tf32") or not device.peak_fp8_flop_per_s
    return device.peak_flop_per_s if wide else device.peak_fp8_flop_per_s


def memory_range(job: Job, calibration: Calibration) -> tuple[Memory, float, float]:
    """Six parts, and the interval that should hold the peak. What formulas miss counts as activations and
    fragmentation."""
    formula = peak_memory(job)
    belief = calibration.memory
    width = belief.half_width_bytes(formula)
    beyond = belief.beyond_bytes(formula)
    memory = formula._replace(
        activations=max(0.0, (1 + belief.factor) * formula.activations + min(0.0, beyond)),
        fragmentation=max(0.0, beyond),
    )
    over = memory.total - SAFE_MEMORY_RATIO * job.cluster.gpu_memory_bytes
    if over > 0:  # under pressure the allocator waits for the device and takes held blocks back
        memory = memory._replace(activations=memory.activations - min(over, memory.activations, reclaimable_bytes(job)))
    return memory, max(0.0, memory.total - width), memory.total + width


def fits(job: Job, total: float, low: float, high: float, measured: bool) -> bool | None:
    """True where even the high end fits, False where even the low end does not, None in between."""
    limit = SAFE_MEMORY_RATIO * job.cluster.gpu_memory_bytes
    if measured:
        return total <= limit * (1 + 1e-9)  # memory is cut to the limit itself where held blocks are taken back
    if high <= limit:
        return True
    return False if low > limit else None


def assumptions_of(job: Job, calibration: Calibration) -> tuple[str, ...]:
    """Everything the figures rest on that nobody stated."""
    found = [*job.assumed, f"MFU: {MFU_CONVENTION}"]
    if job.model.experts and job.train.routing == "dropless":
        found.append("routing is balanced: real routing costs 8 to 20 % more on mixture-of-experts models")
    if not calibration.step_measured:
        found.append(f"no measured step: times are +- {UNMEASURED_STEP_RATIO:.0%}, ratios between layouts are better")
    if not calibration.memory_measured:
        found.append(
            "no measured peak: what formulas miss (cache, fragmentation, transients) is a usual range, "
            "so memory is an interval"
        )
    return (*found, *calibration.notes)


def close_ratio(measured: float, modelled: float) -> float:
    """How far the model is from a measurement, as |log ratio|."""
    return abs(math.log(modelled / measured))
