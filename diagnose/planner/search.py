"""Enumerate legal layouts, drop what cannot fit, rank by the step-time ratio to the current layout.

Feasibility first: an illegal or unfit layout costs one check and no prediction. Degrees are divisors that the model and
the cluster allow; TP and EP*ETP stay inside the fast domain unless nothing fits without leaving it. The order of
questions is the tutorials': memory, then communication, then dimensions. It searches what job.toml can say; it does not
search kernels, compilers or routing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from diagnose.planner.explain import trades_of, why_better
from diagnose.planner.feasibility import why_illegal, why_too_large
from diagnose.planner.job import Job, Layout
from diagnose.planner.prediction import NO_CALIBRATION, Calibration, Prediction, predict

MICRO_BATCHES = (1, 2, 4, 8, 16)
RECOMPUTE: tuple[tuple[str, ...], ...] = ((), ("full",))
RATIO_SPREAD = 0.06
"""Half width of a speed-up after calibration, per unit: what two layouts of one machine deviate from the model."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout that can run. `speedup_ratio` is current step time / its own, at the same global batch and GPUs."""

    prediction: Prediction
    speedup_ratio: float
    speedup_low_ratio: float
    speedup_high_ratio: float
    changed: tuple[str, ...]
    why: str
    trades: str


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The current layout, the best ones, the best that change one dimension only, and what was refused with reasons."""

    current: Prediction
    candidates: tuple[Candidate, ...]
    one_change: tuple[Candidate, ...]
    refused: tuple[tuple[str, int], ...]
    """(reason, how many layouts it refused), most frequent first; numbers are left out of the reason."""
    tried_count: int


def search(job: Job, calibration: Calibration | None = None, top: int = 10) -> SearchResult:
    """The `top` fastest legal layouts that fit, and those one change away. Constraints of [search] are honoured."""
    calibration = calibration or NO_CALIBRATION
    current = predict(job, calibration)
    refused: dict[str, int] = {}
    found: list[Prediction] = []
    tried = 0
    for trial in enumerate_jobs(job):
        tried += 1
        reason = next(iter(why_illegal(trial)), None) or why_too_large(trial, calibration)
        if reason:
            kind = _kind(reason)
            refused[kind] = refused.get(kind, 0) + 1
            continue
        found.append(predict(trial, calibration))
    reference = current.step_s * current.job.layout.world_size
    found.sort(key=lambda each: each.step_s * each.job.layout.world_size / _work(each.job))
    best = [_candidate(job, current, each, reference) for each in _distinct(found)[: max(top, 1)]]
    near = [_candidate(job, current, each, reference) for each in found if 0 < len(changes(job, each.job)) <= 1]
    return SearchResult(
        current=current,
        candidates=tuple(best),
        one_change=tuple(near[:top]),
        refused=tuple(sorted(refused.items(), key=lambda pair: -pair[1])),
        tried_count=tried,
    )


def _work(job: Job) -> float:
    return float(job.train.global_batch)


def _candidate(job: Job, current: Prediction, each: Prediction, reference: float) -> Candidate:
    cost = each.step_s * each.job.layout.world_size / _work(each.job) * _work(job)
    ratio = reference / cost
    different = changes(job, each.job)
    spread = RATIO_SPREAD * min(3, len(different)) ** 0.5 + (0.0 if current.job is each.job else 0.02)
    return Candidate(
        prediction=each,
        speedup_ratio=ratio,
        speedup_low_ratio=ratio * (1 - spread),
        speedup_high_ratio=ratio * (1 + spread),
        changed=different,
        why=why_better(current, each),
        trades=trades_of(current, each),
    )


def changes(job: Job, other: Job) -> tuple[str, ...]:
    """Names of the knobs that differ; DP follows from the others and is not a change of its own."""
    dims = ("tp", "pp", "ep", "cp", "etp", "vpp", "overlap_tp", "overlap_ep", "overlap_grad_reduce")
    found = [name for name in dims if getattr(job.layout, name) != getattr(other.layout, name)]
    knobs = ("micro_batch", "zero", "recompute", "grad_dtype", "shard_group")
    return (*found, *(name for name in knobs if getattr(job.train, name) != getattr(other.train, name)))


def _distinct(found: list[Prediction]) -> list[Prediction]:
    """One per set of degrees and micro-batch: the fastest chunking, sharding and recipe of each."""
    seen: set[tuple[int, ...]] = set()
    kept = []
    for each in found:
        layout = each.job.layout
        key = (layout.tp, layout.cp, layout.pp, layout.ep, layout.etp, each.job.train.micro_batch)
        if key not in seen:
            seen.add(key)
            kept.append(each)
    return kept


def enumerate_jobs(job: Job) -> Iterator[Job]:
    """Every job the search may propose: degrees, chunks, micro-batch, ZeRO stage and recompute, the batch unchanged."""
    gpus = job.search.gpus or job.cluster.gpus
    if job.search.max_gpus:
        gpus = min(gpus, job.search.max_gpus)
    for layout in _layouts(job, gpus):
        for micro in _allowed(job, "micro_batch", MICRO_BATCHES):
            batch = _batch(job, layout.dp * micro)
            if not batch:
                continue
            for zero in _zeros(job, layout):
                for recompute in {job.train.recompute, *RECOMPUTE}:
                    yield job.with_layout(layout, micro_batch=micro, zero=zero, recompute=recompute, global_batch=batch)


def _batch(job: Job, unit: int) -> int:
    """The global batch in multiples of `unit`: as given, or rounded up where it may; 0 where illegal."""
    given = job.train.global_batch
    if given % unit == 0:
        return given
    return 0 if job.search.fixed_global_batch else -(-given // unit) * unit


def _layouts(job: Job, gpus: int) -> Iterator[Layout]:
    model, domain = job.model, job.cluster.fast_domain
    for tp in _allowed(job, "tp", _divisors(model.heads, min(gpus, max(domain, job.layout.tp)))):
        for cp in _allowed(job, "cp", _context(job)):
            for pp in _allowed(job, "pp", _stages(job, gpus // (tp * cp) or 1)):
                if gpus % (tp * cp * pp):
                    continue
                dp = gpus // (tp * cp * pp)
                for ep, etp in _expert_degrees(job, gpus // pp, tp):
                    for vpp in _allowed(job, "vpp", _chunks(job, pp)):
                        yield replace(
                            job.layout,
                            dp=dp,
                            tp=tp,
                            cp=cp,
                            pp=pp,
                            ep=ep,
                            etp=etp,
                            vpp=vpp,
                            sp=job.layout.sp or tp > 1,
                            stage_layers=(),
                            schedule=_schedule(job, pp, vpp),
                        )


def _schedule(job: Job, pp: int, vpp: int) -> str:
    if vpp > 1:
        return "interleaved"
    return job.layout.schedule if pp > 1 and job.layout.schedule != "interleaved" else "1f1b"


def _allowed(job: Job, name: str, possible: tuple[int, ...]) -> tuple[int, ...]:
    """The degrees the user allows of a dimension, or the possible ones."""
    return job.search.allowed_of(name) or possible


def _divisors(number: int, most: int) -> tuple[int, ...]:
    return tuple(each for each in range(1, min(number, most) + 1) if number % each == 0 and each & (each - 1) == 0)


def _context(job: Job) -> tuple[int, ...]:
    """Context parallel pays from 8k tokens on; the current degree is always tried."""
    longest = max(1, job.model.seq_len // 4096)
    return tuple(sorted({job.layout.cp, *(2**n for n in range(longest.bit_length()) if 2**n <= min(longest, 64))}))


def _stages(job: Job, most: int) -> tuple[int, ...]:
    """Stage counts that cut the layers evenly, with a slot for embedding and head, or nearly so."""
    layers = job.model.layers
    even = {p for p in range(1, min(layers, most) + 1) if layers % p == 0 or (layers + 2) % p == 0}
    return tuple(sorted(even | ({job.layout.pp} if job.layout.pp <= most else set())))


def _chunks(job: Job, pp: int) -> tuple[int, ...]:
    """One chunk, the most chunks, and one in between: the bubble goes with 1/v."""
    if pp == 1 or job.search.framework in ("deepspeed", "fsdp"):
        return (1,)
    fits = [
        v
        for v in range(2, job.model.layers // pp + 1)
        if job.model.layers % (pp * v) == 0 or (job.model.layers + 2) % (pp * v) == 0
    ]
    return tuple(sorted({1, *fits[:1], *fits[-1:], *fits[len(fits) // 2 : len(fits) // 2 + 1]}))


def _expert_degrees(job: Job, ranks: int, tp: int) -> list[tuple[int, int]]:
    if not job.model.experts:
        return [(1, 1)]
    degrees = _allowed(job, "ep", _divisors(job.model.experts, min(ranks, 8 * job.cluster.fast_domain)))
    wide = _allowed(job, "etp", (1, tp) if tp > 1 else (1,))
    return [(ep, etp) for ep in degrees for etp in wide if ranks % (ep * etp) == 0]


def _zeros(job: Job, layout: Layout) -> tuple[int, ...]:
    framework = job.search.framework
    usual = {"megatron": (1,), "deepspeed": (1, 2, 3), "torchtitan": (2, 3), "fsdp": (2, 3), "nanotron": (0, 1)}[
        framework
    ]
    if layout.pp > 1 and framework == "deepspeed":
        usual = (0, 1)
    return _allowed(job, "zero", tuple(sorted({*usual, job.train.zero})))


def _kind(reason: str) -> str:
    """The reason without its figures, so that equal reasons add up."""
    words = [
        "N" if any(char.isdigit() for char in word) else word for word in reason.split(" (", maxsplit=1)[0].split()
    ]
    return " ".join(words)
