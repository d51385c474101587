"""Counts per expert as training scripts print them: `step 10 layer 3 tokens_per_expert: tensor([...])`.

Lists, objects, printed tensors (also over several lines) and percentages beside a total are read; the step, layer and
other facts are the `name number` pairs of the same line, in front of the counts or behind them. A line whose counts
are no numbers (`nan` for a layer that was not used) is refused and counted.
"""

from __future__ import annotations

import json
import re
from typing import Any

from diagnose.ingest import expert_counts, quality
from diagnose.ingest.expert_counts import Rows
from diagnose.ingest.expert_counts import _names as names
from diagnose.ingest.series import STEP_NAMES
from diagnose.ingest.text._lines import Lines, rank_of
from diagnose.schema import Tables

_NAME = (
    r"(?:(?:global_|local_|num_)?tokens_per_(?:local_)?expert|(?:routed|kept|assigned|processed)_per_expert"
    r"|exp(?:ert)?s?[_ ]counts?|expert[_ ]load(?:s|_pct)?|expert_pct|load_pct|expert_tokens)"
)
MARK = rf"\b{_NAME}\b['\"]?\s*[:=]|^ {{8,}}\d[\d\s,]*(?:\]\)?.*)?$"
_STARTS = re.compile(rf"\b({_NAME})\b['\"]?\s*[:=]\s*", re.IGNORECASE)
_LIST = re.compile(r"(?:tensor|array)?\s*\(?\s*(\[[^\]]*\])(?:[^)\[\]{}]*\))?|(\{[^}]*\})")
_OPENS = re.compile(r"(?:tensor|array)?\s*\(?\s*\[[\d\s,.eE+-]*$")
_CONTINUES = re.compile(r"^[\d\s,.eE+-]*(?:\].*)?$")
_FACT = re.compile(r"([A-Za-z][A-Za-z_]*)['\"]?\s*[:=#]?\s*(-?\d+(?:\.\d+)?|None|null)\b")
_LAYER_NAME = re.compile(r"\blayers?[._](\d+)\b")
_MAX_LINES = 64


class Reader:
    """Collects printed counts of one document."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.open: tuple[int, str, int] | None = None  # line, text so far, lines taken

    def feed(self, lines: Lines) -> int:
        """Read lines with counts, and the lines that go on with a printed tensor; how many records were known."""
        known = 0
        for number, text in lines.rows():
            if self.open is not None and self.open[2] < _MAX_LINES and _CONTINUES.match(text):
                begun, before, taken = self.open
                self.open = (begun, f"{before} {text.strip()}", taken + 1)
            else:
                known += self._close()
                self.open = (number, text, 1) if _STARTS.search(text) else None
            if self.open is not None and not self._is_open(self.open[1]):
                known += self._close()
        return known

    @staticmethod
    def _is_open(text: str) -> bool:
        match = _STARTS.search(text)
        return match is not None and bool(_OPENS.match(text[match.end() :]))

    def _close(self) -> int:
        """Take what is open as a record."""
        if self.open is None:
            return 0
        line, text, _ = self.open
        self.open = None
        match = _STARTS.search(text)
        assert match is not None, "only such lines are opened"
        rest = text[match.end() :]
        found = _LIST.match(rest)
        record: dict[str, Any] = _facts(text[: match.start()] + " " + (rest[found.end() :] if found else rest))
        record.setdefault("rank", rank_of(text))
        record[match[1].lower().replace(" ", "_")] = _value(found, rest)
        self.rows.add(line, record)
        return 1

    def tables(self, path: str) -> Tables:
        """`router_calls` and `router`, and what was refused."""
        self._close()
        notes = [{**note, "path": path} for note in expert_counts.refusals(self.rows)]
        result: Tables = {"quality": quality(notes)} if notes else {}
        return result | (self.rows.tables() if self.rows.calls else {})


def _value(found: re.Match[str] | None, rest: str) -> Any:
    if found is None:
        word = rest.split(maxsplit=1)[0] if rest.split() else ""
        return float("nan") if word.lower().startswith("nan") else word or "nothing"
    if found[2]:
        try:
            return json.loads(re.sub(r"(?<=[{,])\s*(\d+)\s*:", r'"\1":', found[2].replace("'", '"')))
        except ValueError:
            return found[2]
    return found[1]


def _facts(text: str) -> dict[str, Any]:
    """`name number` pairs that mean something to router records."""
    wanted = {n for pattern in names.FACTS for n in names.known(pattern)} | set(STEP_NAMES)
    found: dict[str, Any] = {}
    for name, value in _FACT.findall(text):
        if name.lower() in wanted:
            found.setdefault(name.lower(), None if value in ("None", "null") else float(value))
    if match := _LAYER_NAME.search(text):
        found.setdefault("layer", int(match[1]))
    return found
