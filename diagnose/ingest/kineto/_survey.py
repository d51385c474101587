"""What the parser takes in silence and the user should still know: counted on the bytes of each block.

Looking for three-letter words costs as much as a quarter of the parsing. Writers that print such values do it
all over a file, so the first block is always searched, and later ones once something was found.
"""

from __future__ import annotations

import re

import numpy as np

from diagnose.ingest.kineto._cut import CLOSE, COMMA, SPACE, Indices
from diagnose.ingest.kineto._faults import Faults
from diagnose.ingest.kineto._parse import Slices
from diagnose.ingest.kineto._sort import Sort
from diagnose.ingest.kineto._stream import Window

_BARE = re.compile(rb"(?<=[:\[,\s])[+-]?(?:inf(?:inity)?|nan)(?=\s*[,}\]])", re.IGNORECASE)
_WORDS = (b"inf", b"nan", b"Infinity", b"NaN")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_OLD_KEYS = {b'"external id"': b'"External id"', b'"Input dims"': b'"Input Dims"'}  # until 2022


class Survey:
    """Counts one document's silent faults."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._blocks = 0
        self._unknown: dict[str, int] = {}

    def look(self, window: Window, slices: Slices, rest: int) -> None:
        """Search a block; writes old spellings of keys as the new ones."""
        for old, new in _OLD_KEYS.items():
            at = window.find(old)
            while at >= 0:
                window.view[at : at + len(new)] = np.frombuffer(new, np.uint8)
                at = window.find(old, at + len(new))
        self._blocks += 1
        if self._blocks == 1 or window.ended or "non_finite_number" in self._faults:
            self._bare_numbers(window, np.append(slices.starts, rest), window.size if window.ended else rest)
        if len(slices) and (self._blocks == 1 or "trailing_comma" in self._faults):
            self._trailing_commas(window, slices)

    def count(self, sort: Sort, count: int) -> None:
        """Note what the sorting of events means for the reader of the result."""
        if not count:
            return
        if sort.shape == "lost":
            self._faults.add("damaged_event", count, detail="an object without a phase")
        elif sort.shape == "alien":
            self._faults.add("unknown_category", count, detail="events of a phase that is not read")
        elif sort.unknown_category:
            self._faults.add("unknown_category", count, detail="categories that are not the profiler's")

    def _bare_numbers(self, window: Window, starts: Indices, stop: int) -> None:
        if all(window.find(word) < 0 for word in _WORDS):
            return
        text = window.text(0, stop)
        hits = [m.start() for m in _BARE.finditer(text)]
        rows = np.maximum(np.searchsorted(starts, hits, side="right") - 1, 0)
        bare = [at for at, row in zip(hits, rows, strict=True) if not _in_string(text, int(starts[row]), at)]
        if bare:
            self._faults.add("non_finite_number", len(bare), window.offset + bare[0], "became unknown")

    def _trailing_commas(self, window: Window, slices: Slices) -> None:
        view = window.view[: slices.ends[-1]]
        close = np.flatnonzero(view == CLOSE)
        at = close - 1
        for _ in range(8):
            at -= SPACE[view[at]]
        hits = at[(view[at] == COMMA) & (close > slices.starts[0])]
        if len(hits):
            self._faults.add("trailing_comma", len(hits), window.offset + int(hits[0]), "before }")


def _in_string(text: bytes, start: int, at: int) -> bool:
    """Whether `at` is inside a string of the event that starts at `start`."""
    return any(match.end() > at for match in _STRING.finditer(text, start, at + 1))
