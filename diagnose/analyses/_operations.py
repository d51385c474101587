"""Names of collective operations, whoever wrote them, as this project's names."""

from __future__ import annotations

import re
from functools import lru_cache

_PREFIX = re.compile(r"^(?:c10d_functional|_c10d_functional|c10d|nccl|gloo|xccl|hccl|mpi|symm_mem)(?:::|:)|[^a-z0-9]")
_OPERATIONS = (
    ("startcoalesc", "start_coalescing"),
    ("endcoalesc", "end_coalescing"),
    ("coalesced", "coalesced"),
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("gatherinto", "all_gather"),
    ("reducescatter", "reduce_scatter"),
    ("alltoall", "all_to_all"),
    ("sharddimalltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("reduce", "reduce"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("sendrecv", "p2p"),
    ("send", "p2p"),
    ("recv", "p2p"),
    ("isend", "p2p"),
    ("irecv", "p2p"),
    ("batchisend", "p2p"),
    ("p2p", "p2p"),
    ("barrier", "barrier"),
    ("wait", "wait"),
)

VOCABULARY = (
    "unknown", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter",
    "p2p", "barrier", "dispatch", "combine", "wait", "start_coalescing", "end_coalescing", "coalesced",
)  # fmt: skip
"""Every operation there is; columns of operations are indices in it, 0 for unknown."""
TRAFFIC_COUNT = VOCABULARY.index("wait")
"""Operations before this index move data or meet other ranks on the device."""


@lru_cache(maxsize=4096)
def code(name: str) -> int:
    """Index in VOCABULARY of one of this project's operation names; 0 for any other text."""
    return VOCABULARY.index(name) if name in VOCABULARY else 0


@lru_cache(maxsize=4096)
def operation(name: str) -> str:
    """all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather, scatter, p2p, barrier, wait,
    start_coalescing, end_coalescing, coalesced; `unknown` for anything else.

    Takes c10d collective names (`_allgather_base`, `allreduce_coalesced`), operators (`c10d::alltoall_base_`),
    annotations (`nccl:all_reduce`) and this project's own names.
    """
    text = _PREFIX.sub("", name.strip().lower())
    return next((op for start, op in _OPERATIONS if text.startswith(start)), "unknown")


BUS_FACTORS = {
    "all_reduce": (2.0, True),
    "all_gather": (1.0, True),
    "reduce_scatter": (1.0, True),
    "all_to_all": (1.0, True),
    "broadcast": (1.0, False),
    "reduce": (1.0, False),
    "gather": (1.0, False),
    "scatter": (1.0, False),
}
"""(factor, whether times (n - 1) / n): bus bandwidth over algorithm bandwidth. Source: nccl-tests PERFORMANCE.md."""


def bus_factor(op: str, ranks: int) -> float | None:
    """Bus bandwidth over algorithm bandwidth of one operation on `ranks` ranks; None where it has no meaning."""
    if op not in BUS_FACTORS or ranks < 2:
        return None
    factor, ring = BUS_FACTORS[op]
    return factor * (ranks - 1) / ranks if ring else factor
