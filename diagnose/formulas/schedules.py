"""Pipeline schedules: the idle share they leave, and how many micro-batches' activations they keep.

p stages, m micro-batches, v chunks per stage (1 = plain). A bubble of (p-1)/m is relative to ideal compute time, and
(p-1)/(m+p-1) to the step; at m = p it is half the step, not nothing. 1F1B has GPipe's bubble and less memory.
Sources: Narayanan et al. 2021 section 2.2 (interleaving divides by v), Korthikanti et al. 2022 section 4.2.3 (its
memory), zero-bubble schedules: sail-sg/zero-bubble-pipeline-parallelism README, DualPipe: DeepSeek-V3 report Table 2.
"""

from __future__ import annotations

ZERO_BUBBLE_SHARE = {"gpipe": 1.0, "1f1b": 1.0, "interleaved": 1.0, "zb1p": 1 / 3, "zbv": 0.0, "dualpipe": 1 / 6}
"""Share of the plain bubble that remains when forward, input and weight gradient take equal time (DualPipe at
large p)."""


def bubble_of_compute_ratio(stages: int, microbatches: int, chunks: int = 1, schedule: str = "1f1b") -> float:
    """Idle time / ideal compute time of a balanced pipeline.

    >>> bubble_of_compute_ratio(8, 32), bubble_of_compute_ratio(8, 32, chunks=2)
    (0.21875, 0.109375)
    """
    return ZERO_BUBBLE_SHARE[schedule] * (stages - 1) / (chunks * microbatches)


def bubble_of_step_ratio(stages: int, microbatches: int, chunks: int = 1, schedule: str = "1f1b") -> float:
    """Idle time / step of a balanced pipeline: (p-1)/(m+p-1) for GPipe and 1F1B.

    >>> round(bubble_of_step_ratio(8, 32), 4), round(bubble_of_step_ratio(8, 8), 4)
    (0.1795, 0.4667)
    """
    idle = bubble_of_compute_ratio(stages, microbatches, chunks, schedule)
    return idle / (1 + idle)


def chunks_in_flight(stages: int, stage: int, microbatches: int, chunks: int = 1, schedule: str = "1f1b") -> float:
    """Model chunks (of 1/(p*v) of the layers) whose activations stage `stage` (0-based) holds at its fullest.

    1F1B: min(m, p - stage). Interleaved: v*p + p - 1 on the first stage (and never more than all v*m chunks).

    >>> chunks_in_flight(8, 0, 32), chunks_in_flight(8, 7, 32), chunks_in_flight(8, 0, 32, chunks=2)
    (8, 1, 23)
    """
    every = chunks * microbatches
    if schedule == "gpipe":
        return every
    if schedule == "interleaved" or chunks > 1:
        return min(every, 2 * (stages - stage - 1) + (chunks - 1) * stages + 1)
    if schedule == "zbv":
        return min(every, stages)
    if schedule == "dualpipe":
        return min(every, stages + 1)
    return min(every, stages if schedule == "zb1p" else stages - stage)
