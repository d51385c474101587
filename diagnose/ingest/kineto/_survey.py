"""What the parser takes in silence and the user should still know: counted on the bytes of each block.

Looking for three-letter words costs as much as a quarter of the parsing. Writers that print such values do so all
over a file, so the start of a file is always searched, and all of it once something was found or a typed column
holds such a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest.kineto._cut import CLOSE, COMMA, SPACE, Indices
from diagnose.ingest.kineto._faults import Faults
from diagnose.ingest.kineto._parse import Slices
from diagnose.ingest.kineto._sort import Sort
from diagnose.ingest.kineto._stream import Window
from diagnose.ingest.kineto._values import valid

_BARE = re.compile(rb"(?<=[:\[,\s])[+-]?(?:inf(?:inity)?|nan)(?=\s*[,}\]])", re.IGNORECASE)
_WORDS = (b"inf", b"nan", b"Infinity", b"NaN")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_OLD_KEYS = {  # until 2022; what must not stand before them comes last, since a search is fast by its first letters
    "External id": re.compile(rb'"external id"(?<!\\"external id")(?=\s*:)'),
    "Input Dims": re.compile(rb'"Input dims"(?<!\\"Input dims")(?=\s*:)'),
}
_SAMPLE_BYTES = 1 << 20
_SAMPLE_ROWS = 16


class Survey:
    """Counts one document's silent faults."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._blocks = 0
        self._unknown: set[str] = set()
        self.is_old = False  # the writer spells keys as it did until 2022

    def look(self, window: Window, starts: Indices, stop: int, suspicious: bool) -> None:
        """Search a block, or its start; `suspicious`: a column of it holds a number that is not finite."""
        self._blocks += 1
        sample = min(stop, _SAMPLE_BYTES)
        whole = suspicious or "non_finite_number" in self._faults or (self._blocks == 1 and window.ended)
        if whole or self._blocks == 1:
            found = self._bare_numbers(window, starts, 0, stop if whole else sample)
            if found and not whole:
                self._bare_numbers(window, starts, sample, stop)
        whole |= "trailing_comma" in self._faults
        if whole or self._blocks == 1:
            self._trailing_commas(window, starts, stop if whole else sample)

    def meets_old_spelling(self, lots: Iterable[tuple[Slices, pa.StructArray]]) -> bool:
        """Whether events that seem to lack an argument hold it in its old spelling; `is_old` is kept from then on."""
        for slices, found in lots:
            arguments = found.type.field("args").type if found.type.get_field_index("args") >= 0 else None
            for key, old in _OLD_KEYS.items():
                if arguments is None or arguments.get_field_index(key) < 0:
                    continue
                lacking = np.flatnonzero(~valid(pc.struct_field(found, ["args", key])))
                sample = slices.take(lacking[:: max(1, len(lacking) // _SAMPLE_ROWS)])
                self.is_old |= any(old.search(text) for text in sample.texts(len(sample)))
        return self.is_old

    @staticmethod
    def modernise(slices: Slices) -> None:
        """Write old spellings of keys as the new ones, as long, in the whole block that these slices are of.

        Nothing may parse this block meanwhile. A letter changes its case, so copying it elsewhere at the same time does
        no harm.
        """
        text = slices.padded.tobytes()
        for key, old in _OLD_KEYS.items():
            new = np.frombuffer(b'"' + key.encode() + b'"', np.uint8)
            for match in old.finditer(text):
                slices.padded[match.start() : match.end()] = new

    def count(self, sort: Sort, count: int) -> None:
        """Note what the sorting of events means for the reader of the result."""
        if not count:
            return
        if sort.shape == "lost":
            self._faults.add("damaged_event", count, detail="an object without a phase")
        elif sort.shape == "alien":
            self._add_unknown(count, "events of a phase that is not read")
        elif sort.unknown_category:
            self._add_unknown(count, "categories that are not the profiler's")

    def _add_unknown(self, count: int, said: str) -> None:
        self._unknown.add(said)
        self._faults.add("unknown_category", count)
        self._faults.describe("unknown_category", "; ".join(sorted(self._unknown)))

    def _bare_numbers(self, window: Window, starts: Indices, begin: int, stop: int) -> bool:
        text = window.text(0, stop)
        if all(text.find(word, begin) < 0 for word in _WORDS):
            return False
        hits = [match.start() for match in _BARE.finditer(text, begin)]
        return self._report("non_finite_number", window, text, starts, hits, "became unknown")

    def _trailing_commas(self, window: Window, starts: Indices, stop: int) -> None:
        view = window.view[:stop]
        close = np.flatnonzero(view == CLOSE)
        at = np.maximum(close - 1, 0)
        for _ in range(8):
            at = np.maximum(at - SPACE[view[at]], 0)
        hits = at[view[at] == COMMA].tolist()
        if hits:
            self._report("trailing_comma", window, window.text(0, stop), starts, hits, "before }")

    def _report(self, problem: str, window: Window, text: bytes, starts: Indices, hits: list[int], detail: str) -> bool:
        """Count the hits that stand inside an event and outside its strings."""
        rows = np.searchsorted(starts, hits, side="right") - 1
        bare = [at for at, row in zip(hits, rows, strict=True) if row >= 0 and not _in_string(text, starts[row], at)]
        if bare:
            self._faults.add(problem, len(bare), window.offset + bare[0], detail)
        return bool(bare)


def _in_string(text: bytes, start: np.int64, at: int) -> bool:
    """Whether `at` is inside a string of the event that starts at `start`."""
    return any(match.end() > at for match in _STRING.finditer(text, int(start), at + 1))
