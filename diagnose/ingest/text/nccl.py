"""NCCL and RCCL debug logs: links, communicators, collective calls, choices, settings, and what went wrong.

Ranks of many processes interleave; a process is known by host, pid and device, and its global rank by the largest
communicator. INFO lines carry no time, so nothing here has one. Equal lines of a process are one row with a count.
Method: whole columns of lines through RE2; only distinct messages are looked at one by one.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest.text import _nccl_lines as like
from diagnose.ingest.text._lines import Lines
from diagnose.ingest.text._nccl_tables import Collected, tables_of

MARK = r"NCCL (?:INFO|WARN|TRACE|CALL) |(?:NCCL|RCCL) version ?:? ?\d+\.\d+\.\d+"
_BLOCK_KEYS = ("process", "device", "place", "level", "message")


class Reader:
    """One document's NCCL lines."""

    def __init__(self) -> None:
        self.rank: int | None = None
        self.rank_source: str | None = None
        self.host: str | None = None
        self.channels: list[pa.Table] = []
        self.calls: list[pa.Table] = []
        self.messages: list[pa.Table] = []
        self.comms: list[tuple[int, str, int, str]] = []

    def feed(self, lines: Lines) -> int:
        """Sort the lines of a block by kind."""
        lines, records = _separated(lines)
        channel = pc.match_substring(lines.text, " via ").to_numpy(zero_copy_only=False)
        call = pc.match_substring(lines.text, ": opCount ").to_numpy(zero_copy_only=False)
        if channel.any():
            self.channels.append(_channels(lines.take(channel)))
        if call.any():
            self.calls.append(_calls(lines.take(call)))
        rest = lines.take(~(channel | call))
        self._communicators(rest.matching(r"comm (?:0x[0-9a-f]+|\(nil\)) rank \d+ n[rR]anks"))
        kept = rest.matching(f"{like.KEPT}| Bytes -> ")
        if len(kept):
            self.messages.append(_messages(kept))
        return records

    def _communicators(self, lines: Lines) -> None:
        found = pc.extract_regex(lines.text, like.PREFIX + "(?P<message>.*)$")
        columns = [pc.struct_field(found, name).to_pylist() for name in ("process", "device", "message")]
        for number, process, device, message in zip(lines.number.tolist(), *columns, strict=True):
            if process is not None:
                self.comms.append((number, process, int(device), message))

    def tables(self, path: str) -> dict[str, pa.Table]:
        """`communicators`, `transports`, `calls`, `tunings`, `log_events`, `settings` and `quality`."""
        collected = Collected(path, self.channels, self.calls, self.messages, self.comms)
        found, ranks, hosts = tables_of(collected)
        if len(ranks.all()) == 1:
            (self.rank,) = ranks.all()
            self.rank_source = "communicator"
        self.host = hosts.pop() if len(hosts) == 1 else None
        return found


def _separated(lines: Lines) -> tuple[Lines, int]:
    """Lines with one record each, and how many records there are: processes may print on one line."""
    counts = pc.count_substring_regex(lines.text, like.RECORD).to_numpy(zero_copy_only=False)
    many = counts > 1
    if not many.any():
        return lines, int(counts.sum())
    texts: list[str] = []
    numbers: list[int] = []
    for at, text in lines.take(many).rows():
        starts = [match.start() for match in like.GLUED.finditer(text)]
        parts = [text[a:b] for a, b in zip([0, *starts[1:]], [*starts[1:], None], strict=True)]
        texts += parts
        numbers += [at] * len(parts)
    single = lines.take(~many)
    number = np.concatenate((single.number, np.array(numbers, np.int64)))
    order = np.argsort(number, kind="stable")
    text = pa.concat_arrays([single.text, pa.array(texts, pa.string())]).take(pa.array(order))
    return Lines(number[order], text), int(counts.sum())


def _channels(lines: Lines) -> pa.Table:
    """Distinct channels of a block."""
    table = _extracted(lines, like.CHANNEL)
    if table.num_rows < len(lines):
        collnet = _extracted(lines.holding("via COLLNET/"), like.COLLNET)
        missing = [name for name in table.column_names if name not in collnet.column_names]
        for name in missing:
            collnet = collnet.append_column(name, pa.nulls(collnet.num_rows, table[name].type))
        table = pa.concat_tables([table, collnet.select(table.column_names)])
    keys = ["process", "device", "channel", "from", "to", "direction", "via"]
    return _counted(table, keys)


def _calls(lines: Lines) -> pa.Table:
    return _extracted(lines, like.CALL).drop_columns(["place", "level"])


def _messages(lines: Lines) -> pa.Table:
    """Distinct messages of a block, also those whose prefix is gone."""
    full = _extracted(lines, like.PREFIX + "(?P<message>.*)$")
    parts = [full]
    if full.num_rows < len(lines):
        known = pc.match_substring_regex(lines.text, like.PREFIX).to_numpy(zero_copy_only=False)
        other = lines.take(~known)
        bare = pc.extract_regex(other.text, like.BARE)
        message = pc.coalesce(pc.struct_field(bare, "message"), other.text)
        columns = {
            "process": pa.nulls(len(other), pa.string()),
            "device": pc.struct_field(bare, "device"),
            "place": pc.struct_field(bare, "place"),
            "level": pc.struct_field(bare, "level"),
            "message": message,
            "line": pa.array(other.number),
        }
        parts.append(pa.table({name: columns[name] for name in full.column_names}))
    return _counted(pa.concat_tables(parts), list(_BLOCK_KEYS))


def _extracted(lines: Lines, pattern: str) -> pa.Table:
    """The pattern's groups as columns, and `line`; lines that do not match are left out."""
    found = pc.extract_regex(lines.text, pattern)
    kept = pc.is_valid(found)
    columns = {field.name: pc.struct_field(found, field.name).filter(kept) for field in found.type}
    columns["line"] = pa.array(lines.number).filter(kept)
    return pa.table(columns)


def _counted(table: pa.Table, keys: list[str]) -> pa.Table:
    """Equal rows once, with `count` and the first `line`."""
    grouped = table.group_by(keys, use_threads=False).aggregate([("line", "count"), ("line", "min")])
    return grouped.select([*keys, "line_count", "line_min"]).rename_columns([*keys, "count", "line"])
