"""The ring of one rank: the last steps in a preallocated file that is mapped into memory.

A reader needs nothing from the process: it may be stopped, stuck or dead. The file is allocated in full when it is
made (`posix_fallocate`): a sparse one would kill the training process with SIGBUS on the day the disk is full. For the
same reason it is never mapped on a network file system.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

from diagnose import hook_records as layout


class Ring:
    """Writes records; the newest overwrites the oldest. OSError where the file cannot be made."""

    def __init__(self, path: Path | None, writer: dict[str, Any], slots: int = layout.RING_SLOTS) -> None:
        self.path, self.slots, self.seq = path, slots, 0
        size = layout.HEADER_BYTES + slots * layout.SLOT.size
        if path is None:  # no place on disk: still there for who asks the process
            self.memory = mmap.mmap(-1, size)
        else:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(handle, 0, size)
                self.memory = mmap.mmap(handle, size)
            except OSError:
                path.unlink(missing_ok=True)
                raise
            finally:
                os.close(handle)
        self.memory[: layout.HEADER_BYTES] = layout.header(writer)

    def put(self, values: list[int], wall_ns: int) -> None:
        """Append one record; the header follows the slot, so the last number never names an unwritten one."""
        seq = self.seq + 1
        start = layout.HEADER_BYTES + (seq - 1) % self.slots * layout.SLOT.size
        memory = self.memory
        memory[start : start + layout.SLOT.size] = layout.pack(seq, values)
        memory[layout.LAST_AT : layout.LAST_AT + 16] = layout.last(seq, wall_ns)
        self.seq = seq

    def since(self, seq: int) -> tuple[bytes, int, int]:
        """Slots of the records after `seq`: their bytes, the last one's number, and how many were overwritten."""
        newest = self.seq
        oldest = max(seq, newest - self.slots + 8)  # the writer may be a few slots ahead by the time we copy
        pieces = []
        for number in range(oldest, newest):
            start = layout.HEADER_BYTES + number % self.slots * layout.SLOT.size
            pieces.append(self.memory[start : start + layout.SLOT.size])
        return b"".join(pieces), newest, oldest - seq
