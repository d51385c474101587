"""The exact reading of the places where cutting by braces went wrong: slow, one event at a time.

It is started at a slice that did not parse (or at the end of the array) and goes on until it meets a slice
that did: nested lists, braces and separators inside names, damaged events, the `]` of the array, missing or
doubled commas, and the end of the file all end up here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import numpy as np

from diagnose.ingest.kineto._cut import Indices
from diagnose.ingest.kineto._faults import Faults
from diagnose.ingest.kineto._repair import rebuild, repair, tidy

_DECODER = json.JSONDecoder(strict=False, parse_float=str, parse_int=str, parse_constant=str)
_BETWEEN = re.compile(r"[\s,]*")
_ANOTHER_EVENT = re.compile(r'[^\s:\[{(]\s*(\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args)"\s*:)')
_AFTER_ARRAY = re.compile(r'\s*(?:,\s*"[^"]+"\s*:|,?\s*\}|,?\s*\Z|[\[{\0])')
_LOOK_AHEAD = 4096
_WORDS = ("null", "true", "false", "NaN", "Infinity", "-Infinity")
LONGEST_TOKEN = 10  # bytes, of a word and of an escaped character
_FIRST_PIECE = 1 << 14  # characters; what a failed decoding costs grows with the text it is given
_END_OF_ARRAY = re.compile(r'\}\s*,?\s*\](?=\s*(?:,\s*"[^"]+"\s*:|\}\s*(?:[\[{]|\Z)|\Z))')


class State(Enum):
    """Why a scan stopped."""

    SYNCED = "at a slice known to be good"
    ENDED = "behind the end of the array"
    STARVED = "needs more of the file"
    DOUBTFUL = "cut it again with more care"
    CUT = "the file ends inside the array"


class Scan(NamedTuple):
    """Events found between the start of a scan and `at`."""

    events: list[tuple[int, bytes]]
    at: int
    state: State


class Scanner:
    """Reads one window; `offset` is its place in the file."""

    def __init__(self, text: str, starts: Indices, offset: int, last: bool, faults: Faults) -> None:
        self.left_to_survey = False  # something was repaired that only the survey counts
        self._text, self._starts, self._offset, self._last, self._faults = text, starts, offset, last, faults
        self._end = len(text.rstrip())

    def scan(self, at: int, is_good: Callable[[int], bool]) -> Scan:
        """Read from `at` to the next good slice, the end of the array or the end of the window."""
        text, begin = self._text, at
        events: list[tuple[int, bytes]] = []
        while True:
            before, at = at, _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
            comma = text.rfind(",", before, at)
            resume = comma if comma >= 0 else at  # what follows a comma tells whether it is one too many
            if at >= len(text):
                return Scan(events, resume, State.CUT if self._last else State.STARVED)
            if at != begin and is_good(at):
                return Scan(events, at, State.SYNCED)
            if text[at] == "]" and (end := self._is_end(at)):
                if end is State.STARVED:
                    return Scan(events, resume, end)
                if text[:at].rstrip()[-1:] == ",":
                    self._faults.add("trailing_comma", at=self._offset + at, detail="before ]")
                return Scan(events, at + 1, end)
            step = self._event(at) if text[at] == "{" else self._other(at)
            if isinstance(step, State):
                return Scan(events, at, step)
            if step[1] is not None:
                events.append((at, step[1]))
            at = step[0]

    def _is_end(self, at: int) -> State | None:
        """Whether what follows a `]` can follow the array; None where it is only a damaged byte."""
        after = _AFTER_ARRAY.match(self._text, at + 1)
        if not self._last and len(self._text) - at < _LOOK_AHEAD and (not after or after.end() == len(self._text)):
            return State.STARVED
        return State.ENDED if after else None

    def _event(self, at: int) -> tuple[int, bytes | None] | State:
        """End and text of the event at `at`; text is None where it is lost."""
        try:
            end = self._end_of_value(at)
        except json.JSONDecodeError as error:
            if not self._last and _unfinished(error, len(self._text) - at):
                return State.STARVED
            if self._is_cut(error, at + error.pos):
                return State.CUT
            return self._mend(at)
        except RecursionError:
            return self._mend(at)
        return end, self._tidied(at, self._text[at:end])

    def _end_of_value(self, at: int) -> int:
        """Where the JSON value at `at` ends; JSONDecodeError (its `pos` counts from `at`) where there is none.

        Decoded in growing pieces: an error counts the lines of all the text before it, and damage brings thousands.
        """
        size = _FIRST_PIECE
        while True:
            piece = self._text[at : at + size]
            whole = at + size >= len(self._text)
            try:
                end = _DECODER.raw_decode(piece)[1]
            except json.JSONDecodeError as error:
                if whole or not _unfinished(error, len(piece)):
                    raise
            else:
                if whole or end < len(piece):
                    return at + int(end)
            size *= 16

    def _is_cut(self, error: json.JSONDecodeError, pos: int) -> bool:
        """Whether all is valid to the last byte of the file, so what looks like events in it stands in a text."""
        left = self._text[pos : min(self._end, pos + LONGEST_TOKEN)]
        return (
            error.msg.startswith("Unterminated")
            or (error.msg.startswith("Invalid \\u") and pos + LONGEST_TOKEN > self._end)
            or any(word.startswith(left) for word in _WORDS)
        )

    def _tidied(self, at: int, text: str) -> bytes:
        raw, problem = tidy(text.encode("latin-1"))
        if problem:
            detail = "bytes that are not UTF-8" if problem == "invalid_utf8" else "characters that must be escaped"
            self._faults.add(problem, at=self._offset + at, detail=detail)
        return raw

    def _mend(self, at: int) -> tuple[int, bytes | None] | State:
        stop, known = self._boundary(at)
        if not known and not self._last:
            return State.STARVED
        piece = self._text[at:stop]
        ends = [m.start() + 1 for m in _END_OF_ARRAY.finditer(piece)]
        for end in [*ends, len(piece)]:
            fixed = repair(piece[:end].rstrip().rstrip(","))
            if fixed:
                self.left_to_survey |= fixed[1] in ("non_finite_number", "trailing_comma")
                if fixed[1] not in ("non_finite_number", "trailing_comma"):
                    self._faults.add(fixed[1], at=self._offset + at, detail=_shorten(piece[:end]))
                return at + end, self._tidied(at, fixed[0])
        if not known and not ends:
            return State.CUT if self._last else State.STARVED
        end = ends[0] if ends else len(piece)
        rebuilt = rebuild(piece[:end].rstrip().rstrip(","))
        problem = "repaired_event" if rebuilt else "damaged_event"
        self._faults.add(problem, at=self._offset + at, detail=_shorten(piece[:end]))
        return at + end, rebuilt.encode() if rebuilt else None

    def _boundary(self, at: int) -> tuple[int, bool]:
        """Where the next event seems to start, and whether one does before the window ends."""
        index = int(np.searchsorted(self._starts, at, side="right"))
        known = index < len(self._starts)
        stop = int(self._starts[index]) if known else len(self._text)
        inner = _ANOTHER_EVENT.search(self._text, at + 1, stop)
        return (inner.start(1), True) if inner else (stop, known)

    def _other(self, at: int) -> tuple[int, bytes | None] | State:
        """Something in the array that is no object: step over it."""
        stop, known = self._boundary(at)
        close = self._text.find("]", at + 1, stop)
        try:
            end = self._end_of_value(at)
        except (json.JSONDecodeError, RecursionError):
            if not known and close < 0 and not self._last:
                return State.STARVED
            end = close if close >= 0 else stop
        self._faults.add("damaged_event", at=self._offset + at, detail=_shorten(self._text[at:end]))
        return end, None


def _unfinished(error: json.JSONDecodeError, length: int) -> bool:
    """Whether more text could make the value valid."""
    return error.msg.startswith("Unterminated") or error.pos >= length - 8


def _shorten(text: str) -> str:
    return " ".join(text[:120].encode("latin-1").decode(errors="replace").split())
