"""The dimension of a group whose description says nothing: only where nothing else fits.

Told: `ep` where the group exchanges uneven all-to-alls (tokens for experts; sequence parallelism splits evenly); `pp`
where it only sends and receives and no call closes the ring (ring attention does; interleaved schedules do as well,
then nothing is told); any dimension where the job's file gives sizes and `layout.rank_order`, and the group's ranks
are those of one dimension only. Not told, because it cannot be: sharded data parallelism and tensor parallelism with
sequence parallelism look alike in operation, size and cadence, as do even all-to-alls of experts and sequences.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.schema import COMM_DIMS

_ORDER = tuple(d for d in COMM_DIMS if d != "other")


def by_traffic(calls: pa.Table) -> dict[str, str]:
    """Group name -> dimension, for groups whose calls leave one."""
    named = calls.filter(pc.is_valid(calls["group"])).select(["group", "op", "in_splits", "rank", "peer"])
    if not named.num_rows:
        return {}
    uneven = pc.is_valid(named["in_splits"])
    table = named.set_column(2, "in_splits", uneven)
    seen = table.group_by(["group", "op", "in_splits"]).aggregate([]).to_pylist()
    ops: dict[str, set[tuple[str, bool]]] = {}
    for row in seen:
        ops.setdefault(row["group"], set()).add((row["op"], row["in_splits"]))
    found = {name: "ep" for name, kinds in ops.items() if ("all_to_all", True) in kinds}
    only_pairs = {name for name, kinds in ops.items() if {op for op, _ in kinds} <= {"send", "recv", "wait"}}
    return found | {name: "pp" for name in only_pairs if _open_chain(table, name)}


def _open_chain(calls: pa.Table, group: str) -> bool:
    """Whether sends and receives only link ranks next to each other in the group, from several ranks' view."""
    mine = calls.filter(pc.equal(calls["group"].cast(pa.string()), group))
    mine = mine.filter(pc.and_(pc.is_valid(mine["peer"]), pc.is_valid(mine["rank"])))
    rank, peer = (np.asarray(mine[c], np.int64) for c in ("rank", "peer"))
    ranks = np.unique(np.concatenate((rank, peer)))
    if len(ranks) < 3:
        return False  # two ranks: a ring is a chain
    far = np.abs(np.searchsorted(ranks, rank) - np.searchsorted(ranks, peer))
    seen = np.unique(rank)
    return bool((far == 1).all()) and len(seen) == len(ranks)


def by_layout(settings: Mapping[str, str]) -> dict[tuple[int, ...], str]:
    """Ranks -> dimension from the job's sizes and the order of its dimensions (`tp-cp-ep-dp-pp`, the fastest first).

    Ranks that two dimensions share are left out. Empty where the job's file does not say.
    """
    order = [d for d in settings.get("layout.rank_order", "").replace(",", "-").replace(" ", "").split("-") if d]
    sizes = {d: settings.get(f"layout.{d}", "1") for d in _ORDER}
    if len(set(order)) != len(order) or not set(order) <= set(_ORDER) or not all(v.isdecimal() for v in sizes.values()):
        return {}
    whole = {d: max(int(v), 1) for d, v in sizes.items()}
    expert = whole["ep"] if "ep" in order else 1
    if whole["dp"] % expert or any(whole[d] > 1 and d not in order for d in _ORDER if d != "ep"):
        return {}
    axes = {d: whole[d] // expert if d == "dp" else whole[d] for d in order}  # experts are part of data parallelism
    world = np.arange(int(np.prod(list(axes.values()), dtype=np.int64))).reshape([axes[d] for d in reversed(order)])
    found: dict[tuple[int, ...], set[str]] = {}
    for dim in order:
        along = [len(order) - 1 - order.index(d) for d in (("ep", "dp") if dim == "dp" and "ep" in order else (dim,))]
        moved = np.moveaxis(world, along, range(-len(along), 0))
        width = int(np.prod([world.shape[a] for a in along]))
        if width > 1:
            for row in moved.reshape(-1, width):
                found.setdefault(tuple(sorted(row.tolist())), set()).add(dim)
    return {ranks: dims.pop() for ranks, dims in found.items() if len(dims) == 1}
