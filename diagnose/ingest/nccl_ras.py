"""Reports of NCCL's RAS service (`ncclras`), as text or JSON: communicators, and ranks that are missing or lag.

One report is a moment: operation counts of a healthy job differ by a few, so a lag is kept as a message and judged
only by who compares two reports. A rank that RAS cannot reach is missing, which is not yet dead. The text is declared
unstable by NCCL; of it only the sections below `Errors` and `Warnings` are read. Releases 2.28.7 to 2.28.9 forget a
comma in JSON, which is repaired. Source: NCCL src/ras/client_support.cc, 2.24 to 2.30.
"""

from __future__ import annotations

import json
import re
from typing import Any

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, _signs, quality
from diagnose.schema import INGESTED, Tables

_JSON = _signs.json(r'"communicators"\s*:', r'"(nccl_version|ranks|communicators_count)"', without='"(traceEvents|ph)"')
_TEXT = _signs.text(r"^NCCL version \S+ compiled with CUDA|^Job summary\s*$")
_COMMA = re.compile(rb'("nvml_dev": \d+)\s*\n(\s*"status")')
_COMM = re.compile(r"^\s*#(\d+)-(\d+) \(([0-9a-f]+)\) (\w+)")
_RANK = re.compile(r"Rank (\d+) -- GPU (\S+) managed by process (\d+) on node (\S+)")
_PROCESS = re.compile(r"Process (\d+) on node (\S+) managing GPUs? (\S+)")
_MISSING = re.compile(r"missing|DEAD|unresponsive|TIMEOUT|unreachable", re.IGNORECASE)
_LAG = re.compile(r"launched up to operation (\d+)|fewer operations|behind", re.IGNORECASE)
_MAX_BYTES = 256 << 20


def sniff(head: bytes, name: str) -> bool:
    """A report, in either form."""
    return _JSON(head, name) or (_TEXT(head, name) and b"Communicators" in head)


def read(source: Source, options: Options) -> Tables:
    """`communicators` and `log_events` of one report."""
    data = source.whole(_MAX_BYTES, "a RAS report of more than 256 MiB", "one report")
    repaired = 0
    if data.lstrip()[:1] == b"{":
        data, repaired = _COMMA.subn(rb"\1,\n\2", data)
        comms, events = _of_json(data, source.label)
    else:
        comms, events = [], _of_text(data.decode("utf-8", "replace"))
    notes = []
    if repaired:
        said = 'a comma was missing before "status", as NCCL 2.28.7 to 2.28.9 write it'
        notes = [{"problem": "repaired_event", "path": source.label, "count": repaired, "detail": said}]
    files = {"file": 0, "path": source.label, "kind": "nccl_ras", "events_count": len(comms) + len(events),
             "status": "repaired" if repaired else "ok", "detail": ""}  # fmt: skip
    return {
        "files": INGESTED["files"].build({name: [value] for name, value in files.items()}),
        "communicators": _built("communicators", comms),
        "log_events": _built("log_events", events),
        "quality": quality(notes),
    }


def _built(name: str, rows: list[dict[str, Any]]) -> Any:
    schema = INGESTED[name]
    return schema.of_rows(rows)


def _of_json(data: bytes, path: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    try:
        report = json.loads(data)
        found = [c for c in report["communicators"] if isinstance(c, dict)]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(path, f"damaged JSON ({error})", "an ncclras report", "ask ncclras again") from None
    comms, events = [], []
    for comm in found:
        name, size = str(comm.get("hash")), comm.get("size")
        for rank in comm.get("ranks") or ():
            status = rank.get("status") or {}
            place = {"host": rank.get("host"), "process": rank.get("pid"), "device": rank.get("cuda_dev")}
            done = status.get("init_state") == 0
            comms.append({**place, "comm": name, "comm_rank": rank.get("rank"), "size": size,
                          "state": "complete" if done else "started"})  # fmt: skip
            if status.get("async_error"):
                said = f"rank {rank.get('rank')} of communicator {name}: asynchronous error {status['async_error']}"
                events.append({**place, "kind": "ras_error", "level": "ERROR", "detail": said, "count": 1})
        for rank in comm.get("missing_ranks") or ():
            status = rank.get("status") or {}
            how = "considered dead" if status.get("considered_dead") else "does not answer"
            said = f"rank {rank.get('rank')} of communicator {name} (of {size} ranks) {how}"
            place = {"host": rank.get("host"), "process": rank.get("pid"), "device": rank.get("cuda_dev")}
            events.append({**place, "kind": "ras_missing", "level": "ERROR", "detail": said, "count": 1})
    return comms, events


def _of_text(text: str) -> list[dict[str, Any]]:
    """Messages of the sections about errors and warnings, with the ranks and processes they list."""
    section, comm, about, events = "", "", "", []
    for number, line in enumerate(text.splitlines(), 1):
        word = line.strip()
        if word in ("Errors", "Warnings", "Communicators", "Job summary") or word.startswith("Group "):
            section, about = word, ""
            continue
        if section not in ("Errors", "Warnings"):
            continue
        if match := _COMM.match(line):
            comm = match[3]
        found = _RANK.search(line) or _PROCESS.search(line)
        if found:
            rank = f"rank {found[1]} of " if found.re is _RANK else ""
            kind = "ras_missing" if _MISSING.search(about) else "ras_lag" if _LAG.search(about) else "ras_warning"
            pid, host = (found[3], found[4]) if found.re is _RANK else (found[1], found[2])
            said = f"{rank}communicator {comm or 'unknown'}: {about or word}"
            events.append({"host": host, "process": int(pid), "kind": kind, "detail": said, "line": number,
                           "level": "ERROR" if section == "Errors" else "WARN", "count": 1})  # fmt: skip
        elif word and not _COMM.match(line) and not set(word) <= {"=", "-"}:
            about = word
    return events
