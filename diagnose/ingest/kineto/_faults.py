"""What was wrong with one file: per kind of problem how often, where first, and one line of detail."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from diagnose.schema import INGESTED, PROBLEMS

PARTIAL = frozenset({"truncated", "damaged_event"})
REPAIRED = frozenset({"repaired_event", "invalid_escape", "trailing_comma", "invalid_utf8", "non_finite_number"})


class Fault(NamedTuple):
    """One row of `quality` in the making."""

    times: int
    byte_offset: int | None
    detail: str


_NOTHING = (
    "found no timed event; expected those of some training steps; "
    "check that the profiler was in its active part and that the file was written whole"
)


class Faults:
    """Problems of one document, in the order in which they were met."""

    def __init__(self) -> None:
        self._found: dict[str, Fault] = {}
        self.stream_is_cut = False  # told by whoever decompressed the file, who also writes the row

    def add(self, problem: str, count: int = 1, at: int | None = None, detail: str = "") -> None:
        """Count a problem; the first place and the first detail are kept."""
        assert problem in PROBLEMS, problem
        if not count:
            return
        old = self._found.get(problem)
        if old is None:
            self._found[problem] = Fault(count, at, detail)
        else:
            place = at if old.byte_offset is None else min(old.byte_offset, old.byte_offset if at is None else at)
            self._found[problem] = Fault(old.times + count, place, old.detail or detail)

    def describe(self, problem: str, detail: str) -> None:
        """Replace the detail of a problem, if it was met."""
        if problem in self._found:
            self._found[problem] = self._found[problem]._replace(detail=detail)

    def __contains__(self, problem: str) -> bool:
        return problem in self._found

    def count(self, problem: str) -> int:
        """How often a problem was met."""
        return self._found[problem].times if problem in self._found else 0

    def status(self, events_count: int) -> tuple[str, str]:
        """`files.status` and `files.detail`."""
        if self.stream_is_cut and events_count and not PARTIAL & self._found.keys():
            return "partial", PROBLEMS["damaged_compression"]
        for status, problems in (("partial", PARTIAL), ("repaired", REPAIRED)):
            met = [p for p in self._found if p in problems]
            if met and events_count:
                return status, "; ".join(f"{self._found[p].times} x {PROBLEMS[p]}" for p in met)
        return ("ok", "") if events_count else ("unusable", _NOTHING)

    def table(self, path: str, rank: int | None) -> pa.Table:
        """The `quality` rows."""
        found = list(self._found.items())
        return INGESTED["quality"].build(
            {
                "problem": pa.array([p for p, _ in found], pa.string()),
                "path": pa.array([path] * len(found), pa.string()),
                "rank": pa.array([rank] * len(found), pa.int32()),
                "count": pa.array([f.times for _, f in found], pa.int64()),
                "byte_offset": pa.array([f.byte_offset for _, f in found], pa.int64()),
                "detail": pa.array([f.detail for _, f in found], pa.string()),
            }
        )
