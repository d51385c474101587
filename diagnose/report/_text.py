"""Names and prose from inputs, made safe to print: nothing invisible, nothing that steers a terminal or a reader.

Escaping for HTML is the template's work (autoescape); `plotly` escapes for plotly, which reads a little HTML itself.
"""

from __future__ import annotations

import re

from diagnose.report._blocks import Name

_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_SPACE = re.compile(r"\s+")


def clean(text: object) -> str:
    """One line: control, direction and surrogate characters become U+FFFD, white space one blank."""
    return _SPACE.sub(" ", _STEERING.sub("\ufffd", str(text).replace("\r", " "))).strip()


def shorten(text: object, limit: int) -> str:
    """`clean(text)` of at most `limit` characters; the end of a cut name stays, it tells variants apart."""
    line = clean(text)
    if len(line) <= limit:
        return line
    tail = limit // 4
    return f"{line[: limit - tail - 1]}…{line[-tail:] if tail else ''}"


def name(text: object, limit: int = 72) -> Name:
    """A name for a table cell; the whole of it (to 4,000 characters) stays within reach. None is unknown."""
    if text is None or text == "":
        return Name("unknown")
    line = clean(text)
    return Name(line) if len(line) <= limit else Name(shorten(line, limit), shorten(line, 4000))


def plotly(text: object, limit: int = 96) -> str:
    """Text inside a figure: shortened, and plotly's own tags and entities taken literally."""
    return shorten(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def first_sentences(text: object, limit: int) -> str:
    """Whole sentences from the start, as many as fit; at least one, cut where it alone is too long."""
    sentences = re.split(r"(?<=[.!?]) (?=[A-Z])", clean(text))
    kept = sentences[0]
    for sentence in sentences[1:]:
        if len(kept) + 1 + len(sentence) > limit:
            break
        kept = f"{kept} {sentence}"
    return kept if len(kept) <= limit else f"{kept[: limit - 1].rpartition(' ')[0]} …"


def rank_name(rank: int) -> str:
    """`rank 3`; a rank that no evidence gives is `unknown rank 1`, never a negative number."""
    return f"rank {rank}" if rank >= 0 else f"unknown rank {-rank}"


def words(column: str) -> str:
    """A column's name for people: unit suffix off, blanks for underscores."""
    return _UNIT.sub("", column).replace("_", " ").strip() or column


_UNIT = re.compile(r"_(ns|bytes_per_s|flop_per_s|bytes|ratio|count|per_s|mhz|w|c|flop)$")
