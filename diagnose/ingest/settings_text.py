"""Environment dumps and env files (KEY=VALUE a line) as `settings`.

Reads `env`, `export -p` and `declare -x`, docker's `--env-file`, Dockerfile `ENV` lines and Windows `set`. Values are
kept as text, without the quotes a shell needs. What looks like a secret is named but its value is never kept: dumps of
an environment hold tokens, and reports get passed on. This says what the environment was, not whether a program heeded
it.
"""

from __future__ import annotations

import re

from diagnose.ingest import Options, Source, quality
from diagnose.schema import INGESTED, Tables

HIDDEN = "(hidden)"
_LINE = re.compile(r"^\s*(?:export |declare -[a-z]+ |ENV |set )?\s*([A-Za-z_][\w.()%-]*)=(.*)$")
_SECRET = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|API_?KEY|ACCESS_KEY(_ID)?|PRIVATE_KEY|AUTH)(_|$)"
)
_MIN_SHARE = 0.8  # of the lines; values that span lines leave some without a key
_MAX_BYTES = 16 << 20


def sniff(head: bytes, name: str) -> bool:
    """Whether nearly every line assigns a value to a name."""
    if b"\0" in head or head.lstrip()[:1] in (b"", b"{", b"[", b"<"):
        return False
    lines = _lines(head)
    return bool(lines) and sum(_LINE.match(line) is not None for line in lines) >= _MIN_SHARE * len(lines)


def read(source: Source, options: Options) -> Tables:
    """`settings` with one row per assignment, in file order. InputError over 16 MiB."""
    lines = _lines(source.whole(_MAX_BYTES, "more than 16 MiB of KEY=VALUE text", "an environment dump"))
    found = [match for match in map(_LINE.match, lines) if match]
    keys = [match[1] for match in found]
    values = [_value(match[1], match[2]) for match in found]
    given = dict(zip(keys, values, strict=True))
    rank = int(given["RANK"]) if given.get("RANK", "").isdecimal() else None
    notes = []
    if len(found) < len(lines):
        lost = len(lines) - len(found)
        notes = [
            {"problem": "unreadable_line", "path": source.label, "count": lost, "detail": "not KEY=VALUE; left out"}
        ]
    files = {
        "file": [0],
        "path": [source.label],
        "kind": ["settings"],
        "events_count": [len(found)],
        "status": ["ok"],
        "detail": [""],
    }
    rows = {"key": keys, "value": values, "source": [source.label] * len(keys), "rank": [rank] * len(keys)}
    return {
        "files": INGESTED["files"].build(files),
        "settings": INGESTED["settings"].build(rows),
        "quality": quality(notes),
    }


def _lines(text: bytes) -> list[str]:
    lines = text.decode("utf-8", "replace").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith(("#", "//", ";"))]


def _value(key: str, text: str) -> str:
    if _SECRET.search(key.upper()):
        return HIDDEN
    value = text.strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
