"""What `diagnose launch` wrote about a job (`launch-HOST.json`): its settings, its command, and how it ended."""

from __future__ import annotations

import json
from typing import Any

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, quality
from diagnose.schema import INGESTED, Tables

_MAX_BYTES = 1 << 20
_MAX_SETTINGS = 2000


def sniff(head: bytes, name: str) -> bool:
    """Whether the object begins with the launcher's mark."""
    return head.lstrip()[:1] == b"{" and b'"diagnose_launch"' in head[:200]


def read(source: Source, options: Options) -> Tables:
    """files, settings (environment by its names, `launch.command`, `launch.exit_code`) and quality."""
    data = b"".join(source.chunks())[: _MAX_BYTES + 1]
    try:
        record = json.loads(data) if len(data) <= _MAX_BYTES else None
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise InputError(source.label, "no JSON object of at most 1 MiB", "what diagnose launch wrote", "leave it out")
    settings = _settings(record)
    files = {
        "file": 0, "path": source.label, "kind": "launch", "host": _text(record.get("host")), "events_count": 0,
        "start_ns": _whole(record.get("started_ns")), "end_ns": _whole(record.get("ended_ns")), "status": "ok",
        "detail": "",
    }  # fmt: skip
    columns = {"key": list(settings), "value": list(settings.values()), "source": [source.label] * len(settings)}
    return {
        "files": INGESTED["files"].build({name: [value] for name, value in files.items()}),
        "settings": INGESTED["settings"].build(columns),
        "quality": quality([{**note, "path": source.label, "count": 1} for note in _end(record)]),
    }


def _settings(record: dict[str, Any]) -> dict[str, str]:
    found = {}
    given = record.get("settings")
    for name, value in list(given.items())[:_MAX_SETTINGS] if isinstance(given, dict) else []:
        if isinstance(name, str) and isinstance(value, str):
            found[name] = value
    command = record.get("command")
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        found["launch.command"] = " ".join(command)[:2000]
    code = _whole(record.get("exit_code"))
    if code is not None:
        found["launch.exit_code"] = str(code)
    return found


def _end(record: dict[str, Any]) -> list[dict[str, str]]:
    code = _whole(record.get("exit_code"))
    if code is None:
        return [
            {
                "problem": "job_unfinished",
                "detail": "no exit code was written: it still runs, or the launcher was killed",
            }
        ]
    if code == 0:
        return []
    signal = f" (signal {code - 128})" if code > 128 else ""
    return [{"problem": "job_failed", "detail": f"the job ended with exit code {code}{signal}"}]


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) < 256 and value.isprintable() else None
