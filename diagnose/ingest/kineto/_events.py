"""Reading the list of events of one trace, block by block."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnose.ingest.kineto._cut import OPEN, Cut, Cutter, Indices
from diagnose.ingest.kineto._faults import Faults
from diagnose.ingest.kineto._parse import SHAPES, Parser, Slices
from diagnose.ingest.kineto._record import Record
from diagnose.ingest.kineto._scan import Scanner, State
from diagnose.ingest.kineto._sort import Sorted, Sorter
from diagnose.ingest.kineto._stream import PAD, Ahead, Window
from diagnose.ingest.kineto._survey import Survey
from diagnose.ingest.kineto._values import Mask, has_non_finite, valid


class Block(NamedTuple):
    """A window, cut and sorted: all that can be said of it before its events are parsed."""

    cut: Cut
    slices: Slices
    kinds: Sorted


class Part(NamedTuple):
    """The slices of one shape in a block."""

    shape: str
    rows: Indices
    found: pa.StructArray


class Events:
    """Reads the event array of one document.

    While a block is parsed the next one is read, cut and sorted, and the one before it is recorded.
    """

    def __init__(self, window: Window, parser: Parser, cutter: Cutter, record: Record, faults: Faults) -> None:
        """`window` begins behind the `[`; `parser` and `cutter` serve all documents of the stream."""
        self._window, self._parser, self._cutter = window, parser, cutter
        self._sorter = Sorter(self._parser)
        self._record, self._faults = record, faults
        self._survey = Survey(faults)
        self._suspicious = False  # something was met that the survey must count, here and from here on
        self._in_doubt = False  # a slice did not parse: from here on cuts are weighed by depth
        self._unrecorded: Callable[[], None] | None = None

    def read(self) -> bool:
        """Consume the array; True where it ended in order, False where the file did."""
        window, block = self._window, self._cut(self._window)
        while True:
            pending = self._look_ahead(block)
            state, at = self._read(block)
            ahead = pending.result() if pending else None
            if not ahead or state is not State.STARVED or at != block.cut.rest:
                ahead = None  # what follows is not known to begin where it was cut
                self._record_last()
            if state is State.DOUBTFUL:
                block = self._cut(window)
                continue
            whole = window.reads_ahead or window.ended
            window.consume(at)
            if state is State.ENDED:
                return True
            if state is State.CUT:
                self._faults.add(
                    "truncated", at=window.offset + window.size, detail="the file ends inside the list of events"
                )
                window.consume(window.size)
                return False
            if not whole:
                window.fill()
            block = ahead or self._cut(window)

    def _look_ahead(self, block: Block) -> Future[Block] | None:
        """Begin with the block that follows if nothing is wrong with this one, where one can follow."""
        window = self._window
        if window.reads_ahead or not len(block.slices) or self._is_last(block.cut):
            return None
        return self._parser.begin(lambda: self._cut(window.look_ahead(block.cut.rest)))

    def _cut(self, source: Window | Ahead) -> Block:
        padded = source.padded
        cut = self._cutter.cut(padded[: source.size], source.ended, self._in_doubt)
        slices = Slices(padded, cut.starts, cut.ends)
        return Block(cut, slices, self._sorter.sort(slices, cut.flat))

    def _is_last(self, cut: Cut) -> bool:
        """Whether no event begins at the end of this block that a longer window would hold whole."""
        window = self._window
        return window.ended or cut.rest == window.size or bool(window.view[cut.rest] != OPEN)

    def _read(self, block: Block) -> tuple[State, int]:
        """Read what the cut offers: why it stopped, and how much of the window is done."""
        window, (cut, slices, kinds) = self._window, block
        parsed, good = self._parse(slices, kinds)
        if not self._in_doubt and not good.all():
            self._in_doubt = True
            return State.DOUBTFUL, 0
        mended: list[tuple[int, bytes]] = []
        state, at = State.STARVED, cut.rest
        is_last = self._is_last(cut)
        if is_last or not good.all():
            state, at = self._mend(slices, cut, good, mended, is_last)
        starts = np.sort(np.append(cut.starts[good], [place for place, _ in mended])).astype(np.int64)
        self._suspicious |= any(part.shape == "device" and has_non_finite(part.found) for part in parsed)
        self._survey.look(window, starts, at, self._suspicious)
        offset = window.offset

        def record() -> None:
            self._keep(slices, parsed, kinds, good, offset + slices.starts)
            self._add_mended(mended, offset)

        self._unrecorded = record
        return state, at

    def _record_last(self) -> None:
        """Record the block before, whose bytes stay where they are until this one was consumed."""
        if self._unrecorded:
            record, self._unrecorded = self._unrecorded, None
            record()

    def _parse(self, slices: Slices, kinds: Sorted) -> tuple[list[Part], Mask]:
        """The slices of each shape with their columns, and which slices are valid."""
        good = kinds.codes >= 0
        shapes = np.array([s.shape for s in kinds.sorts] or [""])[kinds.codes]
        lots = [(shape, np.flatnonzero((shapes == shape) & good)) for shape in SHAPES]
        lots = [(shape, rows) for shape, rows in lots if len(rows)]
        chosen = [(slices.take(rows), SHAPES[shape]) for shape, rows in lots]
        is_old = self._survey.is_old
        if is_old:
            self._survey.modernise(slices)
        pending = [self._parser.begin(self._parser.parse, *lot) for lot in chosen]
        self._record_last()
        found = [each.result() for each in pending]
        if not is_old and self._survey.meets_old_spelling(zip((lot for lot, _ in chosen), found, strict=True)):
            self._survey.modernise(slices)
            pending = [self._parser.begin(self._parser.parse, *lot) for lot in chosen]
            found = [each.result() for each in pending]
        parsed = []
        for (shape, rows), columns in zip(lots, found, strict=True):
            good[rows] = valid(columns)
            parsed.append(Part(shape, rows, columns))
        return parsed, good

    def _mend(
        self, slices: Slices, cut: Cut, good: Mask, mended: list[tuple[int, bytes]], is_last: bool
    ) -> tuple[State, int]:
        """Read the places where slices failed; clears `good` for what was read again."""
        window = self._window
        text = window.text().decode("latin-1")
        known = np.append(cut.starts, cut.rest) if cut.rest < window.size else cut.starts
        scanner = Scanner(text, known, window.offset, window.ended, self._faults)

        def is_good(at: int) -> bool:
            row = int(np.searchsorted(cut.starts, at))
            if row == len(cut.starts):
                return at == cut.rest and not is_last
            return bool(cut.starts[row] == at and good[row])

        at = 0
        while True:
            bad = np.flatnonzero(~good & (cut.starts >= at))
            if len(bad):
                begin = int(cut.starts[bad[0]])
            elif is_last:
                begin = cut.rest if len(cut.starts) else 0
            else:
                return State.STARVED, max(cut.rest, at)
            scan = scanner.scan(begin, is_good)
            mended += scan.events
            done = scan.state is not State.SYNCED
            good[(cut.starts >= begin) & ((cut.starts < scan.at) | done)] = False
            self._suspicious |= scanner.left_to_survey
            if done:
                return scan.state, scan.at
            at = scan.at

    def _keep(self, slices: Slices, parsed: list[Part], found: Sorted, good: Mask, places: Indices) -> None:
        """Hand the good slices, which stand at `places` of the file, to the record."""
        sorts, codes = found
        kinds = np.array([s.kind for s in sorts] or [0], np.int32)
        counts = np.bincount(codes[good], minlength=len(sorts))
        for sort, count in zip(sorts, counts, strict=True):
            self._survey.count(sort, int(count))
        for part in parsed:
            kept = good[part.rows]
            rows = part.rows[kept]
            columns = part.found if kept.all() else part.found.filter(pa.array(kept))
            if len(rows):
                self._record.add(part.shape, columns, slices.take(rows), kinds[codes[rows]], places[rows])

    def _add_mended(self, mended: list[tuple[int, bytes]], offset: int) -> None:
        """Read repaired texts as if they had stood in the file."""
        if not mended:
            return
        lengths = np.array([len(text) for _, text in mended])
        ends = np.cumsum(lengths)
        padded = np.frombuffer(bytearray(b"".join(text for _, text in mended) + bytes(PAD)), np.uint8)
        slices = Slices(padded, ends - lengths, ends)
        kinds = self._sorter.sort(slices, np.zeros(len(mended), np.bool_))
        parsed, good = self._parse(slices, kinds)
        for row in np.flatnonzero(~good):
            place, text = mended[row]
            detail = text[:120].decode(errors="replace")
            self._faults.add("damaged_event", at=offset + place, detail=detail)
        self._keep(slices, parsed, kinds, good, offset + np.array([place for place, _ in mended]))
