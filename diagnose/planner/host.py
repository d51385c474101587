"""The host's side of a layer: how many kernels it launches one by one, and what a launch costs.

A layer takes the longer of device and host time. It says nothing about data loading, logging or garbage collection.
"""

from __future__ import annotations

from typing import NamedTuple

LAUNCH_S = 10e-6
"""Host time of one eager operator with its share of autograd and Python."""
GRAPH_SHARE = 0.15
"""Share of the host time that CUDA graphs leave."""


def kernels_count(moe: bool, fixed_capacity: bool, full_recompute: bool) -> float:
    """Kernels of one layer, forward and backward, that the host launches one by one."""
    count = DENSE_KERNELS if not moe else MOE_KERNELS * (FIXED_SHAPE_RATIO if fixed_capacity else 1)
    return count * (4 / 3 if full_recompute else 1)


class HostTime(NamedTuple):
    """Host seconds of one layer: before and after the experts' counts are known, and backward."""

    before_s: float
    after_s: float
    backward_s: float


def host_time(launches_s: float, graphs: bool, scope: str) -> HostTime:
    """`launches_s`: everything launched one by one. CUDA graphs replay it, or only what is before the counts.

    Sizes that depend on the counts cannot be captured (Megatron-Bridge perf-cuda-graphs: dropless mixtures capture
    attention, router and preprocessing).
    """
    replayed = GRAPH_SHARE if graphs else 1.0
    ragged = 1.0 if scope == "dense" else replayed
    forward, backward = launches_s * FORWARD_SHARE, launches_s * (1 - FORWARD_SHARE)
    ends = BEFORE_SHARE * replayed + (1 - BEFORE_SHARE) * ragged
    return HostTime(forward * BEFORE_SHARE * replayed, forward * (1 - BEFORE_SHARE) * ragged, backward * ends)


def host_excess_s(host: HostTime, before_s: float, after_s: float, backward_s: float, *, blocks: bool) -> float:
    """Time of a layer's host beyond its device, for the device's seconds of the same three parts.

    Where the host launches ahead only the sums compare. Where it `blocks` on the counts (Megatron Core
    token_dispatcher.py, cuda_sync_point: sizes of the exchange must be known), it starts the second part of the forward
    pass with an empty queue: each part takes the longer of its own two, and the other waits.
    """
    device = (before_s, after_s, backward_s)
    if not blocks:
        return max(0.0, sum(host) - sum(device))
    return sum(max(pair) for pair in zip(host, device, strict=True)) - sum(device)


FORWARD_SHARE = 1 / 3
"""Of a layer's launches: backward takes two for one."""
BEFORE_SHARE = 1 / 3
"""Of a mixture's forward launches, those before the counts are known. Counted in Megatron Core (transformer_layer.py,
router.py, token_dispatcher.py, experts.py): attention and norms 14, router 10, counts 20; permutation and exchange
18, a product and its casts for each of the local experts and both matrices about 60, and back 10."""


def forward_kernels_count(moe: bool) -> float:
    """Kernels of one layer's forward pass: a third of all."""
    return (MOE_KERNELS if moe else DENSE_KERNELS) * FORWARD_SHARE


DENSE_KERNELS = 60
"""About 20 forward and 40 backward: 6 products, attention, norms, residuals, activation, rotary and their gradients."""
MOE_KERNELS = 700
"""Router, permutation, dispatch, grouped products and combine launch many times more, and read counts back: 7 ms a
layer and micro-batch without CUDA graphs (Megatron-Bridge moe-comm-overlap: Qwen3-30B on 16 H100, 20.99 s / 64 /
48)."""
FIXED_SHAPE_RATIO = 0.5
"""With a fixed capacity all shapes are known: no counts are read back and no ragged permutation is built. A guess."""
