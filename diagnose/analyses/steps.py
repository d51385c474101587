"""Training steps: when the host issued them and when the device ran them.

A mark on the host says when a step was *issued*; the device may run behind by several steps. On the device a step
starts at its mark when no older work is left then; if older work is left, at the end of that work or at the step's
own first kernel, whichever is earlier; it ends where the next one starts (the last: with its last work or its mark,
whichever is later). Copies start no step. The launching call tells whose work a kernel is; where under half of the
device work has one, and on recordings without a device, the marks themselves bound the steps.

A null device interval means that the recording lacks the device side, not that the step was empty.
`complete` is false for the last step of a recording that was cut, or stopped just after the step began.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Ints, flags, integers
from diagnose.analyses._marks import Marks, find_marks
from diagnose.analyses._work import NEVER, Work, by_rank, device_work, serial_ends, side
from diagnose.schema import BOOL, INT32, INT64, LABEL, table

SCHEMA = table(
    "step of one rank",
    ("rank", INT32, "global rank"),
    ("step", INT64, "number from the annotation, else order"),
    ("name", LABEL, "the mark"),
    ("source", LABEL, "profiler_step | annotation | collectives (a guess)"),
    ("host_ts_ns", INT64, "start of the mark on the host; null where steps were guessed from the device"),
    ("host_dur_ns", INT64, "its duration"),
    ("ts_ns", INT64, "start on the device: see the module docstring; null where the device side is missing"),
    ("dur_ns", INT64, "device duration"),
    ("complete", BOOL, "false where the recording cuts the step"),
)

_CUT = ("truncated", "damaged_compression")


def steps(events: pa.Table, files: pa.Table | None = None, quality: pa.Table | None = None) -> pa.Table:
    """Steps of every rank, in order of time; none for ranks without any mark."""
    found = [_of_rank(rank, part, files, quality) for rank, part in by_rank(events)] if events.num_rows else []
    return pa.concat_tables([SCHEMA.empty(), *found]).unify_dictionaries().combine_chunks()


def _of_rank(rank: int, events: pa.Table, files: pa.Table | None, quality: pa.Table | None) -> pa.Table:
    work = device_work(events)
    marks = find_marks(events, work)
    if not marks.source:
        return SCHEMA.empty()
    starts, ends = device_intervals(marks, work)
    count = len(marks.start)
    missing = np.full(count, side(events, work, files) == "missing")
    guessed = np.full(count, marks.source == "collectives")
    complete = np.ones(count, bool)
    complete[-1] = not (_is_cut(rank, quality) or _is_stub(marks, work))
    return SCHEMA.build(
        {
            "rank": np.full(count, rank, np.int32),
            "step": marks.number,
            "name": marks.name,
            "source": [marks.source] * count,
            "host_ts_ns": np.ma.array(marks.start, mask=guessed),
            "host_dur_ns": np.ma.array(marks.end - marks.start, mask=guessed),
            "ts_ns": np.ma.array(starts, mask=missing),
            "dur_ns": np.ma.array(ends - starts, mask=missing),
            "complete": complete,
        }
    )


def device_intervals(marks: Marks, work: Work) -> tuple[Ints, Ints]:
    """(starts, ends) of the steps on the device, ns; ends[i] == starts[i + 1] where launches tell."""
    if not work.mostly_linked or marks.source == "collectives":
        return marks.start, marks.end
    ends = serial_ends(work)
    issued = np.where(work.in_flight, NEVER, np.where(work.linked, work.launch_ns, np.iinfo(np.int64).max))
    # mark that holds the launch: -1 before the first, len(marks) after the last or unknown
    holder = np.searchsorted(marks.start, issued, "right") - 1
    holder[issued >= marks.end[-1]] = len(marks.start)
    count = len(marks.start)
    last_end = np.full(count + 2, NEVER, np.int64)
    np.maximum.at(last_end, holder + 1, ends)
    older_end = np.maximum.accumulate(last_end)[:count]
    first_kernel = np.full(count + 2, np.iinfo(np.int64).max, np.int64)
    np.minimum.at(first_kernel, holder[work.kernel] + 1, work.start[work.kernel])
    starts = np.where(older_end > marks.start, np.minimum(older_end, first_kernel[1 : count + 1]), marks.start)
    starts = np.maximum.accumulate(np.maximum(starts, marks.start))
    close = max(int(last_end[count]), int(marks.end[-1]), int(starts[-1]))
    return starts, np.append(starts[1:], close)


def _is_stub(marks: Marks, work: Work) -> bool:
    """The last mark launched nothing, others did: the profiler stopped just after it began."""
    if len(marks.start) < 2 or not work.mostly_linked:
        return False
    last = work.launch_ns >= marks.start[-1]
    return not last.any() and bool((work.launch_ns >= marks.start[0]).any())


def _is_cut(rank: int, quality: pa.Table | None) -> bool:
    if quality is None or not quality.num_rows:
        return False
    cut = np.isin(np.array(quality["problem"].to_pylist(), object), _CUT)
    return bool((cut & (integers(quality["rank"], -1) == rank) & flags(quality["rank"].is_valid())).any())
