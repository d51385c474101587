"""Reading the ring of a rank, which may be running, stuck or dead: its last records, without asking the process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from diagnose import hook_records as layout
from diagnose.hook_records import Records


class Tail(NamedTuple):
    """The last records of a ring."""

    records: Records
    last: int
    """Number of the last record, 0 where nothing was written."""


def tail(path: Path, count: int) -> Tail:
    """The last `count` records. OSError or ValueError, one line, where the file is none of the hook's."""
    with path.open("rb") as file:
        handle = file.fileno()
        head = layout.parse_header(os.pread(handle, layout.HEADER_BYTES, 0))
        slots = (os.fstat(handle).st_size - layout.HEADER_BYTES) // head.slot_bytes
        if not 0 < slots <= 1 << 20:
            raise ValueError("a ring whose size does not fit its header")
        wanted = min(count + 2, slots, max(head.last, 1) + 1)
        end = head.last % slots + 1  # one more: it may have been written since
        data = b""
        for start, stop in ((max(0, end - wanted), end), (slots - max(0, wanted - end), slots)):
            if stop > start:
                size = (stop - start) * head.slot_bytes
                data += os.pread(handle, size, layout.HEADER_BYTES + start * head.slot_bytes)
    found = layout.decode(head, data)
    recent = found.seq > head.last - count
    kept = Records(found.seq[recent], {n: v[recent] for n, v in found.values.items()}, found.torn_count)
    return Tail(kept, head.last)
