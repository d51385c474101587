"""Router records settled: are counts from before or after a drop, how many were dropped, is a record counted twice.

Per record (one router call): where it does not say, counts that sum to tokens x top-k, or exceed the capacity, are from
before a drop (*routed*); counts that all fit the capacity and sum to less are what was *kept*, and the rest was
dropped. Twice tokens x top-k is a call that recomputation counted again, and is halved. What none of this tells is
*unknown*, and so is its number of drops. Capacity is ceil(factor x tokens x top-k / experts). Dropless calls have no
drops at all: null, not zero.
Source of the trap: https://github.com/deepseek-ai/DeepSeek-MoE/issues/29 (a log of counts after the cut reads "0
dropped").
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Flags, Ints, codes, dictionary, flags, integers, lookup, take
from diagnose.formulas.load import Floats

COUNTED = ("routed", "kept", "unknown")
ROUTED, KEPT, UNKNOWN = range(3)
_FILE_RECORDS = 1 << 40
_NOT_TRAINING = ("recompute", "eval")


class Calls(NamedTuple):
    """Router calls of training, one row per record; -1 is unknown."""

    step: Ints
    layer: Ints
    segment: Ints
    rank: Ints
    experts: Ints
    topk: Ints
    assigned: Ints
    capacity: Ints
    dropped: Ints
    counted: Ints  # index in COUNTED
    dropless: Flags
    ep_size: Ints
    doubled: Flags
    inconsistent: Flags


class Counts(NamedTuple):
    """One row per call and expert."""

    call: Ints
    expert: Ints
    value: Ints  # before the drop where known, else as recorded
    kept: Ints  # -1: unknown


def resolve(router: pa.Table, router_calls: pa.Table, moe_setup: pa.Table) -> tuple[Calls, Counts]:
    """Calls and counts; evaluation, recomputation and repeated records of all ranks together are left out."""
    setup: dict[str, Any] = moe_setup.to_pylist()[0] if moe_setup.num_rows else {}
    key = integers(router_calls["file"], -1) * _FILE_RECORDS + integers(router_calls["record"])
    order = np.argsort(key, kind="stable")
    at = lookup(key[order], integers(router["file"], -1) * _FILE_RECORDS + integers(router["record"]))
    call = take(order, at, -1)
    training = _training(router_calls)
    used = (call >= 0) & training[call]
    of, expert = call[used], integers(router["expert"])[used]
    routed, kept, told = (integers(router[c], -1)[used] for c in ("routed_count", "kept_count", "tokens_count"))
    value = np.where(routed >= 0, routed, np.where(told >= 0, told, kept))
    kind = np.where(routed >= 0, ROUTED, np.where(told >= 0, UNKNOWN, KEPT))
    calls, value = _settled(router_calls, setup, _Given(of, expert, value, kept, kind))
    kept = _kept(calls, of, value, kept)
    chosen = np.flatnonzero(np.bincount(of, minlength=router_calls.num_rows) > 0)
    place = np.full(router_calls.num_rows, -1, np.int64)
    place[chosen] = np.arange(len(chosen))
    picked: dict[str, Any] = {name: column[chosen] for name, column in calls._asdict().items()}
    return Calls(**picked), Counts(place[of], expert, value, kept)


class _Given(NamedTuple):
    of: Ints
    expert: Ints
    value: Ints
    kept: Ints
    kind: Ints


def _training(calls: pa.Table) -> Flags:
    """Calls of training; of records that cover all ranks, the first per step and layer."""
    names = [name in _NOT_TRAINING for name in dictionary(calls["phase"])]
    wanted = ~np.array(names, bool)[codes(calls["phase"])]
    whole = np.array([name == "all" for name in dictionary(calls["scope"])], bool)[codes(calls["scope"])]
    if whole.any():
        where = np.stack([integers(calls[c], -1) for c in ("segment", "step", "layer")])
        _, first = np.unique(where[:, whole], axis=1, return_index=True)
        repeated = np.ones(int(whole.sum()), bool)
        repeated[first] = False
        wanted[np.flatnonzero(whole)[repeated]] = False
    return wanted


def _settled(calls: pa.Table, setup: dict[str, Any], given: _Given) -> tuple[Calls, Ints]:
    count = calls.num_rows
    total = np.bincount(given.of, given.value, count).astype(np.int64)
    largest, highest = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    np.maximum.at(largest, given.of, given.value)
    np.maximum.at(highest, given.of, given.expert)
    topk = integers(calls["topk"].fill_null(setup.get("topk") or -1), -1)
    experts = np.maximum(integers(calls["experts_count"].fill_null(setup.get("experts_count") or -1), -1), highest + 1)
    entered = integers(calls["tokens_entered_count"], -1)
    assigned = np.where((entered >= 0) & (topk > 0), entered * topk, -1)
    dropless, capacity = _capacity(calls, setup, assigned, experts)
    doubled = (assigned > 0) & (total == 2 * assigned)
    value = np.where(doubled[given.of], given.value // 2, given.value)
    total, largest = np.where(doubled, total // 2, total), np.where(doubled, largest // 2, largest)
    kind = np.full(count, UNKNOWN, np.int64)
    kind[given.of] = given.kind
    whole = (assigned >= 0) & (total == assigned)
    over = (capacity >= 0) & (largest > capacity)
    cut = (assigned >= 0) & (capacity >= 0) & (total < assigned) & ~over
    counted = np.where(kind != UNKNOWN, kind, np.where(whole | over | dropless, ROUTED, np.where(cut, KEPT, UNKNOWN)))
    told = integers(calls["dropped_count"], -1)
    dropped = _dropped(given._replace(value=value), counted, (total, assigned, capacity), told)
    wrong = (told >= 0) & (dropped >= 0) & (told != dropped) | (assigned >= 0) & (total > assigned) & ~dropless
    return Calls(
        integers(calls["step"], -1), integers(calls["layer"], -1), integers(calls["segment"], 0),
        integers(calls["rank"], -1), experts, topk, assigned, capacity, np.where(dropless, -1, dropped), counted,
        dropless, integers(calls["ep_size"].fill_null(setup.get("ep_size") or -1), -1), doubled, wrong & ~dropless,
    ), value  # fmt: skip


def _capacity(calls: pa.Table, setup: dict[str, Any], assigned: Ints, experts: Ints) -> tuple[Flags, Ints]:
    """Whether a call is dropless, and the room of each expert (-1: unknown or none)."""
    factor = np.asarray(calls["capacity_factor"].fill_null(np.nan), np.float64)
    told = integers(calls["capacity_count"], -1)
    own = np.isfinite(factor) | (told >= 0) | (integers(calls["dropped_count"], 0) > 0)
    dropless = flags(calls["dropless"]) | (bool(setup.get("dropless")) & ~own)
    factor = np.where(np.isfinite(factor), factor, setup.get("capacity_factor") or np.nan)
    known = np.isfinite(factor) & (assigned >= 0) & (experts > 0)
    room: Floats = np.ceil(np.round(assigned * np.where(known, factor, 0.0) / np.maximum(experts, 1), 9))
    return dropless, np.where(dropless, -1, np.where(told >= 0, told, np.where(known, room, -1))).astype(np.int64)


def _dropped(given: _Given, counted: Ints, sums: tuple[Ints, Ints, Ints], told: Ints) -> Ints:
    """Assignments dropped per call; -1 where neither counts nor the record tell."""
    total, assigned, capacity = sums
    count = len(total)
    over = np.bincount(given.of, np.maximum(given.value - capacity[given.of], 0), count).astype(np.int64)
    both = np.bincount(given.of, given.kept < 0, count) == 0
    lost = np.bincount(given.of, given.value - given.kept, count).astype(np.int64)
    from_both = both & (counted == ROUTED)
    return np.select(
        [from_both, (counted == ROUTED) & (capacity >= 0), (counted == KEPT) & (assigned >= 0), told >= 0],
        [lost, over, assigned - total, told], -1,
    )  # fmt: skip


def _kept(calls: Calls, of: Ints, value: Ints, kept: Ints) -> Ints:
    """What each expert worked on, where it is known."""
    counted, room = calls.counted[of], calls.capacity[of]
    bounded = np.where(room >= 0, np.minimum(value, room), -1)
    fallback = np.where(calls.dropless[of], value, np.where(counted == KEPT, value, bounded))
    return np.where(kept >= 0, kept, np.where((counted == UNKNOWN) & ~calls.dropless[of], -1, fallback))
