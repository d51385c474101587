"""Bytes that exchanges with experts carry, against what the model says they should: the byte budget, one row a way.

`assigned_bytes` is tokens x top-k x hidden x element of one rank and exchange; padding, copies and deduplication that
the settings tell are factors on it, and `expected_bytes` is the product. What is left over (`unexplained_ratio`) has
another cause: tokens sent to replicas of an expert, wider elements than said, more padding than said, or a wrong fact.
Bytes are messages, the rank's own share included; `leaving_bytes` is what went to other ranks where split sizes tell.
Where a number is missing nothing is expected, and `missing` says which. Backward exchanges carry as much as forward
ones, but their elements may be wider: backward ones do not count where phases are known, and of several widths only
the narrowest does.

Method: mean over calls and ranks (`exchanges`); formulas in `formulas.moe`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.formulas import moe
from diagnose.schema import FLOAT, INT64, LABEL, TEXT, table

SCHEMA = table(
    "way of exchanges with experts (to them, back): measured bytes against expected ones, per exchange and rank",
    ("way", LABEL, "to | back"),
    ("calls_count", INT64, "exchanges behind the mean"),
    ("ranks_count", INT64, "ranks behind it"),
    ("group_size", INT64, "ranks that exchange; null where unknown"),
    ("measured_bytes", INT64, "message, mean over calls and ranks; null where no size was recorded"),
    ("leaving_bytes", INT64, "of it, what went to other ranks; null where no splits tell"),
    ("assigned_bytes", INT64, "tokens x top-k x hidden x element"),
    ("tokens_count", INT64, "tokens per rank and exchange"),
    ("topk", INT64, "experts per token"),
    ("hidden", INT64, "width of a token"),
    ("element_width", FLOAT, "bytes per element, scales included"),
    ("recorded_width", FLOAT, "bytes per element as the calls say"),
    ("padding_ratio", FLOAT, "rows sent over rows assigned, by the capacity (1: not padded)"),
    ("kept_ratio", FLOAT, "of the assignments, those that were not dropped before sending"),
    ("copies_ratio", FLOAT, "ranks that share an expert and each get the token"),
    ("sent_once_ratio", FLOAT, "saved by sending a token once to a rank with several of its experts (1: not saved)"),
    ("expected_bytes", INT64, "assigned_bytes times all of these"),
    ("expected_leaving_bytes", INT64, "of it, what leaves the rank at an even load"),
    ("measured_ratio", FLOAT, "measured over assigned"),
    ("unexplained_ratio", FLOAT, "measured over expected"),
    ("missing", TEXT, "numbers that would be needed; empty where all are known"),
)
_WIDTH = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8, "int8": 1, "uint8": 1}
_KEYS = {
    "tokens_count": "tokens per rank (train.micro_batch and model.seq_len)",
    "topk": "model.topk", "hidden": "model.hidden",
    "element_width": "the element type (train.dispatch_dtype, train.combine_dtype)", "experts_count": "model.experts",
    "capacity_factor": "model.capacity_factor",
}  # fmt: skip


PADDED_ERROR = 0.01
"""Bytes this near to the capacity's are taken for padded where no setting says whether they are."""


def dispatch_bytes(
    exchanges: pa.Table,
    moe_setup: pa.Table,
    all_to_all_loads: pa.Table | None = None,
    router_calls: pa.Table | None = None,
    router_load: pa.Table | None = None,
) -> pa.Table:
    """At most two rows: exchanges to the experts, and back."""
    setup = moe_setup.to_pylist()[0] if moe_setup.num_rows else {}
    setup["tokens_count"] = setup.get("tokens_count") or _tokens(router_calls, exchanges)
    kept = _kept(router_load, exchanges)
    rows = [row for way in ("to", "back") if (row := _row(way, exchanges, all_to_all_loads, setup, kept))]
    whole = {c.name for c in SCHEMA.columns if c.name.endswith("_bytes")}
    return SCHEMA.build(
        {
            name: [round(v) if (v := row.get(name)) is not None and name in whole else v for row in rows]
            for name in SCHEMA.arrow.names
        }
    )


def _tokens(calls: pa.Table | None, exchanges: pa.Table) -> int | None:
    """Tokens per exchange from router records; one record may stand for several exchanges (micro-batches, chunks)."""
    if calls is None or not calls.num_rows or calls["tokens_entered_count"].null_count or calls["rank"].null_count:
        return None
    out = exchanges.filter(pc.equal(exchanges["way"].cast(pa.string()), "to"))
    out = out.filter(pc.invert(pc.equal(out["phase"].cast(pa.string()), "backward").fill_null(False)))
    of_step = [_per_step(rows) for rows in (out, calls)]
    several = of_step[0] / of_step[1] if all(of_step) else 1.0
    if several < 1 or several != round(several):
        return None
    return round(float(pc.mean(calls["tokens_entered_count"]).as_py()) / several)


def _per_step(rows: pa.Table) -> float:
    """Rows per rank and step, the same everywhere; 0 where they differ."""
    counts = pc.unique(rows.group_by(["rank", "step"]).aggregate([([], "count_all")])["count_all"]).to_pylist()
    return float(counts[0]) if len(counts) == 1 else 0.0


def _kept(load: pa.Table | None, exchanges: pa.Table) -> float | None:
    """Share of assignments that experts worked on, in the traced steps if recorded; None where drops are unknown."""
    if load is None or not load.num_rows:
        return None
    traced = load.filter(pc.is_in(load["step"], pc.unique(exchanges["step"])))
    load = traced if traced.num_rows else load
    if pc.all(load["dropless"].fill_null(False)).as_py():
        return 1.0
    assigned, dropped = load["assigned_count"], load["dropped_count"]
    if assigned.null_count or dropped.null_count or not pc.sum(assigned).as_py():
        return None
    return 1 - float(pc.sum(dropped).as_py()) / float(pc.sum(assigned).as_py())


def _row(
    way: str, exchanges: pa.Table, loads: pa.Table | None, setup: dict[str, Any], kept: float | None
) -> dict[str, Any] | None:
    mine = exchanges.filter(pc.equal(exchanges["way"].cast(pa.string()), way))
    backward = pc.equal(mine["phase"].cast(pa.string()), "backward").fill_null(False)
    forward = mine.filter(pc.invert(backward))
    mine = _narrowest(forward if forward.num_rows else mine)
    if not mine.num_rows:
        return None
    carried = mine["sent_bytes"] if way == "to" else mine["received_bytes"]
    if carried.null_count == len(carried):
        carried = mine["sent_bytes"]
    sizes = set(mine["group_size"].drop_null().to_pylist())
    widths = {_width(d) for d in pc.unique(mine["dtype"].cast(pa.string())).to_pylist()}
    row: dict[str, Any] = {
        "way": way, "calls_count": mine.num_rows, "ranks_count": len(pc.unique(mine["rank"])),
        "group_size": sizes.pop() if len(sizes) == 1 else None,
        "measured_bytes": pc.mean(carried).as_py(),
        "recorded_width": widths.pop() if len(widths) == 1 else None,
        "leaving_bytes": _leaving(mine, loads),
    }  # fmt: skip
    return row | _expected(way, row, setup, kept)


def _narrowest(mine: pa.Table) -> pa.Table:
    """Of exchanges with elements of several widths those of the narrowest: gradients go in the wider type."""
    width = {dtype: _width(dtype) for dtype in pc.unique(mine["dtype"].cast(pa.string())).to_pylist()}
    known = {w for w in width.values() if w is not None}
    if len(known) < 2:
        return mine
    least = pa.array([dtype for dtype, w in width.items() if w == min(known)], pa.string())
    return mine.filter(pc.is_in(mine["dtype"].cast(pa.string()), least))


def _width(dtype: str | None) -> float | None:
    return 1.0 if (dtype or "").startswith("float8") else _WIDTH.get(dtype or "")


def _leaving(mine: pa.Table, loads: pa.Table | None) -> float | None:
    if loads is None:
        return None
    told = loads.filter(pc.is_in(loads["event_id"], mine["event_id"].combine_chunks()))
    away = pc.subtract(told["sent_bytes"], told["own_bytes"]).drop_null()
    return pc.mean(away).as_py() if len(away) == mine.num_rows else None


def _expected(way: str, row: dict[str, Any], setup: dict[str, Any], kept: float | None) -> dict[str, Any]:
    given = setup.get("dispatch_element_width" if way == "to" else "combine_element_width")
    facts = {
        "tokens_count": setup.get("tokens_count"), "topk": setup.get("topk"), "hidden": setup.get("hidden"),
        "element_width": given or row["recorded_width"],
    }  # fmt: skip
    needed = [_KEYS[name] for name, value in facts.items() if value is None]
    padded, experts, factor = (setup.get(k) for k in ("padded", "experts_count", "capacity_factor"))
    if padded:
        needed += [_KEYS[n] for n in ("experts_count", "capacity_factor") if setup.get(n) is None]
    found: dict[str, Any] = {**facts, "missing": ", ".join(needed)}
    if needed:
        return found
    tokens, topk, hidden, element = facts.values()
    padding = moe.padding_ratio(tokens, topk, experts, factor) if factor and experts else 1.0
    if padded is None and factor and row["measured_bytes"]:  # DeepSpeed pads and does not say so
        plain = row["measured_bytes"] / (tokens * topk * hidden * element)
        padded = abs(plain / padding - 1) < PADDED_ERROR
    padding = padding if padded else 1.0
    copies = _copies(row["group_size"], setup)
    once = 1.0
    if experts and row["group_size"] and setup.get("dispatcher") == "deepep":
        once = _once(topk, experts, row["group_size"], setup)
    kept_ratio = 1.0 if padded or setup.get("dropless") else kept
    sent = padding * copies * once * (1.0 if kept_ratio is None else kept_ratio)
    one = moe.exchange(tokens, topk, hidden, element, row["group_size"] or 1, sent)
    measured = row["measured_bytes"]
    return found | {
        "assigned_bytes": one.assigned_bytes, "padding_ratio": padding, "copies_ratio": copies,
        "sent_once_ratio": once, "kept_ratio": kept_ratio, "expected_bytes": one.message_bytes,
        "expected_leaving_bytes": one.leaving_bytes if row["group_size"] else None,
        "measured_ratio": measured / one.assigned_bytes if measured is not None else None,
        "unexplained_ratio": measured / one.message_bytes if measured is not None else None,
    }  # fmt: skip


def _once(topk: int, experts: int, ep: int, setup: dict[str, Any]) -> float:
    """Distinct ranks over k; routing limited to some groups chooses among their experts only."""
    groups, limit = setup.get("groups_count"), setup.get("group_limit")
    if groups and limit and limit < groups and ep % groups == 0 and experts % groups == 0:
        experts, ep = experts // groups * limit, ep // groups * limit
    return moe.ranks_per_token(topk, experts, ep) / topk


def _copies(group_size: int | None, setup: dict[str, Any]) -> float:
    """Ranks of an expert that each get the token in the exchange itself: where it spans them all."""
    ep, etp = setup.get("ep_size"), setup.get("etp_size") or 1
    return float(etp) if group_size and ep and etp > 1 and group_size == ep * etp else 1.0
