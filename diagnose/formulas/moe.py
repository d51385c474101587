"""What a mixture of experts sends between ranks, and how much room its experts have.

A router sends each of T tokens of a rank to k of E experts; EP ranks hold E / EP experts each. One exchange carries
T x k x hidden elements (the *message*, own share included); of it (EP - 1) / EP leave the rank where the load is even.
An exchange happens twice forward (dispatch, combine) and twice backward for every layer and micro-batch. Real factors:
capacity padding sends E x C rows whatever was routed; a dispatcher that knows ranks (DeepEP) sends a token once to a
rank that holds several of its experts; where experts are split over ETP ranks and each gets its own copy of a token in
the exchange, everything counts ETP times; dispatch may be 8-bit (one byte per element and four for the scale of each
128) while combine is 16-bit.
Sources: GShard, https://arxiv.org/abs/2006.16668 (capacity); DeepSeek-V3, https://arxiv.org/abs/2412.19437 section
3.3.3 (formats, tile-wise scales); Megatron Core moe_utils.get_capacity.
"""

from __future__ import annotations

import math
from typing import NamedTuple

ELEMENT_BYTES = {
    "float32": 4.0, "fp32": 4.0, "bfloat16": 2.0, "bf16": 2.0, "float16": 2.0, "fp16": 2.0, "float8": 1.0, "fp8": 1.0,
    "int8": 1.0, "float64": 8.0,
}  # fmt: skip


class Exchange(NamedTuple):
    """Bytes that one rank sends in one dispatch or combine."""

    assigned_bytes: float
    """Tokens x top-k x hidden x element: the plain product."""
    message_bytes: float
    """With padding, copies and deduplication; the rank's own share included."""
    leaving_bytes: float
    """Of the message, what goes to other ranks where the load is even."""


def capacity(tokens: int, topk: int, experts: int, factor: float) -> int:
    """Room of one expert in tokens: the even share times the factor, rounded up.

    >>> capacity(8192, 2, 8, 1.25)
    2560
    """
    return math.ceil(round(tokens * topk / experts * factor, 9))


def padding_ratio(tokens: int, topk: int, experts: int, factor: float) -> float:
    """Rows sent over rows assigned, where every expert's input is padded to its capacity."""
    return capacity(tokens, topk, experts, factor) * experts / (tokens * topk)


def ranks_per_token(topk: int, experts: int, ep: int) -> float:
    """Distinct ranks that hold a token's k experts, on average over even and independent choices.

    A rank holds n = E / EP experts; it is missed with probability C(E - n, k) / C(E, k).

    >>> ranks_per_token(1, 64, 8), ranks_per_token(8, 8, 8)
    (1.0, 8.0)
    """
    held = experts // ep
    missed = math.comb(experts - held, topk) / math.comb(experts, topk)
    return ep * (1 - missed)


def exchange(
    tokens: int, topk: int, hidden: int, element_bytes: float, ep: int, sent_per_assigned: float = 1.0
) -> Exchange:
    """Bytes of one exchange of one rank over `ep` ranks.

    `sent_per_assigned`: rows sent over rows assigned, the product of padding (`padding_ratio`), copies (ranks that
    share an expert and each get the token) and deduplication (`ranks_per_token` over k).
    """
    assigned = tokens * topk * hidden * element_bytes
    message = assigned * sent_per_assigned
    return Exchange(assigned, message, message * (ep - 1) / ep)
