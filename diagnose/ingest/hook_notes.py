"""Notes of the live hook (`rank00003.notes.jsonl`): what kept it from recording, each kind one `quality` row."""

from __future__ import annotations

import json
from typing import Any

from diagnose.ingest import Options, Source, quality
from diagnose.ingest._ranks import rank_in_name
from diagnose.schema import INGESTED, Tables

_MAX_BYTES = 16 << 20
_KEYS = {"kind", "step", "ts_ns", "detail"}
_PROBLEM = {
    "clock_jump": "clock_jump",
    "throttled": "hook_throttled",
    "history_failed": "hook_gap",
    "history_resumed": "hook_gap",
    "no_place": "hook_gap",
}


def sniff(head: bytes, name: str) -> bool:
    """Whether the first line is an object of exactly the four keys."""
    first = head.lstrip().split(b"\n", 1)[0]
    if not first.startswith(b'{"kind"') or len(first) > 4096:
        return False
    try:
        row = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and row.keys() == _KEYS


def read(source: Source, options: Options) -> Tables:
    """files and quality. InputError where the file is larger than the hook writes any."""
    data = source.whole(_MAX_BYTES, "more than 16 MiB of notes", "a bounded file")
    found: dict[str, list[str]] = {}
    bad = 0
    for line in data.splitlines():
        row = _row(line)
        if row is None:
            bad += bool(line.strip())
        elif row["kind"] != "started":
            found.setdefault(_PROBLEM.get(row["kind"], "hook_error"), []).append(f"step {row['step']}: {row['detail']}")
    notes: list[dict[str, Any]] = [
        {"problem": problem, "path": source.label, "count": len(said), "detail": _plain("; ".join(said[:3]))}
        for problem, said in found.items()
    ]
    if bad:
        notes.append({"problem": "unreadable_line", "path": source.label, "count": bad, "detail": "no note; left out"})
    rank = rank_in_name(source.name)
    notes = [{"rank": rank, **note} for note in notes]
    files = {
        "file": 0, "path": source.label, "kind": "hook_notes", "rank": rank,
        "rank_source": None if rank is None else "file_name", "events_count": 0, "status": "ok", "detail": "",
    }  # fmt: skip
    return {
        "files": INGESTED["files"].build({name: [value] for name, value in files.items()}),
        "quality": quality(notes),
    }


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    good = isinstance(row, dict) and row.keys() == _KEYS and isinstance(row["kind"], str)
    good = good and isinstance(row["step"], int) and isinstance(row["detail"], str)
    return row if good else None


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:400]
