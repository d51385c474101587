"""What all-to-alls move between every two ranks, and how much more one rank receives than another.

A pair without a cell is unknown, not zero. Sums hold both ways of the tokens (to the experts and back), so they are
nearly symmetric; how unequal single calls are stands beside.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from diagnose.findings import Diagnosis
from diagnose.report._blocks import UNKNOWN_NAME, Figure, Grid, Name, Section, columns, known
from diagnose.report._figures import height
from diagnose.report._figures_ranks import matrix
from diagnose.report._text import rank_name
from diagnose.report._totals import flat, totals
from diagnose.units import show

ORDER = 66
MOST_RANKS = 64
MOST_ROWS = 16
EVEN_RATIO = 1.05
"""Up to here the busiest rank is called as busy as the others."""
Row = dict[str, Any]


def section(diagnosis: Diagnosis, tables: dict[str, pa.Table]) -> Section | None:
    """None where no all-to-all says what goes where."""
    pairs, loads = tables.get("all_to_all_bytes"), tables.get("all_to_all_loads")
    if pairs is None or loads is None or not pairs.num_rows:
        return None
    moved = totals(pairs, ["rank", "peer"], ["size_bytes"], order="size_bytes")
    ranks = _ranks(loads)
    return Section("exchange", "All-to-alls between ranks", [_figure(moved), _grid(ranks)], _lead(moved, ranks))


def _ranks(loads: pa.Table) -> list[Row]:
    """Per rank: calls, bytes each way, what stays, and the most and mean of what it receives over the even share."""
    given = flat(loads, ["rank", "sent_bytes", "received_bytes", "own_bytes", "received_ratio"])
    sums = [(name, "sum") for name in ("sent_bytes", "received_bytes", "own_bytes")]
    found = given.group_by("rank").aggregate(
        [*sums, ("rank", "count"), ("received_ratio", "max"), ("received_ratio", "mean")]
    )
    rows: list[Row] = found.to_pylist()
    return sorted(rows, key=lambda r: (-(r["received_ratio_max"] or 0), -(r["received_bytes_sum"] or 0), r["rank"]))


def _lead(moved: list[Row], ranks: list[Row]) -> str:
    away = sum(row["size_bytes"] for row in moved if row["rank"] != row["peer"])
    whole = sum(row["size_bytes"] for row in moved)
    said = f"{show('size_bytes', away)} cross between ranks over the recording"
    said += f", {show('_ratio', away / whole)} of all that is exchanged" if whole else ""
    worst = ranks[0]
    most = worst["received_ratio_max"]
    if most is None:
        return f"{said}. How uneven calls are is unknown: not all ranks of a group were recorded."
    if most <= EVEN_RATIO:
        return f"{said}, evenly."
    return f"{said}. In the most uneven call {rank_name(worst['rank'])} receives {most:.2f} times an even share."


def _figure(moved: list[Row]) -> Figure:
    """Sender by receiver; of many ranks those that move most."""
    busy: dict[int, int] = {}
    for row in moved:
        for rank in (row["rank"], row["peer"]):
            busy[rank] = busy.get(rank, 0) + row["size_bytes"]
    shown = sorted(sorted(busy, key=lambda r: (-busy[r], r))[:MOST_RANKS])
    place = {rank: i for i, rank in enumerate(shown)}
    cells: list[list[int | None]] = [[None] * len(shown) for _ in shown]
    for row in moved:
        if row["rank"] in place and row["peer"] in place:
            cells[place[row["rank"]]][place[row["peer"]]] = row["size_bytes"]
    left = len(busy) - len(shown)
    note = "Over the recording. The diagonal stays on its rank and crosses no link."
    note += f" The {len(shown)} busiest of {len(busy):,} ranks." if left > 0 else ""
    alt = f"Bytes from each of {len(shown)} ranks to each."
    return Figure("Bytes by sender and receiver", matrix([rank_name(r) for r in shown], cells),
                  max(300, height(len(shown)) - 60), alt, note)  # fmt: skip


def _grid(ranks: list[Row]) -> Grid:
    heads = columns("Rank", ">Calls", ">Sends", ">Keeps", ">Receives", ">Mean share", ">Most in one call")
    rows = [
        [
            rank_name(row["rank"]),
            f"{row['rank_count']:,}",
            *(_bytes(row[f"{name}_bytes_sum"]) for name in ("sent", "own", "received")),
            _times(row["received_ratio_mean"]),
            _times(row["received_ratio_max"]),
        ]
        for row in ranks[:MOST_ROWS]
    ]
    more = f"{len(ranks) - MOST_ROWS:,} more ranks. " if len(ranks) > MOST_ROWS else ""
    note = f"{more}Shares are what arrives over the mean of the ranks in the same call: 1 is even."
    return known(Grid("Ranks by the most that one call brings them", heads, rows, note))


def _bytes(value: int | None) -> str | Name:
    return UNKNOWN_NAME if value is None else show("size_bytes", value)


def _times(value: float | None) -> str | Name:
    return UNKNOWN_NAME if value is None else f"{value:.2f} x"
