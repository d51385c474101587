"""TensorBoard event files (`events.out.tfevents.*`) as `series`: the scalars, under the tags they were written with.

Images, histograms, texts and graphs are left out. Every event carries the wall clock: that gives `step_ends`, and time
since the first event, which stands for the step time where no tag gives one. Megatron-LM writes many tags a second
time over consumed samples (`... vs samples`): their step is no step, so they are left out and counted. A restart
appends to the run's folder or file; where a tag's step goes back a new segment begins.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, quality
from diagnose.ingest.tensorboard._events import Scalars, scalars
from diagnose.schema import INGESTED, Tables

Ints = npt.NDArray[np.int64]
_OTHER_AXIS = re.compile(r" vs (?:samples|tokens|flops)$")
_HOST = re.compile(r"^events\.out\.tfevents\.\d+\.([\w.-]+?)(?:\.\d+)*(?:\.v2)?$")


def sniff(head: bytes, name: str) -> bool:
    """Whether the first record is the one that says the file's version."""
    return b"brain.Event:" in head[:96]


def read(source: Source, options: Options) -> Tables:
    """files, series, step_ends, quality. InputError where no scalar is in it."""
    found = scalars(source.chunks())
    if not len(found.step):
        raise InputError(
            source.label, f"an event file without scalars ({found.others_count:,} other records)",
            "scalars (SummaryWriter.add_scalar)", "give the event file of the rank that logs",
        )  # fmt: skip
    kept = np.flatnonzero(~np.array([bool(_OTHER_AXIS.search(tag)) for tag in found.tags], bool)[found.tag])
    segment = _segments(found, kept)
    named = _HOST.match(source.name)
    cut = found.damaged_bytes > 0
    files = {
        "file": 0, "path": source.label, "kind": "tensorboard", "host": named[1] if named else None,
        "events_count": len(kept), "status": "partial" if cut else "ok",
        "detail": "the end of the file is cut or damaged" if cut else "",
    }  # fmt: skip
    return {
        "files": INGESTED["files"].build({name: [value] for name, value in files.items()}),
        "series": _series(found, kept, segment),
        "step_ends": _step_ends(found, kept, segment),
        "quality": quality([{**note, "path": source.label} for note in _notes(found, len(kept))]),
    }


def _segments(found: Scalars, kept: Ints) -> Ints:
    """Segment of each kept scalar: how often the step of the tag that went back most often had gone back by then."""
    step, tag = found.step[kept], found.tag[kept]
    back = np.zeros(len(kept), bool)
    for number in np.unique(tag).tolist():
        mine = np.flatnonzero(tag == number)
        back[mine[1:]] = np.diff(step[mine]) < 0
    # tags of one restart go back one after the other: count it once, at the first of them
    first = back & (np.diff(np.concatenate(([step[0] if len(step) else 0], step))) < 0)
    return np.cumsum(first)


def _series(found: Scalars, kept: Ints, segment: Ints) -> pa.Table:
    rows = INGESTED["series"].build(
        {
            "step": found.step[kept],
            "metric": pa.DictionaryArray.from_arrays(pa.array(found.tag[kept].astype(np.int32)), pa.array(found.tags)),
            "value": found.value[kept],
            "segment": segment.astype(np.int32),
        }
    )
    _, last = _last_of_steps(found, kept, segment)
    elapsed = (found.wall_s[kept] - found.wall_s[kept].min())[last] * 1e9
    extra = {
        "step": found.step[kept][last], "metric": pa.array(["elapsed_time_ns"] * len(last), pa.string()),
        "value": elapsed, "segment": segment[last].astype(np.int32),
    }  # fmt: skip
    return pa.concat_tables([rows, INGESTED["series"].build(extra)]).unify_dictionaries()


def _step_ends(found: Scalars, kept: Ints, segment: Ints) -> pa.Table:
    _, last = _last_of_steps(found, kept, segment)
    wall = found.wall_s[kept][last]
    whole = np.floor(wall)
    ts_ns = whole.astype(np.int64) * 1_000_000_000 + np.rint((wall - whole) * 1e9).astype(np.int64)
    rows = {"step": found.step[kept][last], "segment": segment[last].astype(np.int32), "ts_ns": ts_ns}
    return INGESTED["step_ends"].build(rows | {"zoned": np.ones(len(last), bool)})


def _last_of_steps(found: Scalars, kept: Ints, segment: Ints) -> tuple[Ints, Ints]:
    """Segments and steps that have scalars, and the last scalar written of each."""
    key = np.stack([segment, found.step[kept]], axis=1)
    reverse = key[::-1]
    distinct, first = np.unique(reverse, axis=0, return_index=True)
    return distinct, len(key) - 1 - first


def _notes(found: Scalars, kept_count: int) -> list[dict[str, Any]]:
    doubled = len(found.step) - kept_count
    notes = (
        ("truncated", int(found.damaged_bytes > 0), f"{found.damaged_bytes:,} bytes at the end hold no whole record"),
        ("skipped_events", doubled, "scalars over samples, tokens or FLOP instead of steps; left out"),
        ("unparsed_value", found.others_count, "summaries that are no scalars (images, histograms, texts); left out"),
    )
    return [{"problem": problem, "count": count, "detail": detail} for problem, count, detail in notes if count]
