"""Loads of routers: what a script registers with `observe`, or the counters that models keep themselves.

Counts on a device are copied to pinned memory without waiting and read at a later step, when the copy's event has
happened.
Rows go to `STEM.router.jsonl`, one object a line and layer: rank, step, layer, `routed_per_expert` (before any drop,
as `observe` promises) or `tokens_per_expert` (a model's own counters, which do not say), dropped (null: nobody says).
The file is bounded: at its size it becomes the older half, and the half before that is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from diagnose.live._writer import number

FILE_BYTES = 32 << 20
MOST_EXPERTS = 4096
MOST_WAITING = 2048
"""Copies in flight; more are dropped, and counted."""
ROUTED, TOKENS = "routed_per_expert", "tokens_per_expert"

_What = tuple[int, int, str, int | None]
"""Step, layer, meaning of the counts, dropped tokens."""


class Routers:
    """Observations of one rank, gathered on the training thread and written by the history's thread."""

    def __init__(self) -> None:
        self.rank = number("RANK", 0)
        self._layers: dict[str, int] = {}
        self._copies: list[tuple[_What, Any, Any]] = []
        self._rows: list[bytes] = []
        self.routed, self.dropped, self.lost_count = 0, 0, 0
        self.seen, self.dropped_known = False, False

    def observe(self, step: int, layer: object, counts: Any, dropped: Any = None, key: str = ROUTED) -> None:
        """Take the counts of one layer: a tensor, or a sequence of whole numbers."""
        lost = None if dropped is None else int(dropped) if not hasattr(dropped, "is_cuda") else _plain(dropped)
        if getattr(counts, "is_cuda", False):
            self._copy((step, self._number(layer), key, lost), counts)
        else:
            values = counts.tolist() if hasattr(counts, "tolist") else list(counts)
            self._add((step, self._number(layer), key, lost), values)

    def _number(self, layer: object) -> int:
        """A layer's number: its own, else in the order in which names were met."""
        if isinstance(layer, int):
            return layer
        return self._layers.setdefault(str(layer), len(self._layers))

    def _copy(self, what: _What, counts: Any) -> None:
        import torch

        if len(self._copies) >= MOST_WAITING:
            self.lost_count += 1
            return
        host = torch.empty(counts.shape, dtype=counts.dtype, pin_memory=True)
        host.copy_(counts.detach(), non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._copies.append((what, host, event))

    def ready(self) -> None:
        """Read the copies that have arrived."""
        waiting = []
        for what, host, event in self._copies:
            if event.query():
                self._add(what, host.tolist())
            else:
                waiting.append((what, host, event))
        self._copies = waiting

    def _add(self, what: _What, values: Iterable[Any]) -> None:
        step, layer, key, lost = what
        counts = [int(v) for v in values]
        if not 0 < len(counts) <= MOST_EXPERTS:
            return
        self.routed += sum(counts)
        self.seen = True
        if lost is not None:
            self.dropped += lost
            self.dropped_known = True
        if len(self._rows) < MOST_WAITING:
            row = {"rank": self.rank, "step": step, "layer": layer, key: counts, "dropped": lost}
            self._rows.append(json.dumps(row, separators=(",", ":")).encode() + b"\n")
        else:
            self.lost_count += 1

    def take(self) -> tuple[int, int, bool, bool]:
        """Routed and dropped tokens since the last call, and whether each is known."""
        found = self.routed, self.dropped, self.seen, self.dropped_known
        self.routed = self.dropped = 0
        self.seen = self.dropped_known = False
        return found

    def write(self, path: Path) -> None:
        """Append what was gathered. OSError where that fails; the rows are then lost, and counted."""
        rows, self._rows = self._rows, []
        if not rows:
            return
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(handle).st_size > FILE_BYTES:
                path.replace(path.with_name(path.name.replace(".router.", ".router-old.")))
            else:
                os.write(handle, b"".join(rows))
        except OSError:
            self.lost_count += len(rows)
            raise
        finally:
            os.close(handle)


def _plain(value: Any) -> int | None:
    """A dropped count that lies in host memory; one on the device is not waited for."""
    return None if value.is_cuda else int(value)
