"""Time-outs that PyTorch's watchdog reports: which rank waited too long in which collective.

The rank that prints one waited; the cause is elsewhere, usually a rank that prints nothing. Lines are glog (`E0105
01:02:00.1 ProcessGroupNCCL.cpp:607`), without a year or zone, so no wall clock is taken from them.
Source: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, 1.9 to 2.13.
"""

from __future__ import annotations

import re
from typing import Any

from diagnose.ingest.kineto._calls import OP
from diagnose.ingest.text._lines import Lines, rank_of
from diagnose.schema import INGESTED, Tables

MARK = r"Watchdog caught collective operation timeout|failure detected by watchdog|last enqueued (?:NCCL )?work:"

_WORK = re.compile(
    r"WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w+)(?:, TensorShape=\[[^\]]*\])?(?:, NumelIn=(\d{1,18}))?"
    r"(?:, NumelOut=(\d{1,18}))?"
    r".*?Timeout\(ms\)=(\d+)\)(?: ran for (\d{1,12}) milliseconds)?"
)
_RANK = re.compile(r"\[(?:PG (?:ID )?[^\]]*?)?Rank (\d{1,6})\]")
_GROUP = re.compile(r"\[PG (?:ID \d+ )?(?:PG )?GUID (\S+?)(?:\(([^)]*)\))? Rank \d+\]")
_LAST = re.compile(
    r"last enqueued (?:NCCL )?work: (-?\d+), last (?:started work: -?\d+, last )?completed (?:NCCL )?work: (-?\d+)"
)
_PLACE = re.compile(r"(ProcessGroup\w+\.cpp:\d+)")


class Reader:
    """Collects time-outs, one per rank, group and sequence number."""

    def __init__(self) -> None:
        self.calls: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.events: dict[tuple[Any, ...], dict[str, Any]] = {}

    def feed(self, lines: Lines) -> int:
        """Read lines of the watchdog."""
        for number, text in lines.rows():
            rank = int(match[1]) if (match := _RANK.search(text)) else rank_of(text)
            group = match[1] if (match := _GROUP.search(text)) else None
            work, last = _WORK.search(text), _LAST.search(text)
            if work:
                self._timeout(work, rank, group)
            kind = "watchdog_timeout" if work else "watchdog_status"
            detail = text[work.start() :] if work else text[match.start() :] if (match := last) else text
            place = match[1] if (match := _PLACE.search(text)) else None
            key = rank, kind, detail
            event = self.events.setdefault(
                key,
                {
                    "rank": rank,
                    "kind": kind,
                    "level": "ERROR",
                    "detail": detail,
                    "place": place,
                    "count": 0,
                    "line": number,
                },
            )
            event["count"] += 1
        return len(lines)

    def _timeout(self, work: re.Match[str], rank: int | None, group: str | None) -> None:
        seq, op, numel_in, numel_out, _, ran_ms = work.groups()
        name = op.lower()
        self.calls.setdefault(
            (rank, group, seq, op),
            {
                "rank": rank,
                "group": group,
                "seq": int(seq),
                "op": OP.get(name, name),
                "in_count": int(numel_in) if numel_in else None,
                "out_count": int(numel_out) if numel_out else None,
                "dur_ns": int(ran_ms) * 1_000_000 if ran_ms else None,
                "state": "timed_out",
                "source": "watchdog",
            },
        )

    def tables(self, path: str) -> Tables:
        """`calls` that timed out and the messages as `log_events`, where there are any."""
        found = {"calls": list(self.calls.values()), "log_events": list(self.events.values())}
        return {name: INGESTED[name].of_rows(rows) for name, rows in found.items() if rows}
