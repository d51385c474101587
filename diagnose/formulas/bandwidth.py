"""Bus bandwidth: what a collective moved over the slowest link, comparable between operations and group sizes.

Algorithm bandwidth is message size over time; bus bandwidth multiplies it by what the operation must send per byte of
message. It says nothing about waiting: time in which a rank waited for its peers lowers both.
Source of all factors: NVIDIA/nccl-tests doc/PERFORMANCE.md ("Bus bandwidth"). Message size is the one of nccl-tests:
all_gather counts the output of one rank, every other operation its input (sum over ranks for all_to_all is not used).
"""

from __future__ import annotations


def busbw_factor(op: str, ranks: int | None) -> float | None:
    """Bus bandwidth / algorithm bandwidth of a normalised operation in a group of `ranks`; None where unknown.

    A group of one moves nothing over a link: 0 for the operations whose factor depends on the group.

    >>> busbw_factor("all_reduce", 8), busbw_factor("all_gather", 8), busbw_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    if op in ("broadcast", "reduce", "send", "recv", "p2p"):
        return 1.0
    if ranks is None or ranks < 1:
        return None
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if op in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks
    return None
