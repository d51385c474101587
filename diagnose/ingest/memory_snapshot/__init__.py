"""CUDA memory snapshots (`torch.cuda.memory._dump_snapshot`) of every age: state at the end, and what led to it.

Pickles of protocol 2 to 5, SQLite files and JSON re-saves; the bare list of segments of PyTorch 1.13, the `history` of
2.0, addresses and settings from 2.1 on, expandable segments, several devices, history absent or cut. Snapshots of other
devices' forks (torch_npu) have the same form. Not here: memory outside the caching allocator (CUDA context, NCCL, other
processes).
Source: torch/csrc/cuda/memory_snapshot.cpp, torch/cuda/_memory_viz.py, torch_cuda_memory.rst.
"""

from __future__ import annotations

import re

import pyarrow as pa

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, quality
from diagnose.ingest.memory_snapshot import _sqlite
from diagnose.ingest.memory_snapshot._document import flat_of
from diagnose.ingest.memory_snapshot._flat import Flat
from diagnose.schema import INGESTED, Tables

_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_MARKS = (b"device_traces", b"segments", b"total_size")
_JSON = re.compile(rb'"(segments|device_traces)"\s*:')
_LIST = re.compile(rb'\s*\[\s*\{[^{}\[\]]*"(total_size|segment_type)"\s*:')
_TRACE = re.compile(rb'"(traceEvents|ph|schemaVersion|deviceProperties|distributedInfo)"')


def sniff(head: bytes, name: str) -> bool:
    """Whether the document is a memory snapshot: a pickle or JSON with segments or device traces at its head."""
    if head.startswith(_sqlite.MAGIC):
        return b"device_traces" in head and b"segments" in head
    if _PICKLE.match(head):
        return any(mark in head for mark in _MARKS)
    if head.lstrip()[:1] not in (b"{", b"[") or _TRACE.search(head):
        return False
    return bool(_JSON.search(head) or _LIST.match(head))


def read(source: Source, options: Options) -> Tables:
    """allocations, segments, blocks, stacks, marks, settings, files and quality. InputError where it is no snapshot."""
    flat = flat_of(source)
    tables = {name: INGESTED[name].build(columns) for name, columns in flat.columns.items()}
    if not any(tables[name].num_rows for name in ("segments", "blocks", "allocations")):
        raise InputError(
            source.label,
            "a memory snapshot without segments or history",
            "one taken while the job held device memory",
            "call torch.cuda.memory._record_memory_history() before training and dump during it",
        )
    settings = [{"key": k, "value": v, "source": source.label} for k, v in flat.settings.items()]
    schema = INGESTED["settings"]
    tables["settings"] = schema.of_rows(settings)
    tables["files"] = _files(source.label, flat, tables)
    tables["quality"] = quality([{**note, "path": source.label} for note in flat.notes])
    return tables


def _files(path: str, flat: Flat, tables: Tables) -> pa.Table:
    doubtful = next((n["detail"] for n in flat.notes if n["problem"] in ("inconsistent_state", "unparsed_value")), "")
    return INGESTED["files"].build(
        {
            "file": [0],
            "path": [path],
            "kind": ["memory_snapshot"],
            "gpu_count": [flat.devices_count],
            "start_ns": [flat.start_ns],
            "end_ns": [flat.end_ns],
            "events_count": [tables["allocations"].num_rows + tables["blocks"].num_rows],
            "status": ["partial" if doubtful else "ok"],
            "detail": [doubtful],
        }
    )
