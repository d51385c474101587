"""Pipeline timelines that Primus dumps per pipeline rank (`dump_pp_data`), as `microbatches`.

One JSON object per rank: iteration -> lists `fwd_start`, `fwd_end`, `bwd_*` and, under zero-bubble schedules, `wgrad_*`
(ms by CUDA events, from the moment the rank's schedule began), with `*_minibatch` and `*_chunk` beside them where the
schedule numbers its work. Without numbers the n-th forward is that of micro-batch n, which holds for one chunk per
stage only. A backward whose weight gradient is listed is the input gradient alone, any other a whole backward. `total`
ends at the rank's own last backward, so it is not the step. Ranks begin a step together, so their origins are taken as
one; a lag between them stays in the figures. The file's name holds the pipeline rank; where it does not, the stage
stays unknown (a global rank is no stage).
Source: AMD-AGI/Primus, schedule_wrapper and fwd_bwd_wrapper; tools/visualization/pp_vis.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, quality
from diagnose.schema import INGESTED, Tables

_KEYS = re.compile(rb'"(?:fwd|bwd)_(?:start|end)"\s*:\s*\[')
_STAGE = re.compile(r"(?:pp|pipeline|pipe|stage)[_\-.]?(?:rank|stage)?[_\-.]?(\d{1,4})(?!\d)", re.IGNORECASE)
_MAX_BYTES = 512 << 20
_MOST_MS = 1e11
"""Three years; a step is no longer, and whole ns of more would not fit."""
_MOST = 1 << 20
"""Above any number of micro-batches or chunks."""
_UNKNOWN = -1
_MODES = ("fwd", "bwd", "wgrad")

Ints = npt.NDArray[np.int64]


def sniff(head: bytes, name: str) -> bool:
    """A JSON object whose head holds the lists that only this dump has."""
    return head.lstrip()[:1] == b"{" and bool(_KEYS.search(head)) and b'"traceEvents"' not in head


def read(source: Source, options: Options) -> Tables:
    """files, microbatches, quality. InputError where it is cut or no iteration has a complete list."""
    data = source.whole(_MAX_BYTES, "a pipeline timeline of more than 512 MiB", "a smaller one")
    try:
        dump = json.loads(data)
    except ValueError as error:
        raise InputError(
            source.label, "a pipeline timeline that does not parse", "a whole file", "dump it again"
        ) from error
    parts, bad = [], 0
    for step, lists in dump.items() if isinstance(dump, dict) else ():
        rows = _of_step(lists) if step.isdecimal() and len(step) < 16 and isinstance(lists, dict) else None
        if rows is None:
            bad += 1
        else:
            parts.append({**rows, "step": np.full(len(rows["ts_ns"]), int(step))})
    if not parts:
        raise InputError(source.label, "no iteration with starts and ends", "a pipeline timeline", "dump it again")
    stage = _STAGE.search(source.name)
    columns: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    count = len(columns["ts_ns"])
    columns |= {"stage": [int(stage[1]) if stage else None] * count, "source": ["primus"] * count}
    for name in ("microbatch", "chunk"):
        columns[name] = pa.array(columns[name], mask=columns[name] == _UNKNOWN)
    ends = columns["ts_ns"] + columns["dur_ns"]
    files: dict[str, Any] = {
        "file": [0], "path": [source.label], "kind": ["pipeline_timeline"], "events_count": [count],
        "start_ns": [int(columns["ts_ns"].min())], "end_ns": [int(ends.max())],
        "status": ["partial" if bad else "ok"],
        "detail": [f"{bad} iterations whose lists do not fit together were left out" if bad else ""],
    }  # fmt: skip
    notes = [{"problem": "unreadable_line", "path": source.label, "count": bad, "detail": files["detail"][0]}]
    return {
        "files": INGESTED["files"].build(files),
        "microbatches": INGESTED["microbatches"].build(columns),
        "quality": quality(notes if bad else []),
    }


def _of_step(lists: dict[str, Any]) -> dict[str, Any] | None:
    """Columns of one iteration; None where starts and ends do not pair."""
    parts = []
    for mode, phase in zip(_MODES, ("forward", "backward", "weight"), strict=True):
        start, end = (_ns(lists.get(f"{mode}_{edge}", [])) for edge in ("start", "end"))
        if start is None or end is None or len(start) != len(end) or (end < start).any():
            return None
        microbatch, chunk = (_numbers(lists.get(f"{mode}_{what}"), len(start)) for what in ("minibatch", "chunk"))
        if (chunk == _UNKNOWN).all() and (microbatch == _UNKNOWN).all():
            microbatch = np.arange(len(start))
        columns = {"ts_ns": start, "dur_ns": end - start, "microbatch": microbatch, "chunk": chunk}
        parts.append({**columns, "seq": np.arange(len(start)), "phase": np.full(len(start), phase, object)})
    _mark_split(parts[1], parts[2])
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return joined if len(joined["ts_ns"]) else None


def _mark_split(backward: dict[str, Any], weight: dict[str, Any]) -> None:
    """Backwards whose weight gradient is apart are input gradients; without numbers, all of them."""
    if not len(weight["ts_ns"]):
        return
    one, other = (part["microbatch"] * _MOST + part["chunk"] for part in (backward, weight))
    backward["phase"][np.isin(one, other)] = "backward_input"


def _ns(values: Any) -> Ints | None:
    """Whole ns from ms; None where one is no finite number."""
    try:
        ms = np.array(values, np.float64)
    except (TypeError, ValueError):
        return None
    possible = ms.ndim == 1 and bool(np.isfinite(ms).all()) and bool((np.abs(ms) < _MOST_MS).all())
    return np.rint(ms * 1e6).astype(np.int64) if possible else None


def _numbers(values: Any, count: int) -> Ints:
    if isinstance(values, list) and len(values) == count and all(isinstance(v, int) and 0 <= v < _MOST for v in values):
        return np.array(values, np.int64)
    return np.full(count, _UNKNOWN)
