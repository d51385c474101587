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
from diagnose.ingest.text._nccl_calls import calls
from diagnose.ingest.text._nccl_tables import Collected, renamed, tables_of

MARK = r"NCCL (?:INFO|WARN|TRACE|CALL) |(?:NCCL|RCCL) version ?:? ?\d+\.\d+\.\d+"
BULK = "NCCL INFO "
_MESSAGE_KEYS = ("process", "device", "place", "level", "message")


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
        for found, says, read in ((self.channels, _says_way, _channels), (self.calls, _says_call, _calls)):
            chosen, split = _parted(split, says(split["message"]))
            if chosen.num_rows:
                found.append(read(chosen))
        self._others(split)
        self.records += records
        return records

    def _others(self, split: pa.Table) -> None:
        """Lines about communicators, and those worth a look one by one; many lines are equal, and looked at once."""
        split = _texts(split)
        message = split["message"].combine_chunks().dictionary_encode()
        comm, kept = (
            pc.match_substring_regex(message.dictionary, pattern).take(message.indices)
            for pattern in (like.COMM_LINE, like.KEPT)
        )
        rows = split.filter(pc.and_(comm, pc.is_valid(split["process"]))).to_pylist()
        self.comms += [(row["line"], row["process"], row["device"], row["message"]) for row in rows]
        kept = split.filter(pc.or_kleene(pc.equal(split["level"], "WARN"), kept))
        if kept.num_rows:
            self.messages.append(_counted(kept, list(_MESSAGE_KEYS)))

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


def _parted(table: pa.Table, own: pa.ChunkedArray) -> tuple[pa.Table, pa.Table]:
    """(rows where `own` holds, the others); often one of them is all."""
    if pc.all(own).as_py():
        return table, table.slice(0, 0)
    return (table.filter(own), table.filter(pc.invert(own))) if pc.any(own).as_py() else (table.slice(0, 0), table)


def _says_way(messages: pa.ChunkedArray) -> pa.ChunkedArray:
    """`Channel 00 : 0[0] -> 1[1] via ...` and its kin."""
    begins = pc.or_(pc.starts_with(messages, "Channel "), pc.starts_with(messages, "Coll"))
    return _holding(messages, begins, " via ")


def _says_call(messages: pa.ChunkedArray) -> pa.ChunkedArray:
    """`AllReduce: opCount ...`: a name and its counter."""
    head = pc.binary_slice(messages.cast(pa.binary()), 0, 8).combine_chunks().dictionary_encode()
    named = pa.array([bool(like.CALL_HEAD.match(text)) for text in head.dictionary.to_pylist()], pa.bool_())
    return _holding(messages, pa.chunked_array([named.take(head.indices)]), ": opCount ")


def _holding(messages: pa.ChunkedArray, likely: pa.ChunkedArray, text: str) -> pa.ChunkedArray:
    """Likely messages that hold the text."""
    mask = np.asarray(likely)
    found = np.zeros(len(mask), bool)
    found[mask] = np.asarray(pc.match_substring(messages.filter(likely), text))
    return pa.chunked_array([pa.array(found)])


def _separated(lines: Lines) -> tuple[Lines, int]:
    """Lines with one record each, and how many records there are: processes may print on one line."""
    if lines.count(b"CCL ") == len(lines):  # every line has one
        return lines, len(lines)
    many = pc.count_substring(lines.text, "CCL ").to_numpy(zero_copy_only=False) > 1
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
    at = pc.find_substring(lines.text, "NCCL ").to_numpy(zero_copy_only=False).astype(np.int64)
    rest = lines.take(at < 0)  # RCCL's version, and what has no more than the version
    lines = lines.take(at >= 0)
    heads, levels, messages = _cut(lines.text, at[at >= 0], len("NCCL "), 5)
    head, level = heads.dictionary_encode(), levels.dictionary_encode()
    read = [like.HEAD.search(text) for text in head.dictionary.to_pylist()]
    said_of = {n: [match[n] if match else None for match in read] for n in ("process", "device", "place")}
    columns: dict[str, pa.Array] = {n: renamed(head, said_of[n]) for n in ("process", "place")}
    columns["device"] = pa.array(said_of["device"], pa.string()).cast(pa.int32()).take(head.indices)
    known = {"INFO ": "INFO", "WARN ": "WARN", "TRACE": "TRACE", "CALL ": "CALL"}
    said = level.dictionary.to_pylist()
    columns["level"] = renamed(level, [known.get(text) for text in said])
    if "TRACE" in said:
        messages = pc.ascii_ltrim_whitespace(messages)
    if not known.keys() >= set(said):
        whole = pc.binary_join_element_wise(levels, messages, "")
        messages = pc.if_else(pc.is_valid(columns["level"]), messages, whole)
    columns["message"] = messages
    columns["line"] = pa.array(lines.number)
    table = pa.table(columns)
    if not len(rest):
        return table
    extra = {name: pa.nulls(len(rest), kind) for name, kind in zip(table.column_names, table.schema.types, strict=True)}
    return pa.concat_tables([table, pa.table({**extra, "message": rest.text, "line": pa.array(rest.number)})])


def _cut(text: pa.Array, at: np.ndarray, skip: int, width: int) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Each text before `at`, `width` bytes after `skip` more, and what follows: the same bytes under other offsets."""
    _, places, data = text.buffers()
    edge = np.frombuffer(places, np.int32)[text.offset : text.offset + len(text) + 1].astype(np.int64)
    inner = np.minimum(np.stack((edge[:-1] + at, edge[:-1] + at + skip, edge[:-1] + at + skip + width)), edge[1:])
    offsets = np.append(np.column_stack((edge[:-1], *inner)).ravel(), edge[-1]).astype(np.int32)
    pieces = pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), data)
    before, inside, behind = (pieces.take(pa.array(np.arange(len(at)) * 4 + part)) for part in (0, 2, 3))
    return before, inside, behind


def _channels(lines: pa.Table) -> pa.Table:
    """Distinct channels of a block."""
    found = _extracted(lines, like.CHANNEL)
    if found.num_rows < lines.num_rows:
        found = pa.concat_tables([found, _extracted(lines, like.COLLNET)], promote_options="default")
    return _counted(found, ["process", "device", "channel", "from", "to", "direction", "via"])


def _calls(lines: pa.Table) -> pa.Table:
    """Collective calls of a block, with numbers as numbers and few distinct texts: it should leave little behind."""
    read = calls(lines["message"].combine_chunks())
    numbers = {name: pa.array(getattr(read, name)) for name in ("seq", "elements")}
    numbers |= {"type": pa.array(read.type.astype(np.int16)), "size": pa.array(read.size.astype(np.int32))}
    process = lines["process"].unify_dictionaries().combine_chunks()
    table = pa.table(
        {"process": process, "device": lines["device"], "op": read.op, "group": _groups(process, read.comm), **numbers}
    ).filter(pa.array(read.known))
    if read.known.all():
        return table
    return pa.concat_tables([table, _odd_calls(lines.filter(pa.array(~read.known)))])


def _groups(process: pa.DictionaryArray, comm: pa.DictionaryArray) -> pa.DictionaryArray:
    """`process:address` of each row; null where the process is."""
    width = len(comm.dictionary)
    places = process.indices.fill_null(-1).to_numpy().astype(np.int64)
    pair, index = np.unique(places * width + comm.indices.to_numpy(), return_inverse=True)
    processes, comms = process.dictionary.to_pylist(), comm.dictionary.to_pylist()
    names = [f"{processes[p // width]}:{comms[p % width]}" if p >= 0 else None for p in pair.tolist()]
    return pa.DictionaryArray.from_arrays(
        pa.array(index.astype(np.int32), mask=places < 0), pa.array(names, pa.string())
    )


def _odd_calls(lines: pa.Table) -> pa.Table:
    """Calls that do not look like the others of their block, by pattern."""
    found = _extracted(lines, like.CALL)
    column = {name: found[name].combine_chunks() for name in found.column_names}
    counter = column["count_hex"].dictionary_encode()
    seq = pa.array([int(text, 16) for text in counter.dictionary.to_pylist()], pa.int64()).take(counter.indices)
    return pa.table(
        {
            "process": column["process"].dictionary_encode(),
            "device": column["device"],
            "op": column["op"].dictionary_encode(),
            "group": pc.binary_join_element_wise(column["process"], column["comm"], ":").dictionary_encode(),
            "seq": seq,
            "elements": column["elements"].cast(pa.int64()),
            "type": column["type"].cast(pa.int16()),
            "size": column["size"].cast(pa.int32()),
        }
    )


def _extracted(lines: pa.Table, pattern: str) -> pa.Table:
    """The pattern's groups as columns beside process, device and line; lines that do not match are left out."""
    lines = _texts(lines)
    message = lines["message"].combine_chunks().dictionary_encode()  # many lines are equal
    found = pc.extract_regex(message.dictionary, pattern)
    kept = pc.is_valid(found).take(message.indices)
    rows = message.indices.filter(kept)
    columns = {field.name: pc.struct_field(found, field.name).take(rows) for field in found.type}
    return pa.table({**columns, **{name: lines[name].filter(kept) for name in ("process", "device", "line")}})


def _texts(table: pa.Table) -> pa.Table:
    """Labels as plain text."""
    kinds = [pa.string() if pa.types.is_dictionary(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))


def _counted(table: pa.Table, keys: list[str]) -> pa.Table:
    """Equal rows once, with `count` and the first `line`."""
    grouped = table.group_by(keys, use_threads=False).aggregate([("line", "count"), ("line", "min")])
    return grouped.select([*keys, "line_count", "line_min"]).rename_columns([*keys, "count", "line"])
