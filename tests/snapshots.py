"""Variants of memory snapshots and out-of-memory logs that say the same in another way; the answer moves along.

A snapshot is moved in its address space, scaled, shifted in time, re-saved in another pickle protocol or as JSON, with
its keys in another order, its calls on another line. A log gets prefixes of launchers, colours, another platform.
"""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Variant:
    """How a snapshot changes, and by what its bytes are multiplied."""

    name: str
    scale: int = 1
    moved_bytes: int = 0
    later_us: int = 0
    protocol: int = 0
    """0 writes JSON."""
    shuffled: bool = False
    file_name: str = "snapshot"

    def write(self, source: Path, folder: Path) -> Path:
        """The variant of the JSON snapshot `source` in `folder`."""
        document = self.edit(json.loads(source.read_text()))
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{self.file_name}.{'pickle' if self.protocol else 'json'}"
        if self.protocol:
            target.write_bytes(pickle.dumps(document, self.protocol))
        else:
            target.write_text(json.dumps(document))
        return target

    def edit(self, value: Any) -> Any:
        """A document, or a part of it, as this variant writes it."""
        if isinstance(value, list):
            return [self.edit(v) for v in value]
        if not isinstance(value, dict):
            return value
        keys = list(value)
        if self.shuffled:
            random.Random(7).shuffle(keys)
        return {key: self._value(key, value[key]) for key in keys}

    def _value(self, key: str, value: Any) -> Any:
        if key in _SIZES and isinstance(value, int) and value > 0:
            return value * self.scale
        if key in ("address", "addr") and value:
            return _BASE + (value - _BASE) * self.scale + self.moved_bytes
        if key == "time_us" and value:
            return value + self.later_us
        return self.edit(value)


_SIZES = ("size", "total_size", "allocated_size", "active_size", "requested_size", "device_free")
_BASE = 0x7F2000000000

ORIGINAL = Variant("original")
ALL = (
    ORIGINAL,
    Variant("moved", moved_bytes=3 << 21, later_us=86_400_000_000),
    Variant("scaled", scale=3),
    Variant("old_pickle", protocol=2, shuffled=True),
    Variant("new_pickle", protocol=5, scale=2, moved_bytes=5 << 30, file_name="snapshot_rank3"),
)

Edit = Callable[[str], str]
LOGS: dict[str, Edit] = {
    "original": str,
    "launcher": lambda text: "".join(f"[default1]:{line}\n" for line in text.splitlines()),
    "coloured": lambda text: "".join(f"\x1b[31m{line}\x1b[0m\n" for line in text.splitlines()),
    "dated": lambda text: "".join(f"2031-05-06 07:08:09,010 ERROR {line}\r\n" for line in text.splitlines()),
    "among_others": lambda text: f"step 1 went well\n\n{text}\nTraceback (most recent call last):\n  File x\n",
}
"""What a launcher, a terminal and a logger make of the same message."""
