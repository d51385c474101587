"""Columns `class` and `category` of device work: the judgements of `_classify`, with the evidence of one rank.

Evidence beyond the name: the collective's record on the kernel or on the operator it is linked to, and the operators
that launched kernels of that name anywhere in the recording (work in flight has no launch of its own).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._classify import (
    CLASSES,
    UserPatterns,
    computes,
    copy_category,
    is_comm_operator,
    label_of_name,
    operation_of_name,
)
from diagnose.analyses._columns import Flags, Ints, codes, dictionary, flags, integers, label, lookup
from diagnose.analyses._work import NEVER, Work, of_kind


def classified(
    events: pa.Table, work: Work, name: Ints, op: pa.Array, recorded: Ints, patterns: UserPatterns
) -> tuple[pa.Array, pa.Array]:
    """Columns `class` and `category`.

    `name` is the code of each piece's name in `events`, `op` the operator open at its launch, `recorded` the ids of
    events that carry a collective's record.
    """
    names = dictionary(events["name"])
    kind_names, kind = dictionary(events["kind"]), codes(events["kind"])[work.row]
    place_of: dict[str, int] = {}
    classes, places = np.empty(len(name), np.int64), np.empty(len(name), np.int64)
    documented = _documented(events, work, recorded)
    pair = kind * len(names) + name
    for code, rows in _groups(pair):
        text, sort = names[code % len(names)], kind_names[code // len(names)]
        found = _label(text, sort, documented[rows], op, rows, patterns)
        comm = CLASSES.index("comm")
        classes[rows] = CLASSES.index(found[0])
        places[rows] = place_of.setdefault(found[1], len(place_of))
        own = rows[documented[rows]]
        if found[0] not in ("comm", "copy") and len(own):
            classes[own], places[own] = comm, place_of.setdefault(operation_of_name(text), len(place_of))
    return label(list(CLASSES), classes), label(list(place_of), places)


def _groups(values: Ints) -> list[tuple[int, Ints]]:
    """(value, rows that hold it) per distinct value."""
    order = np.argsort(values, kind="stable")
    distinct, first = np.unique(values[order], return_index=True)
    return list(zip(distinct.tolist(), np.split(order, first[1:]), strict=True))


def _label(
    text: str, kind: str, documented: Flags, op: pa.Array, rows: Ints, patterns: UserPatterns
) -> tuple[str, str]:
    """(class, category) that the rows of one name and kind share."""
    if kind in ("memcpy", "memset"):
        category = copy_category(text, kind == "memset")
        peer = category == "memcpy_p2p" and all(map(is_comm_operator, _operators(op, rows)))
        return ("comm", "memcpy_p2p") if peer and len(rows) and _operators(op, rows) else ("copy", category)
    if kind == "comm":
        return "comm", operation_of_name(text)
    found = label_of_name(text, patterns)
    if found.kind != "unclassified":
        return found
    if documented.any():
        return "comm", operation_of_name(text)
    operators = _operators(op, rows)
    if operators and all(o == "record_param_comms" or o.startswith("nccl:") for o in operators):
        return "comm", operation_of_name(text)
    return ("compute", "other") if computes(text, operators) else ("unclassified", "unclassified")


def _operators(op: pa.Array, rows: Ints) -> list[str]:
    """Distinct operators open at the launches of the rows."""
    return [o for o in op.take(pa.array(rows)).unique().to_pylist() if o]


def _documented(events: pa.Table, work: Work, recorded: Ints) -> Flags:
    """Pieces that carry a collective's record, or are linked to an operator that is one."""
    own = lookup(recorded, integers(events["event_id"].take(work.row))) >= 0
    ops = of_kind(events, "op")
    names = np.array([n == "record_param_comms" for n in dictionary(events["name"])], bool)
    records = ops[names[codes(events["name"])[ops]]] if len(ops) else ops
    linked = events["external_id"].take(records) if len(records) else None
    if linked is None or linked.null_count == len(linked):
        return own
    known = np.unique(integers(linked.drop_null()))
    external = events["external_id"].take(work.row)
    return own | ((lookup(known, integers(external, NEVER)) >= 0) & flags(external.is_valid()))
