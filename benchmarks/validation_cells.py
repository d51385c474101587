"""Numbers out of the cells of validation tables."""

from __future__ import annotations

import re


def number(text: str | None) -> float | None:
    """The first number in a cell, None where it has none."""
    found = re.search(r"-?\d+(?:\.\d+)?", text or "")
    return float(found.group()) if found else None


def count(text: str | None, default: int = 1) -> int:
    found = number(text)
    return default if found is None else int(found)


def overlaps(note: str) -> bool:
    """Whether the note says that expert traffic was overlapped."""
    return "EP overlap" in note and "no EP overlap" not in note and "overlap OFF" not in note
