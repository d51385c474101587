"""Floating point operations of matrix products, convolutions and attention: a multiply-add counts as two.

Counted is the arithmetic that the result needs, not what a kernel may waste on padding. Bias, scaling and softmax are
left out: they are no matrix work and below a percent of it for the sizes that matter.
Sources: GEMM 2mnk (Goto and van de Geijn 2008, also torch.utils.flop_counter `mm_flop`); convolution
`conv_flop_count` and attention `sdpa_flop_count`, `sdpa_backward_flop_count` of torch.utils.flop_counter; halving of
causal attention: Dao, FlashAttention-2 (2023), section 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod


def gemm_flop(m: int, n: int, k: int, batch: int = 1) -> int:
    """`batch` products of (m, k) by (k, n)."""
    return 2 * batch * m * n * k


def conv_flop(batch: int, weight: Sequence[int], positions: Sequence[int]) -> int:
    """Forward convolution, or either half of its backward (gradient of the input, gradient of the weight).

    `weight` is (out channels, in channels / groups, *kernel); `positions` are the places the kernel visits: the
    spatial output size, or the input size of a transposed convolution (whose weight is (in, out / groups, *kernel)).
    """
    return 2 * batch * prod(weight) * prod(positions)


def conv_positions(
    size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> tuple[int, ...]:
    """Spatial output size of a convolution. Source: torch.nn.Conv2d, "Shape"."""
    return tuple(
        (s + 2 * p - d * (k - 1) - 1) // t + 1
        for s, k, t, p, d in zip(size, kernel, stride, padding, dilation, strict=True)
    )


def attention_flop(
    heads: int, queries: int, keys: int, head_size: int, value_size: int, *, causal: bool, backward: bool
) -> int:
    """Scaled dot product attention; `heads` is query heads times batch.

    Forward: scores and weighted values, two products. Backward of a fused kernel: scores again, gradients of values,
    probabilities, queries and keys, five products. Causal counts only visible pairs (query i sees keys 0..i).
    """
    pairs = _visible_pairs(queries, keys) if causal else queries * keys
    sizes = 3 * head_size + 2 * value_size if backward else head_size + value_size
    return 2 * heads * pairs * sizes


def _visible_pairs(queries: int, keys: int) -> int:
    short = min(queries, keys)
    return short * (short + 1) // 2 + max(0, queries - keys) * keys
