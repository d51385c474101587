"""Any text encoding a trace or log arrives in, as UTF-8 without a byte order mark.

Windows editors add a byte order mark; PowerShell's `>` writes UTF-16. UTF-16 without a mark is recognised by its
zero bytes: text that is mostly ASCII has one in every pair, on one side. Everything else passes through untouched:
whether it is valid UTF-8 is for the reader of the format to say, who knows what it may lose.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from diagnose.ingest._compression import Note

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)
_SAMPLE_BYTES = 512


def encoding_of(head: bytes) -> tuple[str, int]:
    """Encoding of a text and the length of its byte order mark, from its first bytes."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding, len(mark)
    sample = head[: min(len(head), _SAMPLE_BYTES) & ~1]
    for encoding, text, zeros in (("utf-16-le", sample[::2], sample[1::2]), ("utf-16-be", sample[1::2], sample[::2])):
        if len(text) < 2 or any(zeros[:2]) or zeros.count(0) < 0.7 * len(zeros):
            continue
        if sum(32 <= b < 127 or b in (9, 10, 13) for b in text) >= 0.7 * len(text):
            return encoding, 0
    return "utf-8", 0


_INVALID = "\udcff"
"""Stands for bytes that are no character; a valid text cannot hold it, but it can hold U+FFFD."""
_MARKING = "diagnose.mark_invalid"
codecs.register_error(_MARKING, lambda error: (_INVALID, error.end))  # type: ignore[attr-defined]


def to_utf8(pieces: Iterator[bytes], note: Note) -> Iterator[bytes]:
    """The pieces as UTF-8; the first decides the encoding."""
    held = b""
    for piece in pieces:
        held += piece
        if len(held) >= _SAMPLE_BYTES:
            break
    encoding, mark_bytes = encoding_of(held)
    if mark_bytes:
        note("byte_order_mark", 0, f"the file starts with a {encoding.upper()} byte order mark")
    if encoding == "utf-8":
        if held[mark_bytes:]:
            yield held[mark_bytes:]
        yield from pieces
        return
    note("utf16", 0, f"the file is {encoding.upper()}; it was read as such")
    yield from _recoded(held[mark_bytes:], pieces, encoding, note)


def _recoded(held: bytes, pieces: Iterator[bytes], encoding: str, note: Note) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(_MARKING)
    produced, replaced, first = 0, 0, None
    piece: bytes | None = held
    while piece is not None:
        following = next(pieces, None)
        text = decoder.decode(piece, final=following is None)
        found = text.count(_INVALID)
        if found and first is None:
            first = produced + len(text[: text.find(_INVALID)].encode("utf-8", "replace"))
        out = text.replace(_INVALID, "\ufffd").encode("utf-8", "replace")
        replaced += found
        produced += len(out)
        if out:
            yield out
        piece = following
    if replaced:
        note("invalid_utf8", first, f"{replaced:,} characters are not valid {encoding.upper()} and were replaced")
