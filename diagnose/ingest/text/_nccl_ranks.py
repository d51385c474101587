"""Which global rank a process of an NCCL log is: its rank in the largest communicator it belongs to.

Rank 0 of a communicator of two is nobody's global rank. Where two devices claim the same rank of communicators of the
largest size, that size is not the world's and no rank is told; the same device may claim it twice (a restart).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any


class Ranks:
    """Global ranks of (process, device) pairs, from rows of `communicators`."""

    def __init__(self, comms: list[dict[str, Any]]) -> None:
        largest: dict[tuple[str, int | None], dict[str, Any]] = {}
        for row in comms:
            key = row["process_name"], row["device"]
            if key not in largest or row["size"] > largest[key]["size"]:
                largest[key] = row
        self.world = max((row["size"] for row in largest.values()), default=None)
        claims: dict[int, set[tuple[str, int | None]]] = defaultdict(set)
        top = {key: row["comm_rank"] for key, row in largest.items() if row["size"] == self.world}
        for (process, device), rank in top.items():
            claims[rank].add((process.rpartition(":")[0], device))
        if any(len(places) > 1 for places in claims.values()):
            top = {}
        self._of = top
        self._only: dict[str, int | None] = {}
        for (process, _), rank in top.items():
            self._only[process] = rank if self._only.get(process, rank) == rank else None

    def of(self, process: str | None, device: int | None) -> int | None:
        """Global rank; a thread without a device of its own counts for the process's only rank."""
        if process is None:
            return None
        only = self._only.get(process)
        return only if only is not None else self._of.get((process, device))

    def all(self) -> set[int]:
        """Every rank that is known."""
        return set(self._of.values())
