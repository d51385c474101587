"""Reading one trace after the other out of a stream: header, events, and what follows them."""

from __future__ import annotations

from typing import NamedTuple

from diagnose.ingest.kineto._cut import Cutter
from diagnose.ingest.kineto._events import Events
from diagnose.ingest.kineto._faults import Faults
from diagnose.ingest.kineto._header import Header, find_events, parse_head, parse_tail
from diagnose.ingest.kineto._parse import Parser
from diagnose.ingest.kineto._record import Record
from diagnose.ingest.kineto._stream import Window
from diagnose.ingest.kineto._values import Rows


class Document(NamedTuple):
    """One trace of a file."""

    header: Header
    record: Record
    faults: Faults
    has_events: bool  # an event array was there, empty or not
    offset: int


class Reader:
    """Reads the documents of one stream."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._parser = Parser()
        self._cutter = Cutter()
        self._rows = Rows(self._parser)
        self._next_event = 0

    def next(self) -> Document | None:
        """The next document, or None at the end of the file."""
        window = self._window
        self._skip_space()
        if window.ended and not window.size:
            return None
        faults, begin = Faults(), window.offset
        place = self._find_events()
        if place is None:
            text = window.text()
            window.consume(window.size)
            return Document(
                parse_head(text.rstrip().removesuffix(b"}"), begin, faults), self._record(faults), faults, False, begin
            )
        header = parse_head(window.text(0, place[0]), begin, faults)
        is_list = not window.text(0, place[0]).strip()
        window.consume(place[1])
        record = self._record(faults)
        ended = Events(self._window, self._parser, self._cutter, record, faults).read()
        self._next_event = record.count
        if ended and not is_list:
            header |= self._tail(faults)
        return Document(header, record, faults, True, begin)

    def _record(self, faults: Faults) -> Record:
        return Record(self._parser, self._rows, faults, self._next_event)

    def _skip_space(self) -> None:
        window = self._window
        while True:
            text = window.text(0, 4096)
            left = text.lstrip(b" \t\r\n\0")
            window.consume(len(text) - len(left))
            if left or (window.ended and not window.size):
                return
            window.fill()

    def _find_events(self) -> tuple[int, int] | None:
        window = self._window
        size = 1 << 16
        while True:
            final = window.ended and size >= window.size
            place = find_events(window.text(0, size), final)
            if place or final:
                return place
            if size < window.size:
                size *= 4
            else:
                window.fill()

    def _tail(self, faults: Faults) -> Header:
        window = self._window
        while True:
            found = parse_tail(window.text(), window.offset, window.ended, faults)
            if found:
                window.consume(found[1])
                return found[0]
            window.fill()
