"""Timelines of pipeline jobs in one table (Parquet or CSV), a row per operation, and the sizes beside it in YAML.

The layout is that of the published what-if traces: `dp_rank`, `stage`, `step`, `optype`, `start_ts`, `duration`,
`seq_id`, `mc` (chunk of the model on the stage), `mb_id` (micro-batch), -1 where one does not apply. Times are float
seconds from an origin that all ranks of a step share: rows of different steps cannot be put in order by them. Sends
and receives are recorded from their launch, also those at the ends of the pipeline that moved nothing.
Source: https://github.com/ByteDance-Seed/StragglerAnalysis, readme (OSDI 2025, https://arxiv.org/abs/2505.05713).
"""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, expert_counts, quality
from diagnose.schema import INGESTED, Tables
from diagnose.schema.pipelines import COMPUTE_PHASES

PHASE_OF: dict[str, str] = {
    "forward-compute": "forward", "backward-compute": "backward",
    "forward-send": "send_forward", "forward-recv": "recv_forward",
    "backward-send": "send_backward", "backward-recv": "recv_backward",
    "params-all-gather": "parameter_sync", "grads-reduce-scatter": "gradient_sync",
    "separate-grads-all-reduce": "late_gradient_sync", "layernorm-grads-all-reduce": "layernorm_sync",
    "embedding-grads-all-reduce": "embedding_sync", "optimizer-clip-main-grad": "gradient_clip",
    "optimizer": "optimizer", "gc": "gc",
}  # fmt: skip
"""Operation type as recorded -> phase."""

_WHOLE = ("dp_rank", "stage", "step")
_SECONDS = ("start_ts", "duration")
_NEEDED = (*_WHOLE, "optype", *_SECONDS)
_SIZES = {"dp_size": "layout.dp", "pp_size": "layout.pp", "tp_size": "layout.tp", "vpp_size": "layout.vpp"}
_SETTING = re.compile(rb"^([A-Za-z_]\w*):[ \t]*([^\r\n]*?)[ \t]*\r?$", re.MULTILINE)
_MOST_BYTES = 4 << 30


def sniff(head: bytes, name: str) -> bool:
    """Parquet; CSV with this layout's columns; YAML with the sizes of such a job."""
    if head.startswith(b"PAR1"):
        return True
    first = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    return set(_NEEDED) <= {cell.strip().strip('"') for cell in first.split(",")} or _is_meta(head)


def read(source: Source, options: Options) -> Tables:
    """`microbatches` of a timeline, or `settings` of the sizes beside it. InputError where the table is another one."""
    if _is_meta(source.head()):
        return _sizes(source)
    table = _opened(source, b"".join(source.chunks()))
    missing = [name for name in _NEEDED if name not in table.column_names]
    if missing and (counts := expert_counts.of_table(source, table)) is not None:
        return counts
    if missing:
        there = ", ".join(table.column_names[:8])
        raise InputError(
            source.label, f"a table with the columns {there}, without {', '.join(missing)}",
            f"a pipeline timeline ({', '.join(_NEEDED)})", "leave it out",
        )  # fmt: skip
    ranked, inferred = _ranked(_typed(source, table))
    usable, notes = _usable(ranked)
    if not usable.num_rows:
        raise InputError(source.label, "no row with times", "a pipeline timeline", "record it again")
    files = {
        "file": 0, "path": source.label, "kind": "pipeline_operations", "events_count": usable.num_rows,
        "status": "repaired" if notes else "ok", "detail": "",
    }  # fmt: skip
    return {
        "files": INGESTED["files"].build({name: [value] for name, value in files.items()}),
        "microbatches": _rows(usable),
        "quality": quality([{**note, "path": source.label} for note in (*notes, *inferred)]),
    }


def _is_meta(head: bytes) -> bool:
    keys = {match[1].decode() for match in _SETTING.finditer(head)} if b"\0" not in head else set()
    return {"dp_size", "pp_size"} <= keys


def _opened(source: Source, content: bytes) -> pa.Table:
    import pyarrow.csv
    import pyarrow.parquet

    try:
        if not content.startswith(b"PAR1"):
            return pyarrow.csv.read_csv(io.BytesIO(content))
        found = pyarrow.parquet.ParquetFile(pa.BufferReader(content))
        if sum(found.metadata.row_group(i).total_byte_size for i in range(found.num_row_groups)) > _MOST_BYTES:
            raise InputError(source.label, "more than 4 GiB of columns", "a pipeline timeline", "give fewer steps")
        return found.read()
    except (pa.ArrowInvalid, OSError) as error:
        said = f"a damaged table ({str(error).splitlines()[0][:120]})"
        raise InputError(source.label, said, "Parquet or CSV", "copy the file again") from error


def _typed(source: Source, table: pa.Table) -> pa.Table:
    """Whole numbers and seconds as such. InputError where a column holds anything else."""
    for name in (*_WHOLE, *_SECONDS, *(n for n in ("rank", "mc", "mb_id", "seq_id") if n in table.column_names)):
        kind = pa.float64() if name in _SECONDS else pa.int64()
        try:
            table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            said = f"a column {name} of {table.schema.field(name).type}"
            raise InputError(source.label, said, "numbers", "write the table again") from error
    return table


def _ranked(table: pa.Table) -> tuple[pa.Table, list[dict[str, Any]]]:
    """The table with a rank per row: where it has none, the number of the worker by stage and replica, and says so."""
    stage, replica = (pc.fill_null(table[name], 0) for name in ("stage", "dp_rank"))
    worker = pc.add(pc.multiply(stage, (pc.max(replica).as_py() or 0) + 1), replica)
    if "rank" not in table.column_names:
        table = table.append_column("rank", pa.nulls(table.num_rows, pa.int64()))
    given = table["rank"]
    given = pc.if_else(pc.greater_equal(given, 0), given, pa.scalar(None, pa.int64()))
    said = "no rank is given: workers are numbered by stage and replica"
    notes = [{"problem": "rank_inferred", "count": given.null_count, "detail": said}] if given.null_count else []
    return table.set_column(table.column_names.index("rank"), "rank", pc.coalesce(given, worker)), notes


def _usable(table: pa.Table) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Rows with a step, a stage and times; what was left out, and operations of no known phase."""
    finite = pc.and_(pc.is_finite(table["start_ts"]), pc.is_finite(table["duration"]))
    named = pc.and_(pc.is_valid(table["step"]), pc.is_valid(table["optype"]))
    placed = pc.greater_equal(pc.fill_null(table["stage"], -1), 0)
    known = pc.fill_null(pc.and_(pc.and_(finite, named), placed), False)
    negative = pc.and_(known, pc.fill_null(pc.less(table["duration"], 0), False))
    usable = table.filter(pc.and_(known, pc.invert(negative)))
    kinds = usable["optype"].cast(pa.string())
    strange = sorted(set(pc.unique(kinds).to_pylist()) - set(PHASE_OF))
    odd = pc.sum(pc.is_in(kinds, pa.array(strange, pa.string()))).as_py()
    said = f"operations of no known kind, kept as `other`: {', '.join(strange[:5])}"
    notes = [
        {
            "problem": "unparsed_value",
            "count": table.num_rows - (pc.sum(known).as_py() or 0),
            "detail": "rows without step, stage, operation or times; left out",
        },
        {"problem": "negative_duration", "count": pc.sum(negative).as_py(), "detail": "left out"},
        {"problem": "unknown_category", "count": odd, "detail": said},
    ]
    return usable, [note for note in notes if note["count"]]


def _rows(table: pa.Table) -> pa.Table:
    kinds = table["optype"].cast(pa.string()).combine_chunks().dictionary_encode()
    phases = pa.array([PHASE_OF.get(kind, "other") for kind in kinds.dictionary.to_pylist()], pa.string())
    phase = phases.take(kinds.indices)
    computes = pc.is_in(phase, pa.array(COMPUTE_PHASES))
    return INGESTED["microbatches"].build(
        {
            "file": np.zeros(table.num_rows, np.int32),
            "rank": table["rank"].cast(pa.int32()),
            "step": table["step"],
            "stage": table["stage"].cast(pa.int32()),
            "chunk": _number(table, "mc"),
            "replica": _number(table, "dp_rank"),
            "microbatch": pc.if_else(computes, _number(table, "mb_id"), pa.scalar(None, pa.int32())),
            "seq": _number(table, "seq_id"),
            "phase": phase.dictionary_encode(),
            "ts_ns": _ns(table["start_ts"]),
            "dur_ns": _ns(table["duration"]),
            "source": pa.array(["bytedance"] * table.num_rows).dictionary_encode(),
        }
    )


def _number(table: pa.Table, name: str) -> pa.ChunkedArray | pa.Array:
    """A column of small whole numbers; -1 and an absent column are null."""
    if name not in table.column_names:
        return pa.nulls(table.num_rows, pa.int32())
    values = table[name].cast(pa.int32())
    return pc.if_else(pc.greater_equal(values, 0), values, pa.scalar(None, pa.int32()))


def _ns(seconds: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.round(pc.multiply(seconds, 1e9)).cast(pa.int64())


def _sizes(source: Source) -> Tables:
    given = {m[1].decode(): m[2].decode("utf-8", "replace").strip("'\"") for m in _SETTING.finditer(source.head())}
    world = given.get("world_size", "")
    files = {
        "file": 0, "path": source.label, "kind": "pipeline_sizes", "events_count": len(given), "status": "ok",
        "detail": "", "world_size": int(world) if world.isdecimal() else None,
    }  # fmt: skip
    keys = [_SIZES.get(key, key) for key in given]
    rows = {"key": keys, "value": list(given.values()), "source": [source.label] * len(keys)}
    return {
        "files": INGESTED["files"].build({name: [value] for name, value in files.items()}),
        "settings": INGESTED["settings"].build(rows),
        "quality": quality([]),
    }
