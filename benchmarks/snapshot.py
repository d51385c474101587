"""A memory snapshot of more than a gigabyte: how long `diagnose run` takes, what it needs, how large its page is.

The snapshot is synthetic: a stationary job with 4,000 call stacks of 20 frames. It is written opcode by opcode, since
as Python objects it would take ten times its size; equal texts and stacks are shared, as in a real one.
"""

from __future__ import annotations

import argparse
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

BASE, SLOT_BYTES, STACKS = 0x7F00_0000_0000, 4 << 20, 4000
NAMES = (
    "device", "address", "total_size", "requested_size", "stream", "segment_type", "is_expandable", "frames", "blocks",
    "size", "state", "action", "addr", "time_us", "compile_context", "name", "filename", "line",
)  # fmt: skip
"""Written once ahead of everything: a nested record must not be the first to hold a name that its parent uses."""
SIZES_BYTES = (3584, 12_345, 1 << 20, 3 << 20)


class Writer:
    """Pickle protocol 2, value by value."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=1 << 24)
        self._memo: dict[object, int] = {}
        self.written_bytes = 0
        self.put(b"\x80\x02", *(self.text(name) + b"0" for name in NAMES))

    def put(self, *parts: bytes) -> None:
        """Append opcodes."""
        for part in parts:
            self.written_bytes += self._file.write(part)

    def _once(self, key: object, value: bytes) -> bytes:
        if key in self._memo:
            return b"j" + struct.pack("<I", self._memo[key])
        self._memo[key] = len(self._memo)
        return value + b"r" + struct.pack("<I", self._memo[key])

    def text(self, text: str) -> bytes:
        """A string, shared."""
        data = text.encode()
        return self._once(text, b"X" + struct.pack("<I", len(data)) + data)

    def record(self, **values: bytes) -> bytes:
        """A dictionary of values that are opcodes already."""
        return b"}(" + b"".join(self.text(key) + value for key, value in values.items()) + b"u"

    def stack(self, number: int) -> bytes:
        """Twenty frames, shared."""
        if ("stack", number) in self._memo:
            return self._once(("stack", number), b"")
        frames = [
            self.record(
                name=self.text(f"fn{(number * 7 + depth) % 500}"),
                filename=self.text(f"/app/model{(number + depth) % 90}.py"),
                line=whole((number * 13 + depth) % 900),
            )
            for depth in range(20)
        ]
        return self._once(("stack", number), listed(frames))

    def close(self) -> None:
        """End the pickle."""
        self.put(b".")
        self._file.close()


def listed(items: Iterable[bytes]) -> bytes:
    """A list of values that are opcodes already."""
    return b"](" + b"".join(items) + b"e"


def whole(value: int) -> bytes:
    """An integer."""
    if 0 <= value < 2**16:
        return b"M" + struct.pack("<H", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def write_snapshot(path: Path, size_bytes: int) -> int:
    """Write a snapshot of about `size_bytes`; how many history entries it has."""
    out, rng, entries, now_us = Writer(path), random.Random(1), 0, 1_700_000_000_000_000
    slots = list(range(200_000))
    rng.shuffle(slots)
    free, live = deque(slots), deque[tuple[int, int, int]]()
    out.put(b"}(", out.text("device_traces"), b"](](")
    while out.written_bytes < size_bytes:
        now_us += rng.randrange(1, 9)
        if len(live) < 3000 or rng.random() < 0.5:
            slot, size, stack = free.pop(), rng.choice(SIZES_BYTES), rng.randrange(STACKS)
            live.append((slot, size, stack))
            actions: tuple[str, ...] = ("alloc",)
        else:
            slot, size, stack = live.popleft()
            free.appendleft(slot)
            actions = ("free_requested", "free_completed")
        for action in actions:
            out.put(
                out.record(
                    action=out.text(action),
                    addr=whole(BASE + slot * SLOT_BYTES),
                    size=whole(size),
                    stream=whole(0),
                    time_us=whole(now_us),
                    compile_context=out.text("N/A"),
                    frames=out.stack(stack),
                )
            )
            entries += 1
    out.put(b"ee", out.text("segments"), b"](")
    for slot, size, stack in live:
        out.put(_segment(out, BASE + slot * SLOT_BYTES, size, stack))
    out.put(b"eu")
    out.close()
    return entries


def _segment(out: Writer, address: int, size: int, stack: int) -> bytes:
    held = -(-size // 512) * 512
    live = out.record(
        address=whole(address), size=whole(held), requested_size=whole(size), state=out.text("active_allocated"),
        frames=out.stack(stack),
    )  # fmt: skip
    rest = out.record(
        address=whole(address + held), size=whole(SLOT_BYTES - held), requested_size=whole(0),
        state=out.text("inactive"), frames=listed([]),
    )  # fmt: skip
    return out.record(
        device=whole(0), address=whole(address), total_size=whole(SLOT_BYTES), stream=whole(0),
        segment_type=out.text("large"), is_expandable=b"\x89", frames=listed([]), blocks=listed([live, rest]),
    )  # fmt: skip


def main() -> None:
    """Print what one run costs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=100, help="size of the snapshot; 1200 is what browsers cannot open")
    size_mb = parser.parse_args().mb
    with tempfile.TemporaryDirectory(prefix="diagnose-bench-") as folder:
        path = Path(folder) / "snapshot.pickle"
        entries = write_snapshot(path, size_mb * 10**6)
        command = [sys.executable, "-m", "diagnose", "run", str(path), "--output", f"{folder}/out"]
        began = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        wall_s = time.perf_counter() - began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        page = next(Path(folder, "out").glob("*.html")).stat().st_size
        print(
            f"snapshot {path.stat().st_size / 1e6:,.0f} MB, {entries:,} entries: exit {done.returncode}, "
            f"{wall_s:.0f} s wall, {used.ru_utime + used.ru_stime:.0f} s CPU, "
            f"largest process {used.ru_maxrss / 1e6:.1f} GB, report {page / 1e6:.1f} MB"
        )


if __name__ == "__main__":
    main()
