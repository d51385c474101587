"""Say why a layout is better, what it gives up, and walk the five questions in the order memory, communication,
dimensions.

Every sentence rests on figures of two predictions; it claims nothing that the model did not compute.
"""

from __future__ import annotations

from diagnose.planner.prediction import SAFE_MEMORY_RATIO, Prediction

NAMES = {
    "compute": "compute",
    "tp": "tensor parallel communication",
    "cp": "context parallel communication",
    "ep": "expert dispatch",
    "pp": "pipeline sends",
    "dp": "gradient and weight traffic",
    "bubble": "pipeline bubble",
    "optimizer": "optimizer",
    "other": "host time and skew",
}
MENTION_RATIO = 0.01
"""A part is mentioned when it moves by at least this share of the current step."""


def why_better(current: Prediction, other: Prediction) -> str:
    """The parts of the step that shrink and grow, largest first."""
    scale = other.job.layout.world_size / current.job.layout.world_size
    moved = {
        name: (after * scale - before) / current.step_s
        for name, before, after in zip(current.step._fields, current.step, other.step, strict=True)
    }
    less = [
        f"{NAMES[name]} -{-share:.0%}"
        for name, share in sorted(moved.items(), key=lambda p: p[1])
        if share < -MENTION_RATIO
    ]
    more = [
        f"{NAMES[name]} +{share:.0%}"
        for name, share in sorted(moved.items(), key=lambda p: -p[1])
        if share > MENTION_RATIO
    ]
    text = ", ".join(less[:3]) or "no part shrinks"
    return f"{text}; {', '.join(more[:2])}" if more else text


def trades_of(current: Prediction, other: Prediction) -> str:
    """Which resource pays: memory, compute or bandwidth, and what would prove the forecast wrong."""
    memory = (other.memory.total - current.memory.total) / 1e9
    compute = other.step.compute / current.step.compute - 1
    wire = sum(getattr(other.step, name) - getattr(current.step, name) for name in ("tp", "cp", "ep", "pp", "dp"))
    parts = []
    if abs(memory) >= 1:
        parts.append(f"memory {memory:+.0f} GB")
    if abs(compute) >= 0.01:
        parts.append(f"compute {compute:+.0%}")
    if abs(wire) >= MENTION_RATIO * current.step_s:
        parts.append(f"exposed communication {wire / current.step_s:+.0%} of the step")
    return "; ".join(parts) or "nothing measurable"


def refutation(other: Prediction) -> str:
    """The one figure to look at first when the layout is tried, and the value that would refute the forecast."""
    step = other.step
    largest = max((name for name in step._fields if name != "compute"), key=lambda name: getattr(step, name))
    limit = 1.5 * getattr(step, largest) / other.step_s
    return (
        f"wrong if {NAMES[largest]} takes more than {max(limit, 0.05):.0%} of the step, "
        f"or the peak exceeds {other.memory_high_bytes / 1e9:.0f} GB"
    )


def five_steps(current: Prediction) -> list[tuple[str, str]]:
    """The joint check of sequence, precision and layout, answered with figures: (question, answer)."""
    job, memory, step = current.job, current.memory, current.step
    device = job.cluster.gpu_memory_bytes
    state = memory.parameters + memory.gradients + memory.optimizer
    share = memory.activations / memory.total
    wire = sum((step.tp, step.cp, step.ep, step.pp, step.dp)) / step.total
    return [
        (
            "Do parameters and their state fit on one GPU as sharded now?",
            f"{'yes' if state < SAFE_MEMORY_RATIO * device else 'no'}: {state / 1e9:.0f} GB of {device / 1e9:.0f} GB",
        ),
        (
            "Which is tight, state or activations?",
            f"{'activations' if memory.activations > state else 'state'}: {state / 1e9:.0f} GB state, "
            f"{memory.activations / 1e9:.0f} GB activations",
        ),
        (
            "How large are activations at this sequence length?",
            f"{share:.0%} of the peak at {job.model.seq_len} tokens and micro-batch {job.train.micro_batch}",
        ),
        (
            "What does communication cost?",
            f"{wire:.0%} of the step is exposed: "
            + ", ".join(
                f"{name.upper()} {getattr(step, name) / step.total:.0%}" for name in ("tp", "cp", "ep", "pp", "dp")
            ),
        ),
        (
            "Is the bubble acceptable at this micro-batch count?",
            f"{step.bubble / step.total:.0%} of the step: {job.microbatches} micro-batches on {job.layout.pp} stages",
        ),
    ]


def situation(current: Prediction) -> tuple[str, str]:
    """The row of the selection table this job is in: (situation, what to reach for and which metric to watch)."""
    job, memory = current.job, current.memory
    full_state = (memory.parameters + memory.gradients + memory.optimizer) * job.layout.tp * job.layout.pp
    if job.model.experts:
        return (
            "mixture of experts",
            "EP inside the fast domain, TP sparingly, PP across nodes; watch dispatch bytes, drops, load",
        )
    if job.model.seq_len >= 32768:
        return (
            "long sequence",
            "CP (and SP) with accumulation, recompute last; watch activation growth with the sequence",
        )
    if full_state < SAFE_MEMORY_RATIO * job.cluster.gpu_memory_bytes:
        return "fits on one GPU", "DP with ZeRO-1 or 2 and accumulation; watch the communication share"
    if full_state < SAFE_MEMORY_RATIO * job.cluster.gpu_memory_bytes * job.cluster.gpus_per_node:
        return "fits in one node", "TP or ZeRO-3 inside the node, DP across; watch matrix size per GPU"
    return (
        "exceeds a node",
        "TP inside the node, PP across with 1F1B, ZeRO-1 on the rest; watch bubble, balance, activations",
    )
