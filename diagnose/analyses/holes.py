"""Segments with free memory at the failure (without one: at the end): the holes, and whose live blocks keep them.

A segment can be given back only when it is wholly free, so one small live block strands all the rest of it. The hole
that matters is the largest: a request needs one range, not a sum. Method: `_layout` at the moment; the place that
holds most live bytes of a segment pins it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Ints, integers, label
from diagnose.analyses._layout import Layout
from diagnose.analyses.lifetimes import Group, groups
from diagnose.analyses.memory import mine, own_rows
from diagnose.analyses.memory_moments import layout_in
from diagnose.schema import BOOL, INT32, INT64, LABEL, TEXT, UINT64, table

SCHEMA = table(
    "segment with free memory in it",
    ("rank", INT32, "global rank"),
    ("device", INT32, "device index"),
    ("moment", LABEL, "oom | end"),
    ("segment", UINT64, "its address"),
    ("size_bytes", INT64, "reserved (of an expandable segment: mapped) bytes"),
    ("live_bytes", INT64, "in live blocks"),
    ("live_count", INT64, "live blocks"),
    ("free_bytes", INT64, "free in it"),
    ("largest_hole_bytes", INT64, "largest free range in it"),
    ("holes_count", INT64, "free ranges in it"),
    ("private", BOOL, "in a private pool, of no use to the default one"),
    ("expandable", BOOL, "an expandable segment: its free pages can be unmapped and used elsewhere"),
    ("pinned_by", TEXT, "place that holds most of its live bytes; null where it is wholly free or unknown"),
    ("pinned_bytes", INT64, "live bytes of that place in it"),
    ("pinned_count", INT64, "live blocks of that place in it"),
)


def holes(
    memory_moments: pa.Table,
    lifetimes: pa.Table | None = None,
    allocations: pa.Table | None = None,
    blocks: pa.Table | None = None,
    segments: pa.Table | None = None,
) -> pa.Table:
    """One row per segment with free memory."""
    if lifetimes is None or allocations is None or segments is None or not segments.num_rows:
        return SCHEMA.empty()
    moments = memory_moments.select(["rank", "device", "moment", "source", "index"]).to_pylist()
    parts = []
    for group in groups(allocations, blocks):
        own = segments.filter(pa.array(own_rows(segments, group)))
        state = _moment(moments, group)
        if group.source == "snapshot" and own.num_rows and state is not None:
            parts.append(_of_group(group, mine(lifetimes, group), own, *state))
    return pa.concat_tables(parts).unify_dictionaries() if parts else SCHEMA.empty()


def _moment(moments: list[dict[str, object]], group: Group) -> tuple[str, int] | None:
    rank = group.known_rank
    states = {
        m["moment"]: m["index"]
        for m in moments
        if m["rank"] == rank and m["device"] == group.device and str(m["source"]).startswith("snapshot")
    }
    found = next((name for name in ("oom", "end") if isinstance(states.get(name), int)), None)
    return None if found is None else (found, int(str(states[found])))


def _of_group(group: Group, lives: pa.Table, segments: pa.Table, moment: str, state: int) -> pa.Table:
    layout = layout_in(state, group, lives, segments)
    free, largest, count = layout.per_segment()
    rows = np.flatnonzero(free > 0)
    rows = rows[np.argsort(-free[rows], kind="stable")]
    alive = (integers(lives["start_index"]) <= state) & (integers(lives["end_index"]) > state)
    place, pinned_bytes, pinned_count, places = _pinned(layout, lives.filter(pa.array(alive)))
    rank = group.known_rank
    known = place[rows] >= 0
    return SCHEMA.build(
        {
            "rank": pa.array([rank] * len(rows), pa.int32()),
            "device": np.full(len(rows), group.device, np.int32),
            "moment": label([moment], np.zeros(len(rows), np.int64)),
            "segment": layout.address[rows],
            "size_bytes": layout.size[rows],
            "live_bytes": layout.live[rows],
            "live_count": layout.live_count[rows],
            "free_bytes": free[rows],
            "largest_hole_bytes": largest[rows],
            "holes_count": count[rows],
            "private": layout.private[rows],
            "expandable": layout.expandable[rows],
            "pinned_by": label(places, place[rows]).cast(pa.string()),
            "pinned_bytes": np.ma.array(pinned_bytes[rows], mask=~known),
            "pinned_count": np.ma.array(pinned_count[rows], mask=~known),
        }
    )


def _pinned(layout: Layout, alive: pa.Table) -> tuple[Ints, Ints, Ints, list[str]]:
    """Per segment: index of the place with most live bytes (-1: none known), its bytes and blocks; the places."""
    texts = alive["place"].to_pylist()
    places = list(dict.fromkeys(t for t in texts if t))
    number = {text: i for i, text in enumerate(places)}
    code = np.array([number.get(t, -1) for t in texts], dtype=np.int64)
    address = np.asarray(alive["address"].fill_null(0), dtype=np.uint64)
    order = np.argsort(layout.address, kind="stable")
    best = np.full(len(layout.size), -1, dtype=np.int64)
    held, blocks = np.zeros(len(best), dtype=np.int64), np.zeros(len(best), dtype=np.int64)
    if not len(order) or not len(address) or not places:
        return best, held, blocks, places
    inside = order[np.maximum(np.searchsorted(layout.address[order], address, side="right") - 1, 0)]
    key = inside[code >= 0] * len(places) + code[code >= 0]
    distinct, which = np.unique(key, return_inverse=True)
    size = np.bincount(which, integers(alive["size_bytes"])[code >= 0], len(distinct)).astype(np.int64)
    count = np.bincount(which, minlength=len(distinct))
    ascending = np.argsort(size, kind="stable")  # later, larger ones overwrite
    segment, place = np.divmod(distinct[ascending], len(places))
    best[segment], held[segment], blocks[segment] = place, size[ascending], count[ascending]
    return best, held, blocks, places
