"""Samples of GPUs over time as `samples`: nvidia-smi (queries as CSV, `dmon`), `dcgmi dmon`, and DCGM's exporter.

They say how fast a GPU was clocked, how hot it was, how much memory was taken and why clocks fell, at moments and not
at steps. nvidia-smi does not print whose GPUs they are: then `host` is unknown, and the file stands for it. Without
times (a `dmon` without `-o DT`) they can be joined to no step, which `quality` says.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, quality
from diagnose.ingest.host_samples import _dmon, _prometheus, _query
from diagnose.ingest.host_samples._columns import Readings, samples
from diagnose.schema import INGESTED, Tables


def sniff(head: bytes, name: str) -> bool:
    """Whether the head has a sampler's header, or lines of DCGM's exporter."""
    if b"\0" in head or head[:1] in (b"{", b"["):
        return False
    return bool(_prometheus.MARK.search(head)) or _query.header(head) is not None or _dmon.header(head) is not None


def read(source: Source, options: Options) -> Tables:
    """files, samples, quality. InputError where no reading is a number."""
    head = source.head()
    found: Iterable[Readings]
    if _prometheus.MARK.search(head):
        found = _prometheus.readings(source)
    elif (names := _query.header(head)) is not None:
        found = _query.readings(source, names)
    else:
        found = _dmon.readings(source, _dmon.header(head) or [])
    rows = samples(list(found))
    if not rows.num_rows:
        raise InputError(source.label, "a table of GPU samples without numbers", "readings", "sample again")
    hosts = [host for host in rows["host"].unique().to_pylist() if host]
    files = {
        "file": 0, "path": source.label, "kind": "host_samples", "host": hosts[0] if len(hosts) == 1 else None,
        "gpu_count": len(set(rows["device"].unique().to_pylist()) - {None}), "events_count": rows.num_rows,
        "status": "ok", "detail": "",
    }  # fmt: skip
    return {
        "files": INGESTED["files"].build({name: [value] for name, value in files.items()}),
        "samples": rows,
        "quality": quality([{**note, "path": source.label} for note in _notes(rows)]),
    }


def _notes(rows: pa.Table) -> list[dict[str, object]]:
    timeless = rows["ts_ns"].null_count
    if not timeless:
        return []
    detail = (
        "GPU samples without date and time: they can be put to no step (nvidia-smi dmon -o DT, or a timestamp query)"
    )
    return [{"problem": "untimed_sample", "count": timeless, "detail": detail}]
