"""From slices of JSON text to typed columns: DuckDB's JSON reader over Arrow string views, nothing copied.

Each kind of event is read with the keys that its kind can hold, since a key asked of every event costs more
than the parsing. Of a key that occurs twice the first value counts (the Python exporter writes such events).
`TRY` keeps a bad event to itself: it becomes a null row.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import ParamSpec, TypeVar

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from diagnose import processors
from diagnose.ingest.kineto._cut import Indices
from diagnose.ingest.kineto._stream import Bytes

Spec = dict[str, object]
Given = ParamSpec("Given")
Result = TypeVar("Result")

TEXT, INT, REAL, JSON = "VARCHAR", "BIGINT", "DOUBLE", "JSON"
MICROSECONDS = "DECIMAL(25,3)"  # exact nanoseconds, and room for nanoseconds written where microseconds belong

SORT: Spec = {"ph": TEXT, "cat": TEXT, "name": TEXT, "pid": TEXT}
ROW: Spec = {"pid": TEXT, "tid": TEXT}
_TOP: Spec = {"name": TEXT, "pid": INT, "tid": INT, "ts": MICROSECONDS, "dur": MICROSECONDS}
_LINK: Spec = {"External id": INT, "correlation": INT}

SHAPES: dict[str, Spec] = {
    "bare": _TOP,
    "meta": {"name": TEXT, "pid": INT, "tid": INT, "args": {"name": TEXT}},
    "op": {
        **_TOP,
        "args": {
            "External id": INT,
            "Sequence number": INT,
            "Fwd thread id": INT,
            "Input Dims": JSON,
            "Input type": JSON,
            "Concrete Inputs": JSON,
            "Collective name": TEXT,
        },
    },
    "runtime": {**_TOP, "args": {**_LINK, "size": INT}},
    "device": {
        **_TOP,
        "args": {
            **_LINK,
            "device": INT,
            "stream": INT,
            "bytes": INT,
            "context": INT,
            "graph node id": INT,
            "grid": [INT],
            "est. achieved occupancy %": REAL,
            "memory bandwidth (GB/s)": REAL,
            "wait_on_stream": INT,
            "wait_on_cuda_event_record_corr_id": INT,
            "Collective name": TEXT,
        },
    },
    "memory": {
        **_TOP,
        "args": {
            "Addr": "UBIGINT",
            "Bytes": INT,
            "Device Id": INT,
            "Device Type": INT,
            "Total Allocated": INT,
            "Total Reserved": INT,
        },
    },
}

COLLECTIVE: Spec = {
    "args": {
        **dict.fromkeys(("Collective name", "dtype", "Process Group Name", "Process Group ID"), TEXT),
        **dict.fromkeys(("Process Group Description",), TEXT),
        **dict.fromkeys(("In split size", "Out split size", "Process Group Ranks"), JSON),
        **dict.fromkeys(("In msg nelems", "Out msg nelems", "In msg size", "Out msg size"), INT),
        **dict.fromkeys(("Group size", "Seq", "Rank", "Src Rank", "Dst Rank", "Root Rank"), INT),
        **dict.fromkeys(("Global rank start", "Global rank stride"), INT),
        "Comms Id": "UBIGINT",
    }
}


class Slices:
    """Pieces of one buffer, as Arrow string views."""

    def __init__(self, padded: Bytes, starts: Indices, ends: Indices) -> None:
        self.padded, self.starts, self.ends = padded, starts, ends

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Slices:
        """Some of the slices."""
        return Slices(self.padded, self.starts[rows], self.ends[rows])

    def texts(self, count: int) -> list[bytes]:
        """The first few slices."""
        return [self.padded[a:b].tobytes() for a, b in zip(self.starts[:count], self.ends[:count], strict=True)]

    def arrow(self) -> pa.Array:
        """A string view array on the buffer itself."""
        views = np.zeros((len(self), 4), np.int32)
        prefixes = np.ndarray((len(self.padded) - 3,), np.int32, self.padded.data, strides=(1,))
        views[:, 0] = self.ends - self.starts
        views[:, 1] = prefixes[self.starts]
        views[:, 3] = self.starts
        for row in np.flatnonzero(views[:, 0] <= 12):  # so short a text stands in its view
            text = self.padded[self.starts[row] : self.ends[row]].tobytes().ljust(12, b"\0")
            views[row, 1:] = np.frombuffer(text, np.int32)
        buffers = [None, pa.py_buffer(views), pa.py_buffer(self.padded)]
        return pa.Array.from_buffers(pa.string_view(), len(self), buffers)


class Parser:
    """DuckDB's JSON reader; one connection serves all files of a process.

    Parallel queries on one thread each beat one query on all threads: blocks are small, and a query waits for the
    slowest of its threads.
    """

    def __init__(self) -> None:
        self._local = threading.local()
        self._pool = _pool(os.getpid())

    def begin(self, work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Future[Result]:
        """Do some work beside other work: `parse` a lot, or prepare the next."""
        return self._pool.submit(work, *given, **named)

    def parse(self, slices: Slices, spec: Spec) -> pa.StructArray:
        """The keys of `spec` for each slice, in order; a null struct where a slice is not valid JSON."""
        if not hasattr(self._local, "cursor"):
            self._local.cursor = _connect(os.getpid()).cursor()
        cursor = self._local.cursor
        texts = cursor.from_arrow(pa.table([slices.arrow()], ["text"]))  # naming it in SQL costs a millisecond more
        found = texts.project(f"TRY(json_transform(text, '{json.dumps(spec)}')) AS event").to_arrow_table()["event"]
        assert len(found) == len(slices)
        return found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()


@cache
def _connect(process: int) -> duckdb.DuckDBPyConnection:
    """`process` keeps a forked child from using its parent's connection."""
    return duckdb.connect(config={"threads": 1, "memory_limit": "2GB"})


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(processors.usable(), thread_name_prefix="kineto")
