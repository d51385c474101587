"""Process groups that cross nodes with exposed traffic, as the rules about them see them."""

from __future__ import annotations

from typing import Any

from diagnose.analyses.crossings import crossings
from diagnose.schema import Tables
from tests.rules.build import MS, call, spans, step, tables


def group(dim: str, size: int = 16, nodes: int | None = 2, **more: Any) -> dict[str, Any]:
    return {
        "group": "g",
        "size": size,
        "ranks": list(range(size)),
        "dim": dim,
        "dim_source": "description",
        "node_count": nodes,
        "fewest_node_count": 2,
        "per_node_count": nodes and size // nodes,
        **more,
    }


def judged(**given: Any) -> Tables:
    found = tables(**given)
    needed = ("groups", "collectives", "spans", "mean_steps", "settings")
    derived = crossings(*(found[name] for name in needed))
    return {**found, "crossings": derived}


def job(dim: str, *groups: dict[str, Any], settings: Any = ()) -> Tables:
    """A step of 100 ms; rank 0 waits 20 ms of its 30 ms, rank 1 nothing of its 10 ms."""
    rows = [
        call("all_reduce", 30 * MS, dim=dim, group="g", wait_ns=20 * MS, transfer_ns=10 * MS, exposed_wait_ns=20 * MS),
        call("all_reduce", 12 * MS, rank=1, dim=dim, group="g", wait_ns=0, transfer_ns=12 * MS, exposed_wait_ns=0),
    ]
    made = [
        step(rank=r, compute_ns=(70, 88)[r] * MS, comm_ns=(10, 12)[r] * MS, wait_ns=(20, 0)[r] * MS) for r in (0, 1)
    ]
    return judged(groups=list(groups), collectives=rows, spans=spans(*made), settings=list(settings))


def fires(dim: str) -> Tables:
    """One rank, whose waiting cannot be told from its transfer."""
    made = call("all_reduce", 10 * MS, dim=dim, group="g")
    return judged(
        groups=[group(dim)], collectives=[made], spans=spans(step(compute_ns=90 * MS, comm_ns=10 * MS)), settings=[]
    )
