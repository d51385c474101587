"""The table of a running job's ranks, as `diagnose attach` shows it."""

from __future__ import annotations

import json as codec
from typing import Any

from diagnose.live.watching import is_stale, slowest
from diagnose.units import duration, size


def grid(title: str, rows: list[dict[str, Any]], problems: list[str]) -> Any:
    """The table of a job's ranks, what stands out below it."""
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table

    shown = 40
    shown_rows = Table(box=None, header_style="bold", pad_edge=False)
    for name in (
        "rank",
        "host",
        "state",
        "step",
        "step time",
        "slow (p90)",
        "input",
        "comm",
        "gc",
        "memory",
        "last step",
        "hook",
    ):
        shown_rows.add_column(name, justify="left" if name in ("host", "state") else "right")
    for row in rows[:shown]:
        stale = is_stale(row)
        shown_rows.add_row(
            text(row["rank"]), escape(str(row["host"])), row.get("problem") or ("stale" if stale else row["state"]),
            text(row["step"]), _time(row["step_ns"]), _time(row["slow_step_ns"]), _share(row["input_ratio"]),
            _share(row["comm_ratio"]), _share(row["gc_ratio"]), memory(row), age(row["age_ns"]),
            _share(row["hook_ratio"], 2),
            style="red" if stale or row["state"] in ("dead", "stopped") else None,
        )  # fmt: skip
    lines: list[Any] = [f"[bold]{escape(title)}[/]  {len(rows)} ranks", shown_rows]
    if len(rows) > shown:
        lines.append(f"... {len(rows) - shown:,} more ranks (--json has all)")
    slow = slowest(rows)
    if slow is not None:
        lines.append(
            f"[yellow]rank {slow['rank']} works longest: {_time(slow['own_ns'])} of a step; the others wait[/]"
        )
    lines += [f"[yellow]{escape(p)}[/]" for p in problems[:5]]
    if not rows:
        lines.append("no rank has ended a step yet, or the job runs without the hook")
    return Group(*lines)


def text(value: object) -> str:
    """A value, or - where it is not known."""
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _time(value: int | None) -> str:
    return "-" if value is None else duration(value)


def _share(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}%}"


def age(value: int | None) -> str:
    """How long ago."""
    return "-" if value is None else f"{value / 1e9:.1f} s ago"


def memory(row: dict[str, Any]) -> str:
    """Memory of a rank, and of what."""
    return "-" if row["memory_bytes"] is None else f"{size(row['memory_bytes'])} {row['memory_kind']}"


def print_hosts(rows: list[dict[str, Any]], json: bool) -> None:
    """Rows of several hosts as one table."""
    from rich.console import Console

    empty = dict.fromkeys(
        ("rank", "state", "step", "step_ns", "slow_step_ns", "own_ns", "input_ratio", "comm_ratio", "gc_ratio",
         "memory_bytes", "memory_kind", "age_ns", "hook_ratio", "problem"),
    )  # fmt: skip
    whole = [empty | row for row in rows]
    if json:
        print(codec.dumps({"ranks": whole}))
    else:
        Console(highlight=False).print(grid("all hosts", whole, []))
