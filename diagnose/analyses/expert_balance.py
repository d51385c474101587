"""How balanced experts are over the run and what that costs: a row from router records, from traces, from splits.

Ratios are means over layers and steps; of records, the worst layer's own mean stands beside. `gain_ns` is what a step
would be shorter with an even load (`expert_rounds`), mean over the steps of the rounds: the longest rank's work in a
round down to the mean. Only traces of all ranks tell it; from records alone the time is unknown, not zero. Where ranks
are missing, split sizes of the recorded ones still tell where their own tokens go.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from diagnose.analyses._columns import Ints, integers
from diagnose.formulas.load import Floats
from diagnose.schema import BOOL, FLOAT, INT32, INT64, LABEL, table

SCHEMA = table(
    "source that tells the balance of experts",
    ("source", LABEL, "records: router records | trace: times and bytes of all ranks | splits: tokens of some ranks"),
    ("steps_count", INT64, "steps behind it"),
    ("layers_count", INT64, "layers (of a trace: rounds of a step)"),
    ("imbalance_ratio", FLOAT, "busiest expert over mean; null in traces"),
    (
        "ep_imbalance_ratio",
        FLOAT,
        "busiest expert-parallel rank over mean; of a trace: bytes that the "
        "rank whose experts take longest receives, over the mean",
    ),
    ("chance_imbalance_ratio", FLOAT, "imbalance that an even router shows by chance; null in traces"),
    ("early_ratio", FLOAT, "imbalance_ratio of the first third of the steps; null where fewer than three"),
    ("late_ratio", FLOAT, "imbalance_ratio of the last third of the steps"),
    ("worst_layer", INT32, "layer with the largest mean imbalance"),
    ("worst_ratio", FLOAT, "its imbalance_ratio"),
    ("busiest_ep_rank", INT32, "place in the expert-parallel group that is most often busiest; null where unknown"),
    ("busiest_rank", INT32, "rank that is most often busiest, by time; null in records"),
    ("expert_ns", INT64, "compute of experts in a step, mean over ranks; null in records"),
    ("busiest_expert_ns", INT64, "the same, each round on its busiest rank; null in records"),
    ("wait_ns", INT64, "waiting for the busiest rank in exchanges back, per step and rank; null in records"),
    ("transfer_ns", INT64, "exchanges without waiting, per step and rank; null in records"),
    ("gain_ns", INT64, "what a step would gain from an even load; null in records"),
    ("step_ns", INT64, "mean step of the longest rank; null where unknown"),
    ("gain_ratio", FLOAT, "gain over step"),
    ("forced", BOOL, "the router is overruled to an even load: says nothing about training"),
)


def expert_balance(
    moe_setup: pa.Table,
    router_load: pa.Table,
    expert_rounds: pa.Table,
    exchanges: pa.Table,
    spans: pa.Table | None = None,
) -> pa.Table:
    """At most one row per source; splits only where not all ranks were traced."""
    forced = moe_setup["forced"].to_pylist()[0] if moe_setup.num_rows else None
    rows = [_of_records(router_load)] if router_load.num_rows else []
    rows += _of_trace(expert_rounds, spans) or _of_splits(exchanges)
    return SCHEMA.build({name: [(row | {"forced": forced}).get(name) for row in rows] for name in SCHEMA.arrow.names})


def _of_records(load: pa.Table) -> dict[str, Any]:
    """Counts from before a drop where there are any: those from after it look more even than the router is."""
    whole = load.filter(pc.not_equal(load["counted"].cast(pa.string()), "kept"))
    load = whole if whole.num_rows else load
    step = integers(load["segment"]) * (1 << 40) + integers(load["step"], 0)
    layer, ratio = integers(load["layer"], -1), _floats(load, "imbalance_ratio")
    moments = np.unique(step)
    third = len(moments) // 3
    layers = np.unique(layer)
    means = np.array([_mean(ratio[layer == one]) for one in layers.tolist()])
    worst = int(np.nanargmax(means)) if np.isfinite(means).any() else None
    places = [p for p in load["busiest_ep_rank"].to_pylist() if p is not None]
    return {
        "source": "records", "steps_count": len(moments), "layers_count": len(layers),
        "imbalance_ratio": _known(_mean(ratio)),
        "ep_imbalance_ratio": _known(_mean(_floats(load, "ep_imbalance_ratio"))),
        "chance_imbalance_ratio": _known(_mean(_floats(load, "chance_imbalance_ratio"))),
        "early_ratio": _known(_mean(ratio[step < moments[third]])) if third else None,
        "late_ratio": _known(_mean(ratio[step >= moments[-third]])) if third else None,
        "worst_layer": int(layers[worst]) if worst is not None and layers[worst] >= 0 else None,
        "worst_ratio": _known(means[worst]) if worst is not None else None,
        "busiest_ep_rank": max(sorted(set(places)), key=places.count) if places else None,
    }  # fmt: skip


def _of_trace(rounds: pa.Table, spans: pa.Table | None) -> list[dict[str, Any]]:
    """Sums over the rounds of the analysed steps, per step."""
    known = rounds.filter(pc.is_valid(rounds["balanced_gain_ns"]))
    if spans is not None and spans.num_rows and not spans["step"].null_count:
        known = known.filter(pc.is_in(known["step"], spans["step"].combine_chunks()))
    if not known.num_rows:
        return []
    match, rank = integers(known["match"]), integers(known["rank"])
    steps = len(pc.unique(known["step"]))
    _, first = np.unique(match, return_index=True)
    calls = len(first)
    per_step = calls / steps
    ranks = len(np.unique(rank))

    def of_calls(name: str) -> Ints:
        return integers(known[name], 0)[first]

    busiest = of_calls("busiest_rank")
    longest = np.maximum.reduceat(integers(known["expert_ns"])[np.argsort(match, kind="stable")], _heads(match))
    gain = round(float(of_calls("balanced_gain_ns").sum()) / steps)
    step_ns = pc.max(spans["mean_ns"]).as_py() if spans is not None and spans.num_rows else None
    dispatch, combine = integers(known["dispatch_ns"]), integers(known["combine_ns"])
    waits = [integers(known[name], 0) for name in ("dispatch_wait_ns", "combine_wait_ns")]
    row = {
        "source": "trace", "steps_count": steps, "layers_count": round(per_step),
        "ep_imbalance_ratio": _known(_mean(_floats(known, "received_imbalance_ratio")[first])),
        "busiest_rank": int(np.bincount(busiest).argmax()) if (busiest >= 0).all() else None,
        "expert_ns": round(float(of_calls("mean_expert_ns").sum()) / steps),
        "busiest_expert_ns": round(float(longest.sum()) / steps),
        "wait_ns": round(float(waits[1].sum()) / steps / ranks),
        "transfer_ns": round(float((dispatch + combine - waits[0] - waits[1]).sum()) / steps / ranks),
        "gain_ns": min(gain, step_ns) if step_ns else gain, "step_ns": step_ns,
        "gain_ratio": min(1.0, gain / step_ns) if step_ns else None,
    }  # fmt: skip
    return [row]


def _of_splits(exchanges: pa.Table) -> list[dict[str, Any]]:
    """Tokens that recorded ranks send to each place of their group, exchange by exchange."""
    chosen = pc.and_(pc.equal(exchanges["way"].cast(pa.string()), "to"), pc.is_valid(exchanges["in_splits"]))
    mine = exchanges.filter(chosen.fill_null(False))
    sent: dict[tuple[Any, ...], NDArray[np.float64]] = {}
    keys = zip(*(mine[c].to_pylist() for c in ("group", "step", "place", "in_splits")), strict=True)
    for group, step, place, text in keys:
        if text and "..." not in text:
            sizes = np.array(json.loads(text), np.float64)
            before = sent.get((group, step, place), np.zeros(len(sizes)))
            if len(before) == len(sizes):
                sent[group, step, place] = before + sizes
    ratios = [float(v.max() / v.mean()) for v in sent.values() if v.sum() > 0 and len(v) > 1]
    if not ratios:
        return []
    busiest = [int(v.argmax()) for v in sent.values() if v.sum() > 0]
    row = {
        "source": "splits", "steps_count": len(pc.unique(mine["step"])), "layers_count": len(ratios),
        "ep_imbalance_ratio": float(np.mean(ratios)), "busiest_ep_rank": max(sorted(set(busiest)), key=busiest.count),
    }  # fmt: skip
    return [row]


def _heads(match: Ints) -> Ints:
    ordered = np.sort(match, kind="stable")
    found: Ints = np.flatnonzero(np.r_[True, np.diff(ordered) != 0])
    return found


def _floats(rows: pa.Table, name: str) -> Floats:
    return np.asarray(rows[name].fill_null(np.nan), np.float64)


def _mean(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None
