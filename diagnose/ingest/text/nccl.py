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
from diagnose.ingest.text._lines import MAX_LINE_BYTES, Lines
from diagnose.ingest.text._nccl_tables import Collected, tables_of

MARK = r"NCCL (?:INFO|WARN|TRACE|CALL) |(?:NCCL|RCCL) version ?:? ?\d+\.\d+\.\d+"
BULK = "NCCL INFO "
_MESSAGE_KEYS = ("process", "device", "place", "level", "message")
_CALL_COLUMNS = ["process", "device", "op", "count_hex", "elements", "type", "comm", "size"]
_NUMBER = {"count_hex": r"^[0-9a-f]{1,15}$", "elements": r"^\d{1,18}$", "type": r"^\d{1,4}$", "size": r"^\d{1,9}$"}


class Reader:
    """One document's NCCL lines."""

    def __init__(self) -> None:
        self.rank: int | None = None
        self.rank_source: str | None = None
        self.host: str | None = None
        self.records = 0
        self.channels: list[pa.Table] = []
        self.calls: list[pa.Table] = []
        self.messages: list[pa.Table] = []
        self.comms: list[tuple[int, str, int | None, str]] = []

    def feed(self, lines: Lines) -> int:
        """Sort the lines of a block by kind."""
        lines, records = _separated(lines)
        split = _split(lines)
        for kind, found in (("channels", " via "), ("calls", ": opCount ")):
            own = pc.match_substring(split["message"], found)
            chosen, split = split.filter(own), split.filter(pc.invert(own))
            if chosen.num_rows:
                getattr(self, kind).append(_channels(chosen) if kind == "channels" else _calls(chosen))
        comm = pc.match_substring_regex(split["message"], r"comm (?:0x[0-9a-f]+|\(nil\)) rank \d+ n[rR]anks")
        rows = split.filter(pc.and_(comm, pc.is_valid(split["process"]))).to_pylist()
        self.comms += [(row["line"], row["process"], row["device"], row["message"]) for row in rows]
        kept = split.filter(
            pc.or_kleene(pc.equal(split["level"], "WARN"), pc.match_substring_regex(split["message"], like.KEPT))
        )
        if kept.num_rows:
            self.messages.append(_counted(kept, list(_MESSAGE_KEYS)))
        self.records += records
        return records

    def tables(self, path: str) -> dict[str, pa.Table]:
        """`communicators`, `transports`, `calls`, `tunings`, `log_events`, `settings`, `quality`; none of no lines."""
        if not self.records:
            return {}
        collected = Collected(path, self.channels, self.calls, self.messages, self.comms)
        found, ranks, hosts = tables_of(collected)
        if len(ranks.all()) == 1:
            (self.rank,) = ranks.all()
            self.rank_source = "communicator"
        self.host = hosts.pop() if len(hosts) == 1 else None
        return found


def _separated(lines: Lines) -> tuple[Lines, int]:
    """Lines with one record each, and how many records there are: processes may print on one line."""
    counts = pc.count_substring(lines.text, "CCL ").to_numpy(zero_copy_only=False)
    many = counts > 1
    if not many.any():
        return lines, len(lines)
    odd = lines.take(many)
    records = int(pc.sum(pc.count_substring_regex(odd.text, like.RECORD)).as_py() or 0)
    texts: list[str] = []
    numbers: list[int] = []
    for at, text in odd.rows():
        starts = [match.start() for match in like.GLUED.finditer(text)]
        parts = [text[a:b] for a, b in zip([0, *starts[1:]], [*starts[1:], None], strict=True)]
        texts += parts
        numbers += [at] * len(parts)
    single = lines.take(~many)
    number = np.concatenate((single.number, np.array(numbers, np.int64)))
    order = np.argsort(number, kind="stable")
    text = pa.concat_arrays([single.text, pa.array(texts, pa.string())]).take(pa.array(order))
    return Lines(number[order], text), len(single) + records


def _split(lines: Lines) -> pa.Table:
    """Lines as process, device, place, level and message. Few heads are distinct, so each is read once."""
    halves = pc.split_pattern(lines.text, "NCCL ", max_splits=1)
    whole = pc.equal(pc.list_value_length(halves), 2)
    pairs = halves.filter(whole).flatten()
    rest = lines.take(pc.invert(whole))  # RCCL's version, and what has no more than the version
    count = len(pairs) // 2
    heads = pairs.take(pa.array(np.arange(count) * 2)).dictionary_encode()
    message = pairs.take(pa.array(np.arange(count) * 2 + 1))
    read = [like.HEAD.search(head) for head in heads.dictionary.to_pylist()]
    columns: dict[str, pa.Array] = {
        name: pa.array([match[name] if match else None for match in read], pa.string()).take(heads.indices)
        for name in ("process", "device", "place")
    }
    columns["device"] = columns["device"].cast(pa.int32())
    raw = message.cast(pa.binary())
    level = pc.binary_slice(raw, 0, 5)
    levels = {b"INFO ": "INFO", b"WARN ": "WARN", b"TRACE": "TRACE", b"CALL ": "CALL"}
    found = level.dictionary_encode()
    names = pa.array([levels.get(text) for text in found.dictionary.to_pylist()], pa.string())
    columns["level"] = names.take(found.indices)
    known = pc.is_valid(columns["level"])
    trimmed = pc.binary_slice(raw, 5, MAX_LINE_BYTES * 64).cast(pa.string())
    if b"TRACE" in found.dictionary.to_pylist():
        trimmed = pc.ascii_ltrim_whitespace(trimmed)
    columns["message"] = trimmed if pc.all(known).as_py() else pc.if_else(known, trimmed, message)
    columns["line"] = pa.array(lines.number).filter(whole)
    table = pa.table(columns)
    if not len(rest):
        return table
    extra = pa.table({"message": rest.text, "line": pa.array(rest.number)})
    return pa.concat_tables([table, extra], promote_options="default")


def _channels(lines: pa.Table) -> pa.Table:
    """Distinct channels of a block."""
    found = _extracted(lines, like.CHANNEL)
    if found.num_rows < lines.num_rows:
        found = pa.concat_tables([found, _extracted(lines, like.COLLNET)], promote_options="default")
    return _counted(found, ["process", "device", "channel", "from", "to", "direction", "via"])


def _calls(lines: pa.Table) -> pa.Table:
    """Collective calls of a block: words of the message at fixed places, which differ between releases."""
    words = pc.split_pattern(lines["message"].combine_chunks(), " ")
    lengths = pc.list_value_length(words).to_numpy(zero_copy_only=False)
    if len(lengths) and (lengths == lengths[0]).all():
        found = _words_at(words, lines, int(lengths[0]))
        if found is not None:
            return _typed(found)
    parts = []
    for length in np.unique(lengths).tolist():
        here = np.flatnonzero(lengths == length)
        found = _words_at(words.take(pa.array(here)), lines.take(pa.array(here)), length)
        parts.append(found if found is not None else _extracted(lines.take(pa.array(here)), like.CALL))
    return _typed(pa.concat_tables([part.select(_CALL_COLUMNS) for part in parts]))


def _typed(calls: pa.Table) -> pa.Table:
    """Calls with numbers as numbers and few distinct texts: what a block leaves behind should be small."""
    column = {name: calls[name].combine_chunks() for name in _CALL_COLUMNS}
    counter = column["count_hex"].dictionary_encode()
    seq = pa.array([int(text, 16) for text in counter.dictionary.to_pylist()], pa.int64()).take(counter.indices)
    return pa.table(
        {
            "process": column["process"].dictionary_encode(),
            "device": column["device"],
            "op": column["op"].dictionary_encode(),
            "seq": seq,
            "elements": column["elements"].cast(pa.int64()),
            "type": column["type"].cast(pa.int16()),
            "group": pc.binary_join_element_wise(column["process"], column["comm"], ":").dictionary_encode(),
            "size": column["size"].cast(pa.int32()),
        }
    )


def _words_at(words: pa.Array, lines: pa.Table, length: int) -> pa.Table | None:
    """Calls whose words all stand where those of the first line do; None where they do not."""
    column = words.flatten()
    first = column.slice(0, length).to_pylist()

    def word(at: int) -> pa.Array:
        return column.take(pa.array(np.arange(len(words)) * length + at))

    places = {}
    for name, said in (("count_hex", "opCount"), ("elements", "count"), ("type", "datatype"), ("comm", "comm")):
        at = first.index(said) if said in first else length
        if at + 2 >= length or not pc.all(pc.equal(word(at), said)).as_py():
            return None
        places[name] = at + 1
    size = word(places["comm"] + 1)
    if not pc.all(pc.match_substring(size, "[nranks=")).as_py():
        return None
    columns = {name: word(at) for name, at in places.items()}
    columns["op"] = pc.ascii_rtrim(word(0), ":")
    columns["size"] = pc.ascii_trim(size, "[nraks=]")
    if not all(pc.all(pc.match_substring_regex(columns[name], digits)).as_py() for name, digits in _NUMBER.items()):
        return None
    return pa.table({**columns, **{name: lines[name] for name in ("process", "device")}})


def _extracted(lines: pa.Table, pattern: str) -> pa.Table:
    """The pattern's groups as columns beside process, device and line; lines that do not match are left out."""
    found = pc.extract_regex(lines["message"].combine_chunks(), pattern)
    kept = pc.is_valid(found)
    columns = {field.name: pc.struct_field(found, field.name).filter(kept) for field in found.type}
    return pa.table({**columns, **{name: lines[name].filter(kept) for name in ("process", "device", "line")}})


def _counted(table: pa.Table, keys: list[str]) -> pa.Table:
    """Equal rows once, with `count` and the first `line`."""
    grouped = table.group_by(keys, use_threads=False).aggregate([("line", "count"), ("line", "min")])
    return grouped.select([*keys, "line_count", "line_min"]).rename_columns([*keys, "count", "line"])
