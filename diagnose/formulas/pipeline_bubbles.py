"""What a pipeline schedule must idle by its own law, from the times of one micro-batch on one stage.

The bubble of a step is the idle time between a stage's own first and last work, on the stage where that is longest.
Under schedules with a flush (GPipe, 1F1B, interleaved, ZB-H1, DualPipe) some stage works from the step's first moment
to its last, so this is also the step's length minus the work of one stage. ZB-H2 and ZB-V let the ramp of the next step
lie under this one's; their ramp is not in the bubble.

Conditions: even stages, no transfer time, enough micro-batches for the schedule's steady phase; T_F >= T_W for the
zero-bubble laws. DualPipe's is exact for T_F = T_Bi = T_W without gain from overlap, and an upper bound else.
Sources: Narayanan et al. 2021 section 2.2; Qi et al. 2024 (zero bubble) tables 1 and 2; DeepSeek-V3 report table 2,
where F&B is a forward and a backward run under each other, and B a whole backward.
"""

from __future__ import annotations


def bubble_ns(
    schedule: str,
    stages: int,
    chunks: int,
    forward_ns: float,
    input_ns: float,
    weight_ns: float,
    together_ns: float | None = None,
) -> float | None:
    """Idle time of the schedule; None where no law is known.

    `forward_ns`, `input_ns`, `weight_ns`: forward, input and weight gradient of one micro-batch on one whole stage, all
    its `chunks` together. `together_ns`: a forward and a backward under each other (DualPipe); their sum by default.

    >>> [bubble_ns(name, 8, chunks, 40, 40, 40) for name, chunks in (("1f1b", 1), ("interleaved", 2), ("zb1p", 1))]
    [840.0, 420.0, 280.0]
    """
    backward_ns = input_ns + weight_ns
    if schedule in ("gpipe", "1f1b", "interleaved"):
        return (stages - 1) * (forward_ns + backward_ns) / chunks
    if schedule == "zb1p":
        return float((stages - 1) * (forward_ns + input_ns - weight_ns))
    if schedule == "zb2p":
        return max(0.0, (stages - 1) * (forward_ns + input_ns - 2 * weight_ns))
    if schedule == "zbv":
        return 0.0
    if schedule == "dualpipe":
        both_ns = forward_ns + backward_ns if together_ns is None else together_ns
        return max(0.0, (stages / 2 - 1) * (both_ns + backward_ns - 3 * weight_ns))
    return None
