"""The mixture of experts: who gets the tokens, how that moved, what all-to-alls carry, and the rounds through experts.

Records of routers tell the load, traces the time and bytes; what was not recorded is left out and said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from diagnose.findings import Diagnosis
from diagnose.report import _expert_figures as draw
from diagnose.report._blocks import UNKNOWN_NAME, Block, Facts, Figure, Grid, Name, Section, Text, columns, known
from diagnose.report._figures import axis_unit
from diagnose.report._text import clean, rank_name
from diagnose.units import show

ORDER = 44
MOST_LAYERS, MOST_EXPERTS, MOST_STEPS, MOST_RANKS, MOST_ROUNDS, MOST_ROWS = 64, 256, 600, 16, 8, 12
_COLLECT = (
    "What routers do was not recorded: log tokens_per_expert, tokens and top-k of every layer and step "
    "(diagnose.live.moe.observe, or JSON lines of your own)."
)
VISIBLE_RATIO = 0.01
"""Pieces of a bar below this are rounding."""
Row = dict[str, Any]


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where nothing says that the job has experts."""
    setup = _rows(tables, "moe_setup")
    if not setup:
        return None
    load, balance = _rows(tables, "router_load"), _rows(tables, "expert_balance")
    counted = max((row["experts_count"] or 0 for row in load), default=0) or None
    blocks: list[Block] = [_facts(setup[0] | {"experts_count": setup[0]["experts_count"] or counted})]
    if load:
        blocks += [_map(_rows(tables, "experts")), *_steps(load), _layers(load)]
    else:
        blocks.append(Text(_COLLECT))
    blocks += _bytes(_rows(tables, "dispatch_bytes"))
    blocks += _rounds(_rows(tables, "expert_rounds"))
    return Section("experts", "Experts", blocks, _lead(load, balance, setup[0]))


def _rows(tables: dict[str, pa.Table], table: str) -> list[Row]:
    found = tables.get(table)
    return found.to_pylist() if found is not None else []


def _lead(load: Sequence[Row], balance: Sequence[Row], setup: Row) -> str:
    said = []
    records = next((row for row in balance if row["source"] == "records"), None)
    if records and records["imbalance_ratio"] is not None:
        forced = ", forced to balance" if setup["forced"] else ""
        said.append(f"The busiest expert gets {records['imbalance_ratio']:.2f} times an even share{forced}")
    said += [_drops(load)] if load else []
    trace = next((row for row in balance if row["source"] == "trace"), None)
    if trace and trace["step_ns"]:
        won = show("gain_ns", trace["gain_ns"])
        said.append(f"perfectly balanced, a step would be {won} shorter ({show('gain_ratio', trace['gain_ratio'])})")
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}." if text else f"The job has experts ({clean(setup['evidence'])})."


def _drops(load: Sequence[Row]) -> str:
    if all(row["dropless"] for row in load):
        return "nothing is dropped by design, so there is no drop rate"
    known = [row for row in load if row["dropped_count"] is not None]
    total = sum(row["assigned_count"] or row["tokens_count"] or 0 for row in known)
    if not known or not total:
        return "how many tokens are dropped is unknown"
    return f"{show('drop_ratio', sum(row['dropped_count'] for row in known) / total)} of the assignments are dropped"


def _facts(setup: Row) -> Facts:
    dropless = {True: "none: dropless", False: "unknown", None: "unknown"}[setup["dropless"]]
    factor = setup["capacity_factor"]
    items = [
        ("Experts", _plain(setup["experts_count"])),
        ("Top-k", _plain(setup["topk"])),
        ("Expert parallel", _plain(setup["ep_size"])),
        ("Ranks per expert", _plain(setup["etp_size"])),
        ("Capacity factor", dropless if factor is None else f"{factor:g}"),
        ("Balancing", UNKNOWN_NAME if setup["balancing"] is None else clean(setup["balancing"])),
        ("Coefficient", UNKNOWN_NAME if setup["aux_loss_coeff"] is None else f"{setup['aux_loss_coeff']:g}"),
        ("Known from", clean(setup["evidence"])),
    ]
    return Facts([item for item in items if item[1] != UNKNOWN_NAME])


def _plain(value: int | None) -> str | Name:
    return UNKNOWN_NAME if value is None else f"{value:,}"


def _map(experts: Sequence[Row]) -> Figure:
    layers = list(dict.fromkeys(row["layer"] for row in experts))
    shown = layers[:MOST_LAYERS]
    width = min(MOST_EXPERTS, 1 + max(row["expert"] for row in experts))
    ratio = {(row["layer"], row["expert"]): row["load_ratio"] for row in experts}
    grid = [[ratio.get((layer, expert)) for expert in range(width)] for layer in shown]
    names = ["all" if layer is None else str(layer) for layer in shown]
    spec = draw.load_map(names, list(range(width)), grid)
    cut = [f"the first {MOST_LAYERS} of {len(layers):,} layers"] if len(shown) < len(layers) else []
    cut += [f"the first {MOST_EXPERTS} experts"] if width < 1 + max(row["expert"] for row in experts) else []
    worst = max(experts, key=lambda row: row["load_ratio"] or 0)
    alt = f"Load of every expert in {len(shown):,} layers; most is {worst['load_ratio'] or 0:.2f} times an even share."
    return Figure("Load of every expert", spec, 160 + min(24 * len(shown), 640), alt,
                  f"Shown: {' and '.join(cut)}." if cut else "")  # fmt: skip


def _steps(load: Sequence[Row]) -> list[Block]:
    """The mean over layers, step by step; left out where only one step was recorded."""
    moments = sorted({(row["segment"] or 0, row["step"]) for row in load if row["step"] is not None})
    if len(moments) < 2:
        return []
    kept = moments[:: -(-len(moments) // MOST_STEPS)]
    of: dict[tuple[int, int], list[Row]] = {}
    for row in load:
        of.setdefault((row["segment"] or 0, row["step"]), []).append(row)
    lines = {}
    for name, column in (("busiest expert", "imbalance_ratio"), ("busiest expert-parallel rank", "ep_imbalance_ratio"),
                         ("by chance", "chance_imbalance_ratio")):  # fmt: skip
        values = [_mean([row[column] for row in of[moment]]) for moment in kept]
        if any(value is not None for value in values):
            lines[name] = ([step for _, step in kept], values)
    note = f"Every {-(-len(moments) // MOST_STEPS)}th step. " if len(kept) < len(moments) else ""
    alt = f"Load over {len(moments):,} steps, mean over layers."
    return [Figure("Load over steps", draw.over_steps(lines), 300, alt, f"{note}Mean over layers.")]


def _mean(values: Sequence[float | None]) -> float | None:
    finite = [value for value in values if value is not None]
    return sum(finite) / len(finite) if finite else None


def _layers(load: Sequence[Row]) -> Grid:
    """Measures per layer, mean over steps, worst first."""
    of: dict[int | None, list[Row]] = {}
    for row in load:
        of.setdefault(row["layer"], []).append(row)
    heads = columns("Layer", ">Busiest / mean", ">Variation", ">Entropy", ">Gini", ">Unused", ">Dropped", "Counted")
    order = sorted(of.items(), key=lambda item: -(_mean([row["imbalance_ratio"] for row in item[1]]) or 0))
    rows = [
        [
            "all" if layer is None else str(layer),
            _ratio(rows, "imbalance_ratio"),
            _ratio(rows, "variation_ratio"),
            _ratio(rows, "entropy_ratio", 3),
            _ratio(rows, "gini_ratio", 3),
            f"{max(row['unused_count'] or 0 for row in rows):,}",
            "none by design" if all(row["dropless"] for row in rows) else _dropped(rows),
            {"routed": "before any drop", "kept": "after the drop"}.get(rows[0]["counted"], "not said"),
        ]
        for layer, rows in order[:MOST_ROWS]
    ]
    more = f"{len(order) - MOST_ROWS:,} more layers." if len(order) > MOST_ROWS else ""
    return known(Grid("Layers", heads, rows, more))


def _ratio(rows: Sequence[Row], column: str, digits: int = 2) -> str | Name:
    mean = _mean([row[column] for row in rows])
    return UNKNOWN_NAME if mean is None else f"{mean:.{digits}f}"


def _dropped(rows: Sequence[Row]) -> str | Name:
    mean = _mean([row["drop_ratio"] for row in rows])
    return UNKNOWN_NAME if mean is None else show("drop_ratio", mean)


def _bytes(budget: Sequence[Row]) -> list[Block]:
    """What an exchange should carry and what it did."""
    measured = [row for row in budget if row["measured_bytes"] is not None]
    if not measured:
        return []
    missing = next((row["missing"] for row in measured if row["missing"]), "")
    bars = [bar for row in measured for bar in _bars(row)]
    title = "What an exchange with experts carries, per rank"
    alt = "; ".join(f"{name}: {show('_bytes', sum(p.values()))}" for name, p in bars)
    note = (
        f"What it should carry is unknown: {clean(missing)} would tell." if missing else "Messages, own share included."
    )
    return [Figure(title, draw.budget(bars), 130 + 44 * len(bars), alt, note)]


def _bars(row: Row) -> list[tuple[str, dict[str, float]]]:
    way = "to experts" if row["way"] == "to" else "back"
    measured = row["measured_bytes"]
    if row["assigned_bytes"] is None:
        return [(f"{way}, measured", {"needed": measured})]
    needed = row["assigned_bytes"] * (row["sent_once_ratio"] or 1) * (row["kept_ratio"] or 1)
    padded = needed * ((row["padding_ratio"] or 1) - 1)
    copied = (needed + padded) * ((row["copies_ratio"] or 1) - 1)
    expected = {"needed": needed, "padding": padded, "copies": copied}
    left = measured
    seen = {}
    for piece, size in expected.items():
        seen[piece] = min(size, left)
        left -= seen[piece]
    seen["unexplained"] = left
    seen["not sent"] = max(0.0, sum(expected.values()) - measured)
    return [
        (f"{way}, expected", expected),
        (f"{way}, measured", {k: v for k, v in seen.items() if v > VISIBLE_RATIO * measured}),
    ]


def _rounds(rounds: Sequence[Row]) -> list[Block]:
    """The first rounds of one step on every rank: exchange, experts, exchange."""
    steps = [row["step"] for row in rounds if row["step"] is not None]
    step = steps[len(steps) // 2] if steps else None
    mine = [row for row in rounds if row["step"] == step and row["round"] < MOST_ROUNDS]
    if not mine:
        return []
    ranks = sorted({row["rank"] for row in mine})[:MOST_RANKS]
    mine = [row for row in mine if row["rank"] in ranks]
    start = min(row["ts_ns"] for row in mine)
    longest = max(row["ts_ns"] - start + _length(row) for row in mine)
    unit, name = axis_unit(float(longest))
    pieces = [("waiting for a rank", "ep_wait", _spans(mine, ranks, start, unit, "wait")),
              ("moving tokens", "ep_transfer", _spans(mine, ranks, start, unit, "move")),
              ("experts compute", "compute", _spans(mine, ranks, start, unit, "work"))]  # fmt: skip
    busiest = [row["busiest_rank"] for row in mine if row["busiest_rank"] is not None]
    often = rank_name(max(sorted(set(busiest)), key=busiest.count)) if busiest else "unknown"
    alt = f"Rounds through the experts of step {step} on {len(ranks)} ranks; the busiest rank is most often {often}."
    note = "Clocks as recorded; experts are drawn right behind their tokens' arrival."
    spec = draw.rounds([rank_name(rank) for rank in ranks], [p for p in pieces if p[2]], name)
    return [Figure("Rounds through the experts", spec, 130 + 30 * len(ranks), alt, note)]


def _length(row: Row) -> int:
    return int(row["dispatch_ns"] + row["expert_ns"] + row["combine_ns"])


def _spans(
    rows: Sequence[Row], ranks: Sequence[int], start: int, unit: float, what: str
) -> list[tuple[int, float, float, str]]:
    found: list[tuple[int, float, float, str]] = []
    for row in rows:
        at = row["ts_ns"] - start
        waits = (row["dispatch_wait_ns"] or 0, row["combine_wait_ns"] or 0)
        behind = at + row["dispatch_ns"] + row["expert_ns"]
        pieces = {
            "wait": [(at, waits[0]), (behind, waits[1])],
            "move": [(at + waits[0], row["dispatch_ns"] - waits[0]), (behind + waits[1], row["combine_ns"] - waits[1])],
            "work": [(at + row["dispatch_ns"], row["expert_ns"])],
        }[what]
        found += [
            (ranks.index(row["rank"]), round(begin / unit, 4), round(length / unit, 4), show("_ns", length))
            for begin, length in pieces
            if length > 0
        ]
    return found
