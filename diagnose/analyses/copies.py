"""Copies and sets between host and device.

`exposed_ns` is the part during which no kernel of the rank ran, so the device did nothing but copy; it is not what
removing the copy would win, as work may wait for it. Pageable host memory makes the driver stage the data and
the call block. Direction and memory kind come from the name the profiler gave (CUPTI 2021 to 2026, roctracer).
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Flags, Ints, codes, dictionary, flags, integers, label, rows_of, take
from diagnose.analyses._intervals import overlap_with, union
from diagnose.analyses._work import by_rank
from diagnose.schema import BOOL, INT32, INT64, LABEL, table

SCHEMA = table(
    "copy",
    ("event_id", INT64, "row of events"),
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null outside"),
    ("direction", LABEL, "h2d | d2h | d2d | p2p | memset | unknown"),
    ("pageable", BOOL, "host side is pageable memory; null where not recorded"),
    ("size_bytes", INT64, "bytes; null where not recorded"),
    ("ts_ns", INT64, "start"),
    ("dur_ns", INT64, "duration"),
    ("exposed_ns", INT64, "of it, while no kernel ran"),
    ("host_blocked_ns", INT64, "duration of the launching call"),
    ("op", LABEL, "operator at the launch"),
    ("module", LABEL, "module or named range"),
    ("source", LABEL, "source line, where recorded"),
)

_DIRECTIONS = (
    (r"memset|fillbuffer", "memset"),
    (r"ptop|peer|p2p", "p2p"),
    (r"htod|host_?to_?device|h2d|htoa", "h2d"),
    (r"dtoh|device_?to_?host|d2h|atoh", "d2h"),
    (r"dtod|device_?to_?device|d2d|dtoa|atod|atoa", "d2d"),
)
"""Looked for in the lower-case name, in this order."""


def copies(kernels: pa.Table, device_args: pa.Table, events: pa.Table) -> pa.Table:
    """One row per copy or set of every rank."""
    parts = [_of_rank(mine, device_args) for _, mine in by_rank(kernels)]
    return pa.concat_tables(parts).unify_dictionaries() if parts else SCHEMA.empty()


def _of_rank(kernels: pa.Table, device_args: pa.Table) -> pa.Table:
    is_copy = _copies(kernels)
    start = integers(kernels["ts_ns"])
    end = start + integers(kernels["dur_ns"])
    busy = union(start[~is_copy], end[~is_copy])
    found = kernels.filter(pa.array(is_copy))
    names = dictionary(found["name"])
    name = codes(found["name"])
    pageable = np.array([_pageable(text) for text in names], dtype=np.int64)[name]
    sized = device_args.filter(device_args["size_bytes"].is_valid())
    size = take(integers(sized["size_bytes"]), rows_of(integers(sized["event_id"]), integers(found["event_id"])), -1)
    launched = flags(found["launch_ns"].is_valid()) & flags(found["launch_end_ns"].is_valid())
    blocked: Ints = integers(found["launch_end_ns"]) - integers(found["launch_ns"])
    duration = integers(found["dur_ns"])
    return SCHEMA.build(
        {
            **{c: found[c] for c in ("event_id", "rank", "step", "ts_ns", "dur_ns", "op", "module", "source")},
            "direction": label([_direction(text) for text in names], name),
            "pageable": np.ma.masked_array(pageable == 1, mask=pageable < 0),
            "size_bytes": np.ma.masked_array(size, mask=size < 0),
            "exposed_ns": duration - overlap_with(start[is_copy], end[is_copy], busy),
            "host_blocked_ns": np.ma.masked_array(blocked, mask=~launched),
        }
    )


def _copies(kernels: pa.Table) -> Flags:
    wanted = np.array([text == "copy" for text in dictionary(kernels["class"])], dtype=bool)
    return np.asarray(wanted[codes(kernels["class"])], dtype=bool)


def _direction(name: str) -> str:
    lower = name.lower()
    return next((direction for pattern, direction in _DIRECTIONS if re.search(pattern, lower)), "unknown")


def _pageable(name: str) -> int:
    """1 pageable, 0 pinned or managed, -1 not said."""
    lower = name.lower()
    return 1 if "pageable" in lower else 0 if re.search(r"pinned|managed", lower) else -1
