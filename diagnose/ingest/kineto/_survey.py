"""What the parser takes in silence and the user should still know: counted on the bytes of each block.

Looking for three-letter words costs as much as a quarter of the parsing. Writers that print such values do so all
over a file, so the start of a file is always searched, and all of it once something was found or a typed column
holds such a value.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest.kineto._cut import CLOSE, COMMA, SPACE, Indices
from diagnose.ingest.kineto._faults import Faults
from diagnose.ingest.kineto._parse import Slices
from diagnose.ingest.kineto._sort import Sort
from diagnose.ingest.kineto._stream import Window

_BARE = re.compile(rb"(?<=[:\[,\s])[+-]?(?:inf(?:inity)?|nan)(?=\s*[,}\]])", re.IGNORECASE)
_WORDS = (b"inf", b"nan", b"Infinity", b"NaN")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_OLD_KEYS = {"External id": b'"external id"', "Input Dims": b'"Input dims"'}  # until 2022
_SAMPLE_BYTES = 1 << 20
_SAMPLE_ROWS = 16


class Survey:
    """Counts one document's silent faults."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._blocks = 0
        self._unknown: dict[str, int] = {}

    def look(self, window: Window, slices: Slices, rest: int) -> None:
        """Search a block, or its start."""
        self._blocks += 1
        stop = window.size if window.ended else rest
        starts = np.append(slices.starts, rest)
        if "non_finite_number" in self._faults or (self._blocks == 1 and window.ended):
            self._bare_numbers(window, starts, stop)
        elif self._blocks == 1 and self._bare_numbers(window, starts, min(stop, _SAMPLE_BYTES)):
            self._bare_numbers(window, starts, stop, min(stop, _SAMPLE_BYTES))
        if len(slices) and (self._blocks == 1 or "trailing_comma" in self._faults):
            self._trailing_commas(window, slices)

    def look_again(self, window: Window, slices: Slices, rest: int) -> None:
        """Search a whole block since a column of it holds a number that is not finite."""
        if "non_finite_number" not in self._faults:
            self._bare_numbers(window, np.append(slices.starts, rest), window.size if window.ended else rest)

    @staticmethod
    def modernise(slices: Slices, found: pa.StructArray) -> bool:
        """Write old spellings of keys as the new ones, where these rows use them; whether anything changed."""
        changed = False
        for key, old in _OLD_KEYS.items():
            arguments = found.type.field("args").type if found.type.get_field_index("args") >= 0 else None
            if arguments is None or arguments.get_field_index(key) < 0 or not len(slices):
                continue
            values = pc.struct_field(found, ["args", key])
            if values.null_count < len(values) or not any(old in text for text in slices.texts(_SAMPLE_ROWS)):
                continue
            new = np.frombuffer(b'"' + key.encode() + b'"', np.uint8)
            text = slices.padded.tobytes()
            for match in re.finditer(re.escape(old), text):
                slices.padded[match.start() : match.end()] = new
            changed = True
        return changed

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

    def _bare_numbers(self, window: Window, starts: Indices, stop: int, begin: int = 0) -> bool:
        text = window.text(0, stop)
        if all(text.find(word, begin) < 0 for word in _WORDS):
            return False
        hits = [m.start() for m in _BARE.finditer(text, begin)]
        rows = np.maximum(np.searchsorted(starts, hits, side="right") - 1, 0)
        bare = [at for at, row in zip(hits, rows, strict=True) if not _in_string(text, int(starts[row]), at)]
        if bare:
            self._faults.add("non_finite_number", len(bare), window.offset + bare[0], "became unknown")
        return bool(bare)

    def _trailing_commas(self, window: Window, slices: Slices) -> None:
        stop = int(slices.ends[-1])
        if "trailing_comma" not in self._faults:
            stop = min(stop, _SAMPLE_BYTES)
        view = window.view[:stop]
        close = np.flatnonzero(view == CLOSE)
        at = close - 1
        for _ in range(8):
            at -= SPACE[view[at]]
        hits = at[(view[at] == COMMA) & (close > slices.starts[0])]
        if len(hits):
            text = window.text(0, stop)
            rows = np.searchsorted(slices.starts, hits, side="right") - 1
            bare = [not _in_string(text, int(slices.starts[r]), int(a)) for a, r in zip(hits, rows, strict=True)]
            hits = hits[np.array(bare)]
        if len(hits):
            self._faults.add("trailing_comma", len(hits), window.offset + int(hits[0]), "before }")


def _in_string(text: bytes, start: int, at: int) -> bool:
    """Whether `at` is inside a string of the event that starts at `start`."""
    return any(match.end() > at for match in _STRING.finditer(text, start, at + 1))
