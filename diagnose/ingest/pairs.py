"""Tables of bandwidth between pairs of hosts (CSV or TSV), as pairwise runs of nccl-tests or ib_write_bw leave them.

Two columns name hosts, one holds a bandwidth whose name says the unit: `gbs`, `gb_s`, `GB/s` are gigabytes, `gbps`
and `gbit` are gigabits a second. A table whose unit is not told is not taken: it is for `series`.
"""

from __future__ import annotations

import csv
import io
import math
import re
from typing import Any

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, quality
from diagnose.schema import INGESTED, Tables

_ONE = re.compile(r"(?:a|src|source|from|first|(?:node|host)_?(?:a|1))", re.IGNORECASE)
_OTHER = re.compile(r"(?:b|dst|dest|destination|target|to|second|(?:node|host)_?(?:b|2))", re.IGNORECASE)
_BANDWIDTH = re.compile(
    r"(?:\w*bw|bandwidth|bus_?bw\w*)[ _(\[]*(gbs|gb_?s|gb/s|gb_per_s|gbps|gbit/?s?|mb_?s|mb/s)[)\]]*", re.IGNORECASE
)
_SWITCH = re.compile(r"same_(?:switch|leaf|rail|rack)", re.IGNORECASE)
_MAX_BYTES = 64 << 20


def sniff(head: bytes, name: str) -> bool:
    """Whether the header names two hosts and a bandwidth with its unit."""
    first = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    return b"\0" not in head and _columns(_words(first)) is not None


def read(source: Source, options: Options) -> Tables:
    """`pairs` with one row per line. InputError where no line can be read."""
    text = source.whole(_MAX_BYTES, "pairs of hosts in more than 64 MiB", "a smaller table").decode("utf-8", "replace")
    first, _, rest = text.partition("\n")
    found = _columns(_words(first))
    assert found is not None, "read follows sniff"
    rows, bad = [], 0
    for words in csv.reader(io.StringIO(rest), delimiter="\t" if "\t" in first else ","):
        row = _row([w.strip() for w in words], found)
        rows += [row] if row else []
        bad += 1 if words and not row else 0
    if not rows:
        raise InputError(source.label, "no line with two hosts and a bandwidth", "pairs of hosts", "leave it out")
    notes = []
    if bad:
        notes = [{"problem": "unreadable_line", "path": source.label, "count": bad, "detail": "no pair; left out"}]
    files = {"file": 0, "path": source.label, "kind": "pairs", "events_count": len(rows), "status": "ok", "detail": ""}
    schema = INGESTED["pairs"]
    return {
        "files": INGESTED["files"].build({name: [value] for name, value in files.items()}),
        "pairs": schema.of_rows(rows),
        "quality": quality(notes),
    }


def _words(line: str) -> list[str]:
    return [w.strip().strip('"') for w in line.strip().split("\t" if "\t" in line else ",")]


def _columns(names: list[str]) -> dict[str, Any] | None:
    """Places of the columns and the scale of the bandwidth; None where one is missing."""
    place = {
        key: next((i for i, name in enumerate(names) if pattern.fullmatch(name)), None)
        for key, pattern in (("from", _ONE), ("to", _OTHER), ("bandwidth", _BANDWIDTH), ("switch", _SWITCH))
    }
    if None in (place["from"], place["to"], place["bandwidth"]):
        return None
    match = _BANDWIDTH.fullmatch(names[place["bandwidth"] or 0])
    unit = match[1].lower() if match else ""
    return {**place, "scale": 1e6 if unit.startswith("mb") else 1e9 / 8 if unit.startswith(("gbps", "gbit")) else 1e9}


def _row(words: list[str], places: dict[str, Any]) -> dict[str, Any] | None:
    if len(words) <= max(places["from"], places["to"], places["bandwidth"]):
        return None
    try:
        value = float(words[places["bandwidth"]])
    except ValueError:
        return None
    one, other = words[places["from"]], words[places["to"]]
    if not (math.isfinite(value) and value > 0 and one and other):
        return None
    switch = words[places["switch"]].lower() if places["switch"] is not None and places["switch"] < len(words) else ""
    same = True if switch in ("1", "true", "yes") else False if switch in ("0", "false", "no") else None
    return {"from": one, "to": other, "busbw_bytes_per_s": value * places["scale"], "same_switch": same}
