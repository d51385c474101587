"""Mending the text of one event that is not valid JSON, by the faults that profilers and scripts really write.

Texts here are latin-1 decoded bytes, so a position in the text is a position in the file and no byte can fail
to decode. Each repair is tried in turn and only believed if the result parses; nothing inside a string is
touched except what keeps the string from being one.
"""

from __future__ import annotations

import json
import re

import json_repair

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ESCAPE = re.compile(r"\\(\\|[\"/bfnrt]|u[0-9a-fA-F]{4})?")
_BACKSLASH = re.compile(r'\\(?!")')
_CONTROL = re.compile(r"[\x00-\x1f]")
_BARE_NUMBER = re.compile(r"(?<![\w.])[+-]?(?:inf(?:inity)?|nan)(?![\w.])", re.IGNORECASE)
_ELLIPSIS = re.compile(r"(?<![.\d])\.\.\.(?!\.)")
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")
_KEY_WITHOUT_QUOTE = re.compile(r'(?<=[{,])(\s*)([A-Za-z_][\w ]*)"(\s*:)')
_CLOSES_VALUE = re.compile(r'\s*(?:,\s*"[^"\n]{1,60}"\s*:|[}\]])')
_CLOSES_KEY = re.compile(r"\s*:")
_CLOSES_ITEM = re.compile(r"\s*[,\]]")
_LONE_SURROGATE = re.compile(
    r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def repair(text: str) -> tuple[str, str] | None:
    """A valid JSON object made of `text` and the problem that was mended, or None."""
    for change, problem in (
        (text, "repaired_event"),
        (_KEY_WITHOUT_QUOTE.sub(r'\1"\2"\3', text), "repaired_event"),
        (_escape_quotes(text), "repaired_event"),
    ):
        mended, problems = _tokens(change)
        if _is_object(mended):
            return mended, problem if change != text or not problems else max(problems)
    return None


def rebuild(text: str) -> str | None:
    """The last resort: a guess by json_repair, believed only where it still looks like an event."""
    try:
        value = json_repair.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict) and isinstance(value.get("ph"), str) and "name" in value and "ts" in value:
        return json.dumps(value)
    return None


def tidy(raw: bytes) -> tuple[bytes, str | None]:
    """Text that a strict parser takes: UTF-8, no control characters in strings, no half surrogates."""
    problem = None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text, problem = raw.decode(errors="replace"), "invalid_utf8"
    escaped = _STRING.sub(lambda m: _CONTROL.sub(_as_escape, m[0]), text)
    whole = _LONE_SURROGATE.sub(lambda m: "\\ufffd" if m[1] else m[0], escaped)
    return whole.encode(), problem or ("repaired_event" if whole != text else None)


def _tokens(text: str) -> tuple[str, set[str]]:
    """Fix what stands outside strings, and escapes inside them."""
    parts: list[str] = []
    problems: set[str] = set()
    at = 0
    for match in _STRING.finditer(text):
        parts.append(_outside(text[at : match.start()], problems))
        fixed = match[0]
        if any(not escape[1] for escape in _ESCAPE.finditer(fixed)):
            fixed = _BACKSLASH.sub(r"\\\\", fixed)  # the writer does not escape: all of them stand for themselves
            problems.add("invalid_escape")
        parts.append(_CONTROL.sub(_as_escape, fixed))
        at = match.end()
    parts.append(_outside(text[at:], problems))
    return "".join(parts), problems


def _outside(text: str, problems: set[str]) -> str:
    finite = _BARE_NUMBER.sub("NaN", text)
    listed = _ELLIPSIS.sub('"..."', finite)
    closed = _TRAILING_COMMA.sub(r"\1", listed)
    if listed != finite:
        problems.add("repaired_event")
    if closed != listed:
        problems.add("trailing_comma")
    if finite != text:
        problems.add("non_finite_number")
    return closed


def _as_escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _escape_quotes(text: str) -> str:
    """Escape quotes that do not end their string, judged by what follows them."""
    parts: list[str] = []
    at = 0
    while (start := text.find('"', at)) >= 0:
        end = _end_of_string(text, start, in_list=text[:start].rstrip()[-1:] == "[")
        if end is None:
            break
        inner = text[start + 1 : end]
        parts += [text[at : start + 1], re.sub(r'(?<!\\)"', '\\"', inner), '"']
        at = end + 1
    parts.append(text[at:])
    return "".join(parts)


def _end_of_string(text: str, start: int, in_list: bool) -> int | None:
    before = text[:start].rstrip()[-1:]
    ends = _CLOSES_KEY if before in "{," else _CLOSES_ITEM if in_list else _CLOSES_VALUE
    quote = text.find('"', start + 1)
    while quote >= 0:
        if ends.match(text, quote + 1) and text[quote - 1] != "\\":
            return quote
        quote = text.find('"', quote + 1)
    return None
