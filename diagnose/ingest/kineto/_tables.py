"""The tables of a file from what was read of its documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest.kineto._document import Document
from diagnose.ingest.kineto._doubts import judge
from diagnose.ingest.kineto._groups import members_of, rank_of
from diagnose.ingest.kineto._header import devices, distributed, settings_of, whole
from diagnose.ingest.kineto._record import Columns, Record
from diagnose.ingest.kineto._sort import KIND
from diagnose.ingest.kineto._values import nulls
from diagnose.schema import EVENT_KINDS, INGESTED, Tables, TableSchema

_ABSOLUTE_NS = 10**18
_WRITTEN = ("events", "op_args", "device_args", "calls", "allocations")
_KINDS = pa.array(EVENT_KINDS)
_RENAMED = {"\t": "\\t", "\n": "\\n", "\b": "\\b", "\f": "\\f", "\r": "\\r"}


def tables_of(document: Document, file: int, path: str) -> Tables:
    """All tables of one document. Times get their base here, since it may stand behind the events."""
    header, record, faults = document.header, document.record, document.faults
    info = distributed(header)
    base = whole(header.get("baseTimeNanoseconds"))
    _shift(record, base)
    _drop_garbage_ids(record)
    if "invalid_escape" in faults:
        _keep_backslashes(record)
    members = members_of(record, info, faults)
    rank, rank_source = rank_of(record, info)
    judge(document, base)
    tables = {name: _table(INGESTED[name], record.parts.pop(name, []), file) for name in _WRITTEN}
    start, end = _window(tables["events"])
    if "truncated" in faults:
        last = pc.max(tables["events"]["ts_ns"]).as_py()
        faults.describe("truncated", f"the file ends too early; the last event before the cut starts at {last} ns")
    status, detail = faults.status(record.count - record.first_event)
    tables["files"] = _row(
        INGESTED["files"],
        {
            "file": file,
            "path": path,
            "kind": "kineto",
            "rank": rank,
            "rank_source": rank_source,
            "host": header.get("host_name"),
            "backend": info.get("backend"),
            "world_size": whole(info.get("world_size")),
            "base_ns": base if record.relative and base is not None else 0 if record.absolute else None,
            "start_ns": start,
            "end_ns": end,
            "events_count": record.count - record.first_event,
            "status": status,
            "detail": detail,
            **_gpu(header, record),
        },
    )
    tables["threads"] = INGESTED["threads"].build(
        {
            "process": pa.array([k[0] for k in record.threads], pa.int64()),
            "thread": pa.array([k[1] for k in record.threads], pa.int64()),
            "name": pa.array(list(record.threads.values()), pa.string()),
        }
    )
    tables["members"] = _rows(INGESTED["members"], members)
    settings = settings_of(header) | _gpu_settings(header, record)
    tables["settings"] = _rows(
        INGESTED["settings"], [{"key": k, "value": v, "source": path, "rank": rank} for k, v in settings.items()]
    )
    tables["quality"] = faults.table(path, rank)
    return tables


def join(documents: list[Tables]) -> Tables:
    """One set of tables for all documents of a file.

    Where there are several, a table without `file` says by its rank which document a row is of: the rank, or
    `-1 - file` where the document does not know it.
    """
    if len(documents) == 1:
        return documents[0]
    for file, tables in enumerate(documents):
        rank = tables["files"]["rank"][0].as_py()
        for name in ("threads", "members", "allocations", "settings", "quality"):
            table = tables[name]
            ranks = pa.array(np.full(table.num_rows, -1 - file if rank is None else rank, np.int32))
            tables[name] = table.set_column(table.schema.get_field_index("rank"), table.schema.field("rank"), ranks)
    return {name: pa.concat_tables([d[name] for d in documents]).unify_dictionaries() for name in documents[0]}


def _shift(record: Record, base: int | None) -> None:
    """Add the base to relative times, in place: the arrays belong to nobody else yet."""
    if not base or not record.relative:
        return
    for table in ("events", "calls", "allocations"):
        for part in record.parts[table]:
            ns = np.array(part["ts_ns"])
            ns[ns < _ABSOLUTE_NS] += base
            part["ts_ns"] = pa.array(ns)


def _drop_garbage_ids(record: Record) -> None:
    """Where (nearly) all device events repeat the correlation as External id, none of these ids is a link."""
    if record.linked < 100 or record.equal < 0.99 * record.linked:
        return
    for part in record.parts["events"]:
        if "launch_id" in part:
            part.pop("external_id")


def _keep_backslashes(record: Record) -> None:
    """Names of Python frames whose path was written unescaped: `\\t` in `C:\\tools` was no tab."""
    for part in record.parts["events"]:
        if part["kind"][0].as_py() != KIND["python"]:
            continue
        names = part["name"].dictionary.to_pylist()
        fixed = ["".join(_RENAMED.get(c, c) for c in name) if name else name for name in names]
        part["name"] = pa.DictionaryArray.from_arrays(part["name"].indices, pa.array(fixed, pa.string()))


def _table(schema: TableSchema, parts: list[Columns], file: int) -> pa.Table:
    """One table from parts; a column that a part lacks is null there. Parts are freed as they are used."""
    if not parts:
        return schema.empty()
    lengths = [len(next(iter(part.values()))) for part in parts]
    columns = []
    for column in schema.arrow:
        if column.name == "file":
            chunks = [_constant(file, n) for n in lengths]
        else:
            chunks = [
                _typed(part.pop(column.name, None), column.type, n) for part, n in zip(parts, lengths, strict=True)
            ]
        columns.append(pa.chunked_array(chunks, column.type))
    return pa.table(columns, schema=schema.arrow).unify_dictionaries()


def _typed(values: pa.Array | None, kind: pa.DataType, length: int) -> pa.Array:
    if values is None:
        return _null_labels(length) if pa.types.is_dictionary(kind) else nulls(length, kind)
    if pa.types.is_dictionary(kind):
        if pa.types.is_integer(values.type):
            return pa.DictionaryArray.from_arrays(values, _KINDS)
        return values if pa.types.is_dictionary(values.type) else values.cast(pa.string()).dictionary_encode()
    return values if values.type == kind else values.cast(kind)


def _null_labels(length: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(nulls(length, pa.int32()), pa.array([], pa.string()))


_CONSTANTS: dict[int, pa.Array] = {}


def _constant(value: int, length: int) -> pa.Array:
    shared = _CONSTANTS.get(value)
    if shared is None or len(shared) < length:
        shared = _CONSTANTS[value] = pa.array(np.full(max(length, 1 << 16), value, np.int32))
    return shared.slice(0, length)


def _row(schema: TableSchema, values: Mapping[str, object]) -> pa.Table:
    return _rows(schema, [values])


def _rows(schema: TableSchema, rows: Sequence[Mapping[str, object]]) -> pa.Table:
    return schema.build(
        {
            field.name: pa.array(
                [row.get(field.name) for row in rows],
                pa.string() if pa.types.is_dictionary(field.type) else field.type,
            )
            for field in schema.arrow
        }
    )


def _window(events: pa.Table) -> tuple[int | None, int | None]:
    if not events.num_rows:
        return None, None
    ends = pc.max(pc.add(events["ts_ns"], events["dur_ns"])).as_py()
    return pc.min(events["ts_ns"]).as_py(), ends


def _gpu(header: dict[str, object], record: Record) -> dict[str, object]:
    """The GPU that the kernels ran on; unknown where nothing tells which of different ones it was."""
    found = devices(header)
    if "deviceProperties" not in header:
        return {}
    used = record.devices.most_common(1)[0][0] if record.devices else None
    chosen = next((d for d in found if whole(d.get("id")) == used), None)
    if chosen is None and found and all(d.get("name") == found[0].get("name") for d in found):
        chosen = found[0]
    count: dict[str, object] = {"gpu_count": len(found)}
    if chosen is None:
        return count
    return count | {"gpu": chosen.get("name") or None, "gpu_memory_bytes": whole(chosen.get("totalGlobalMem"))}


def _gpu_settings(header: dict[str, object], record: Record) -> dict[str, str]:
    name = _gpu(header, record).get("gpu")
    chosen = next((d for d in devices(header) if d.get("name") == name), None) if name else None
    if chosen is None:
        return {}
    found = {"gpu.name": str(name)}
    if whole(chosen.get("computeMajor")) is not None:
        found["gpu.compute_capability"] = f"{chosen['computeMajor']}.{chosen.get('computeMinor', 0)}"
    units = whole(chosen.get("numSms")) or whole(
        chosen.get("maxThreadsPerMultiprocessor") if "numSms" not in chosen else None
    )
    return found | ({"gpu.sm_count": str(units)} if units else {})
