"""The host's side of a layer: how many kernels it launches one by one, and what a launch costs.

A layer takes the longer of device and host time. It says nothing about data loading, logging or garbage collection.
"""

from __future__ import annotations

LAUNCH_S = 10e-6
"""Host time of one eager operator with its share of autograd and Python."""
GRAPH_SHARE = 0.15
"""Share of the host time that CUDA graphs leave."""


def kernels_count(moe: bool, fixed_capacity: bool, full_recompute: bool) -> float:
    """Kernels of one layer, forward and backward, that the host launches one by one."""
    count = DENSE_KERNELS if not moe else MOE_KERNELS * (FIXED_SHAPE_RATIO if fixed_capacity else 1)
    return count * (4 / 3 if full_recompute else 1)


def forward_kernels_count(moe: bool) -> float:
    """Kernels of one layer's forward pass: a third of all."""
    return (MOE_KERNELS if moe else DENSE_KERNELS) / 3


DENSE_KERNELS = 60
"""About 20 forward and 40 backward: 6 products, attention, norms, residuals, activation, rotary and their gradients."""
MOE_KERNELS = 700
"""Router, permutation, dispatch, grouped products and combine launch many times more, and read counts back: 7 ms a
layer and micro-batch without CUDA graphs (Megatron-Bridge moe-comm-overlap: Qwen3-30B on 16 H100, 20.99 s / 64 /
48)."""
FIXED_SHAPE_RATIO = 0.5
"""With a fixed capacity all shapes are known: no counts are read back and no ragged permutation is built. A guess."""
