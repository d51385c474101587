"""What a section is made of: plain values, already worded, that the templates only lay out.

Nothing is computed in a template, so tests compare these values and hardly ever the HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Name:
    """A name that came from an input: shown short, all of it on request. Never trusted, always escaped."""

    kind: ClassVar[str] = "name"
    shown: str
    full: str = ""
    """The whole name where `shown` is cut, else empty."""


UNKNOWN_NAME = Name("unknown")


@dataclass(frozen=True)
class Share:
    """A share of a whole, drawn as a small bar behind its text. `ratio` in 0..1; None: unknown, no bar."""

    kind: ClassVar[str] = "share"
    text: str
    ratio: float | None
    part: str = "compute"
    """Whose colour the bar has: a key of `_parts.PARTS_SHOWN`."""


@dataclass(frozen=True)
class Swatch:
    """A part of the step, with its colour beside its name."""

    kind: ClassVar[str] = "swatch"
    text: str
    part: str


@dataclass(frozen=True)
class Tag:
    """A word with a meaning shown by colour and shape: found, clear, unknown, critical, warning, ok, ..."""

    kind: ClassVar[str] = "tag"
    text: str
    tone: str


@dataclass(frozen=True)
class Text:
    """A paragraph; `quiet` for notes on method."""

    block: ClassVar[str] = "text"
    text: str
    quiet: bool = False


@dataclass(frozen=True)
class Facts:
    """Label and value pairs."""

    block: ClassVar[str] = "facts"
    items: Sequence[tuple[str, Any]]


@dataclass(frozen=True)
class Grid:
    """A table. A column is (title, right-aligned); `more` says what was left out."""

    block: ClassVar[str] = "grid"
    title: str
    columns: Sequence[tuple[str, bool]]
    rows: Sequence[Sequence[Any]]
    more: str = ""


def columns(*titles: str) -> list[tuple[str, bool]]:
    """Columns of a Grid; a leading `>` makes one right-aligned."""
    return [(title.removeprefix(">"), title.startswith(">")) for title in titles]


def known(grid: Grid) -> Grid:
    """The same table without columns of which nothing is known; `more` says which."""
    left = [i for i in range(len(grid.columns)) if any(row[i] != UNKNOWN_NAME for row in grid.rows)]
    if len(left) == len(grid.columns) or not grid.rows:
        return grid
    gone = [title.lower() for i, (title, _) in enumerate(grid.columns) if i not in left]
    note = f"Not recorded: {', '.join(gone)}."
    rows = [[row[i] for i in left] for row in grid.rows]
    return Grid(grid.title, [grid.columns[i] for i in left], rows, f"{grid.more} {note}".strip())


@dataclass(frozen=True)
class Figure:
    """A plotly figure (`spec`: data and layout, plain values); `alt` says in words what it shows."""

    block: ClassVar[str] = "figure"
    title: str
    spec: dict[str, Any]
    height_px: int
    alt: str
    note: str = ""


@dataclass(frozen=True)
class Strip:
    """The step as one bar that needs no script: (part, label, duration text, share text, ratio)."""

    block: ClassVar[str] = "strip"
    title: str
    segments: Sequence[tuple[str, str, str, str, float]]


@dataclass(frozen=True)
class Headline:
    """The verdict. `change` is what to change first, `worth` what that wins back."""

    block: ClassVar[str] = "headline"
    tone: str
    text: str
    facts: Sequence[tuple[str, str]]
    cost: str = ""
    change: str = ""
    worth: str = ""
    link: str = ""


@dataclass(frozen=True)
class Cards:
    """Small boxes side by side: (tag, title, figure, text)."""

    block: ClassVar[str] = "cards"
    title: str
    cards: Sequence[tuple[Tag, str, str, str]]


@dataclass(frozen=True)
class Offence:
    """One finding, all of it."""

    block: ClassVar[str] = "offence"
    anchor: str
    rule: str
    severity: Tag
    title: str
    cost: str
    summary: str
    why: str
    fix: str
    facts: Sequence[tuple[str, Any]]
    evidence: Sequence[tuple[str, Any]]


@dataclass(frozen=True)
class Paste:
    """Settings to copy as they are, folded away under their title."""

    block: ClassVar[str] = "paste"
    title: str
    text: str


Block = Text | Facts | Grid | Figure | Strip | Headline | Cards | Offence | Paste


@dataclass(frozen=True)
class Section:
    """A part of the page. `lead` is its one-sentence answer."""

    id: str
    title: str
    blocks: Sequence[Block]
    lead: str = ""
