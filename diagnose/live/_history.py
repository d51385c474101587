"""The history of one rank: every record, appended to segments that are dropped oldest first.

One thread copies new slots from the ring once a second; nothing is formatted. A full disk, a folder that has gone or
a file system that turned read-only stops nothing: the records that could not be kept are counted, the next try comes
later, and the ring still has the last steps. What had to be noted (a clock that jumped, an error of the hook) goes to
a small file of notes, one JSON object a line, whose first part is written in advance: that a disk is full can then
still be said on it.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from diagnose import hook_records as layout
from diagnose.live._ring import Ring

NOTES_BYTES = 1 << 20
RESERVED_BYTES = 8 << 10
RETRY_FLUSHES = 10
"""After a failure, flushes left out before the next try."""


class History:
    """Segments `STEM.0000.history`, ... of at most `segment_bytes`, and `STEM.notes.jsonl`."""

    def __init__(self, stem: Path, writer: dict[str, Any], segment_bytes: int = layout.HISTORY_BYTES) -> None:
        self.stem, self.writer, self.segment_bytes = stem, writer, segment_bytes
        self.kept_seq, self.lost_count, self.failed, self.problem = 0, 0, False, ""
        self._handle: int | None = None
        self._number, self._size, self._wait = 0, 0, 0
        self._notes: int | None = None
        self._notes_size = 0
        self._pending: list[bytes] = []

    def flush(self, ring: Ring, last: bool = False) -> None:
        """Append what is new in `ring`. Never raises OSError."""
        if self._wait and not last:
            self._wait -= 1
            return
        data, newest, missed = ring.since(self.kept_seq)
        self.lost_count += missed
        try:
            self._write(data)
            self.kept_seq, self.failed = newest, False
        except OSError as error:
            self.failed, self.problem, self._wait = True, error.strerror or str(error), RETRY_FLUSHES
            self._close()

    def note(self, kind: str, step: int, detail: str, wall_ns: int) -> None:
        """Remember a fact for the file of notes."""
        if len(self._pending) < 100:
            row = {"kind": kind, "step": step, "ts_ns": wall_ns, "detail": detail[:300]}
            self._pending.append(json.dumps(row).encode() + b"\n")

    def close(self) -> None:
        """Let go of the files."""
        if self._handle is not None:
            self._close()
        self._close_notes()

    def segment(self, number: int) -> Path:
        """File of one segment."""
        return self.stem.with_name(f"{self.stem.name}.{number:04d}.history")

    def _write(self, data: bytes) -> None:
        if not data:
            return
        if self._handle is not None and not self.segment(self._number).exists():
            self._close()  # the folder was removed under us
        if self._handle is None or self._size >= self.segment_bytes:
            self._open()
        assert self._handle is not None
        written = os.write(self._handle, data)
        self._size += written
        if written < len(data):  # the disk filled up: cut back to whole slots, so that the file stays readable
            whole = written - written % layout.SLOT.size
            os.ftruncate(self._handle, self._size - (written - whole))
            raise OSError(28, os.strerror(28))

    def _open(self) -> None:
        if self._handle is not None:
            self._close()
        self.stem.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.segment(self._number)
        partial = path.with_name(f".{path.name}")  # its name only once it has its header
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._handle = os.open(partial, flags, 0o600)
        head = layout.header(self.writer)
        if os.write(self._handle, head) < len(head):
            partial.unlink(missing_ok=True)
            raise OSError(28, os.strerror(28))
        partial.rename(path)
        self._size = len(head)
        if self._number >= layout.HISTORY_SEGMENTS:
            self.segment(self._number - layout.HISTORY_SEGMENTS).unlink(missing_ok=True)

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
        self._handle, self._number = None, self._number + 1

    def write_notes(self) -> None:
        """Write what was noted. Never raises OSError: what cannot be written waits for the next time."""
        if not self._pending and self._notes is not None:
            return
        path = self.stem.with_name(f"{self.stem.name}.notes.jsonl")
        with contextlib.suppress(OSError):
            if self._notes is None or not path.exists():
                self._reserve(path)
            assert self._notes is not None
            while self._pending and self._notes_size < NOTES_BYTES:
                self._notes_size += os.pwrite(self._notes, self._pending[0], self._notes_size)
                self._pending.pop(0)

    def _reserve(self, path: Path) -> None:
        """Begin the file with room for some notes: empty lines, which they take the place of."""
        self._close_notes()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._notes_size = 0
        first = {"kind": "started", "step": 0, "ts_ns": self.writer.get("wall_ns", 0), "detail": ""}
        self._notes_size = os.write(self._notes, json.dumps(first).encode() + b"\n")
        os.pwrite(self._notes, b"\n" * (RESERVED_BYTES - self._notes_size), self._notes_size)

    def _close_notes(self) -> None:
        if self._notes is not None:
            os.close(self._notes)
        self._notes = None
