"""What the live hook writes: the record of one step, the files that hold records, how they are checked.

One record is a slot of int64 words: a sequence number, the fields below, a checksum. A field that was not measured in
that step is `UNKNOWN`, never zero. The same slots lie in two files per rank: the *ring* (preallocated, mapped into
memory, the last `RING_SLOTS` steps; what it holds survives `kill -9`) and the *history* (segments that are only
appended to, the oldest dropped). Both begin with a header of `HEADER_BYTES`: a fixed head, then JSON that names the
writer and the fields, so that a reader of another version finds what it knows by name.

A slot that was being written when the process died fails its checksum and is left out; it is no repair. The checksum
is Adler-32 of the words before it (RFC 1950), which numpy can check for all slots at once.
This module imports nothing outside the standard library (numpy only to decode): a training process loads it.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

UNKNOWN = -(1 << 63)
"""Stands for a value that was not measured."""
VERSION = 1
RING_SLOTS = 2048
HEADER_BYTES = 4096
HISTORY_BYTES = 16 << 20
"""Size at which a segment of the history is full."""
HISTORY_SEGMENTS = 4
MAX_FIELDS = 128


class Field(NamedTuple):
    """One word of a record; the unit is the suffix of the name."""

    name: str
    doc: str


FIELDS: tuple[Field, ...] = tuple(
    Field(*f)
    for f in (
        ("step", "number of the step in this process, from 1; restarts count anew"),
        ("profiler_step", "torch's own count of optimizer calls (KinetoStepTracker), which captures are armed with"),
        ("end_wall_ns", "wall clock at the end of the step"),
        ("end_mono_ns", "monotonic clock at the end of the step"),
        ("step_time_ns", "since the end of the step before, on the monotonic clock; unknown for the first"),
        ("input_time_ns", "in it, the training thread waited for a torch DataLoader"),
        ("forward_time_ns", "in it, ranges marked phase('forward')"),
        ("backward_time_ns", "in it, torch.autograd.backward on the host, waiting inside included"),
        ("optimizer_time_ns", "in it, Optimizer.step of the leading optimizer"),
        ("checkpoint_time_ns", "in it, ranges marked phase('checkpoint')"),
        ("other_phase_time_ns", "in it, ranges marked with any other name"),
        ("gc_time_ns", "in it, Python's garbage collector ran"),
        ("gc_count", "collections in it"),
        ("wait_time_ns", "in it, the host was blocked in Work.wait of collectives called from Python"),
        ("wait_count", "such waits"),
        ("previous_ddp_comm_time_ns", "communication of DistributedDataParallel in the step before that its backward "
                             "did not hide; unknown where not sampled, or parameters lie on a device"),
        ("previous_device_time_ns", "device time of the step before, by two events; read when both had happened, never "
                                    "waited for"),
        ("memory_allocated_bytes", "allocator: in use, at the end of the step"),
        ("memory_reserved_bytes", "allocator: reserved"),
        ("peak_memory_allocated_bytes", "allocator: highest use since the training script last reset it"),
        ("memory_inactive_bytes", "allocator: free inside segments that are in use (inactive_split)"),
        ("alloc_retries_count", "allocator: retries after a failed cudaMalloc, since the process began"),
        ("ooms_count", "allocator: out-of-memory errors, since the process began"),
        ("device_free_bytes", "free on the device, for all processes"),
        ("device_total_bytes", "memory of the device"),
        ("host_memory_bytes", "resident memory of the process"),
        ("routed_count", "tokens the routers chose experts for, over all observed layers"),
        ("dropped_count", "of them, dropped for lack of capacity; unknown where nobody says"),
        ("hook_time_ns", "the hook's own time on the training thread since the end of the step before"),
        ("hook_cpu_time_ns", "its CPU time there; measured now and then"),
        ("probe_every_count", "dearer figures are taken every so many steps: above 1 the hook has turned itself down"),
        ("record_every_count", "steps are recorded every so many: above 1 even the least was over the budget"),
        ("flags", "bits: see FLAGS"),
        ("lost_records_count", "records that the history could not take, since the process began"),
        ("hook_errors_count", "errors of the hook that it swallowed, since the process began"),
        ("skipped_count", "optimizer steps that a gradient scaler skipped, since the process began"),
    )
)  # fmt: skip
FLAGS = {
    1: "capture: a profiler capture ran in this step",
    2: "clock_jump: the wall clock moved against the monotonic one",
    4: "history_failed: the history could not be written",
    8: "user_step: the end was marked by the script",
    16: "skipped: the gradient scaler skipped this optimizer step",
}
CAPTURE, CLOCK_JUMP, HISTORY_FAILED, USER_STEP, SKIPPED = FLAGS
WORDS = len(FIELDS) + 2
SLOT = struct.Struct(f"<{WORDS}q")
_BODY = struct.Struct(f"<{WORDS - 1}q")
_CHECK = struct.Struct("<q")
PLACE = {field.name: number for number, field in enumerate(FIELDS)}

_MAGIC = b"DIAGHOOK"
_HEAD = struct.Struct("<8sIIIIqq")  # magic, version, slot bytes, fields, bytes of JSON, last sequence number, its time
_LAST = struct.Struct("<qq")
LAST_AT = 24
"""Where the last sequence number and the wall time of its writing stand in the header."""


class Header(NamedTuple):
    """What the head of a file says."""

    writer: dict[str, Any]
    """rank, world_size, process, host, attempt, ... as the writer put them."""
    fields: tuple[str, ...]
    slot_bytes: int
    last: int
    """Sequence number of the last record written to a ring; 0 in a history."""


def pack(seq: int, values: list[int]) -> bytes:
    """One slot: sequence number, `values` in the order of FIELDS, checksum."""
    body = _BODY.pack(seq, *values)
    return body + _CHECK.pack(zlib.adler32(body))


def header(writer: dict[str, Any]) -> bytes:
    """Header of a new file; `writer` must be small enough to fit beside the names of the fields."""
    text = json.dumps({"writer": writer, "fields": [f.name for f in FIELDS]}, separators=(",", ":")).encode()
    assert len(text) <= HEADER_BYTES - _HEAD.size, "the writer's description is too long"
    head = _HEAD.pack(_MAGIC, VERSION, SLOT.size, len(FIELDS), len(text), 0, 0)
    return (head + text).ljust(HEADER_BYTES, b"\0")


def last(seq: int, wall_ns: int) -> bytes:
    """What stands at LAST_AT after record `seq` was written."""
    return _LAST.pack(seq, wall_ns)


def is_records(head: bytes) -> bool:
    """Whether a file begins like one of the hook's."""
    return head.startswith(_MAGIC)


def parse_header(head: bytes) -> Header:
    """Header of a file's first HEADER_BYTES. ValueError, one line, where it is none or damaged."""
    if len(head) < HEADER_BYTES or not is_records(head):
        raise ValueError("a file cut inside its header" if is_records(head) else "no header of hook records")
    _, version, slot_bytes, count, length, seq, _ = _HEAD.unpack_from(head)
    if version != VERSION:
        raise ValueError(f"records of version {version}; this program reads version {VERSION}")
    if not 0 < count <= MAX_FIELDS or slot_bytes != 8 * (count + 2) or length > HEADER_BYTES - _HEAD.size:
        raise ValueError("a header whose sizes contradict each other")
    try:
        text = json.loads(head[_HEAD.size : _HEAD.size + length])
        writer, fields = text["writer"], text["fields"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("a header whose description does not parse") from None
    named = isinstance(fields, list) and len(fields) == count and all(isinstance(f, str) for f in fields)
    if not named or not isinstance(writer, dict) or len(set(fields)) != count or "step" not in fields:
        raise ValueError("a header that does not name its fields")
    return Header(writer, tuple(fields), slot_bytes, max(0, seq))


class Records(NamedTuple):
    """Checked records in order of their sequence numbers."""

    seq: NDArray[np.int64]
    values: dict[str, NDArray[np.int64]]
    torn_count: int
    """Slots that hold something and fail the check."""
    cut_bytes: int = 0
    """Bytes of a last slot that is not whole: the writer was killed while it wrote, or the file was cut."""


def decode(head: Header, body: bytes | memoryview) -> Records:
    """Records of the slots in `body` (what follows the header); empty slots and a cut last one are left out."""
    import numpy as np

    count = len(body) // head.slot_bytes
    words = np.frombuffer(body, "<i8", count * (head.slot_bytes // 8)).reshape(count, head.slot_bytes // 8)
    cut = len(body) - count * head.slot_bytes
    used = words.any(axis=1)
    words = words[used]
    good = (words[:, 0] > 0) & (_adler(words[:, :-1]) == words[:, -1])
    torn = int(len(words) - good.sum())
    words = words[good]
    _, first = np.unique(words[:, 0], return_index=True)
    words = words[first]
    return Records(words[:, 0], {name: words[:, 1 + i] for i, name in enumerate(head.fields)}, torn, cut)


def _adler(words: NDArray[np.int64]) -> NDArray[np.int64]:
    """Adler-32 of every row's bytes."""
    import numpy as np

    octets = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), 8 * words.shape[1]).astype(np.float64)
    size = octets.shape[1]
    weights = np.stack([np.ones(size), np.arange(size, 0, -1, dtype=np.float64)], axis=1)
    sums = (octets @ weights).astype(np.int64)  # exact: below 2^53
    low, high = (1 + sums[:, 0]) % 65521, (size + sums[:, 1]) % 65521
    result: NDArray[np.int64] = (high << 16) | low
    return result
