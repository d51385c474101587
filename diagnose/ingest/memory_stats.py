"""Dumps of `torch.cuda.memory_stats()`: flat or nested, of one device or several, as JSON or as Python printed them.

One dictionary, a list of one per device, a dictionary by device, or one a line. With a step in each it is a table of
numbers per step and goes to `series`. Without `allocated_bytes.all.current` it is no such dump.
Source: torch/cuda/memory.py (memory_stats, memory_stats_as_nested_dict).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, quality
from diagnose.ingest._allocator_stats import COUNTERS, tables_of
from diagnose.schema import INGESTED, Tables

_MAX_BYTES = 64 << 20
_FLAT = re.compile(rb"""["']allocated_bytes\.all\.(?:current|peak)["']""")
_NESTED = re.compile(rb"""["']allocated_bytes["']\s*:\s*\{\s*["'](?:all|large_pool|small_pool)["']\s*:\s*\{""")
_START = re.compile(rb"\s*(?:OrderedDict\(|\{|\[)")
_STEP = re.compile(rb"""["'](?:global_)?(?:step|iteration|iter)["']\s*:""")
_ORDERED = re.compile(r"(?:collections\.)?OrderedDict\(([\[{].*?[\]}])\)", re.DOTALL)
_DEVICE = re.compile(r"(?:cuda|hip|xpu|gpu|device)?[:_ ]?(\d{1,3})", re.IGNORECASE)


def sniff(head: bytes, name: str) -> bool:
    """A dictionary with the counters' names, and no step beside them."""
    found = _FLAT.search(head) or _NESTED.search(head)
    return bool(found and _START.match(head) and not _STEP.search(head))


def read(source: Source, options: Options) -> Tables:
    """`allocator_stats`. InputError where it is cut, damaged or holds no counter."""
    data = source.whole(_MAX_BYTES, "memory statistics of more than 64 MiB", "a smaller file")
    text = data.decode("utf-8", "replace")
    rows = [row for document in _documents(text, source.label) for row in _rows(document, None)]
    if not rows:
        raise InputError(
            source.label, "memory statistics without allocated bytes", "torch.cuda.memory_stats()", "dump it again"
        )
    files = {"file": 0, "path": source.label, "kind": "memory_stats", "events_count": len(rows), "status": "ok"}
    devices = {row["device"] for row in rows}
    files |= {"detail": "", "gpu_count": len(devices) if None not in devices else None}
    return {
        "files": INGESTED["files"].build({name: [value] for name, value in files.items()}),
        "quality": quality([]),
        **tables_of(rows),
    }


def _documents(text: str, path: str) -> Iterator[Any]:
    """The whole text as one value, else one value a line."""
    whole = _value(text)
    if whole is not None:
        yield whole
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            found = _value(line)
            if found is None:
                raise InputError(
                    path, f"memory statistics that do not parse (line {number})", "JSON, or a dictionary as printed",
                    "write it with json.dump(torch.cuda.memory_stats(), file)",
                )  # fmt: skip
            yield found


def _value(text: str) -> Any:
    """The JSON or Python literal that a text is; None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(_ORDERED.sub(r"dict_of(\1)", text).replace("dict_of(", "(").strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _rows(value: Any, device: int | None) -> Iterator[dict[str, Any]]:
    """Rows of one dump: of each device where it has several."""
    if isinstance(value, list) and value and all(isinstance(v, (list, tuple)) and len(v) == 2 for v in value):
        value = dict(value)  # an OrderedDict as printed
    if isinstance(value, list):
        for index, part in enumerate(value):
            yield from _rows(part, index if len(value) > 1 else device)
        return
    if not isinstance(value, dict):
        return
    counters = _flat(value)
    if COUNTERS["allocated_bytes"] in counters or COUNTERS["peak_allocated_bytes"] in counters:
        own = value.get("device")
        device = own if type(own) is int else device
        row = {name: counters.get(key) for name, key in COUNTERS.items()}
        rank = value.get("rank")
        yield {"device": device, "rank": rank if type(rank) is int else None, "source": "memory_stats", **row}
        return
    for key, part in value.items():
        named = _DEVICE.fullmatch(str(key).strip())
        yield from _rows(part, int(named[1]) if named else device)


def _flat(value: dict[Any, Any], prefix: str = "") -> dict[str, int]:
    """Whole numbers by dotted name."""
    found: dict[str, int] = {}
    for key, part in value.items():
        name = f"{prefix}{key}"
        if isinstance(part, dict) and prefix.count(".") < 3:
            found |= _flat(part, f"{name}.")
        elif type(part) is int:
            found[name] = part
    return found
