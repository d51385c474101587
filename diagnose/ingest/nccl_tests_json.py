"""Results of nccl-tests as JSON (`-J FILE`, since October 2025): `bandwidths`, a row per size and placement.

The writer's own dialect: booleans are strings, `root` is a padded string, infinity stands bare. The file also holds the
whole environment and command line of the benchmark, secrets included: of both only the program's name is looked at,
nothing of them is kept, nor quoted in a message. A file of a run that was cut off gives its complete results. Times are
averages over iterations; a benchmark says what the links can do, not what the job did. Source: nccl-tests src/util.cu.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, _signs, quality
from diagnose.ingest.text.nccl_tests import TYPES, operation, program, settle
from diagnose.schema import INGESTED, Tables

_SIGN = _signs.json(r'\A\s*\{\s*"version"\s*:\s*\d+\s*,\s*"start_time"')
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|(?<![\w.])[+-]?(?:inf(?:inity)?|nan)(?:\(\w*\))?(?!\w)', re.IGNORECASE | re.DOTALL
)
_RESULTS = re.compile(r'"results"\s*:\s*\[')
_CONFIG = re.compile(r'"config"\s*:\s*')
_ARGUMENTS = re.compile(r'"args"\s*:\s*')
_MAX_BYTES = 256 << 20
_EXPECTED = "a result that nccl-tests wrote with -J"
_DECODER = json.JSONDecoder(strict=False)
Row = dict[str, Any]


def sniff(head: bytes, name: str) -> bool:
    """A JSON object that begins as nccl-tests begins it."""
    return _SIGN(head, name)


def read(source: Source, options: Options) -> Tables:
    """`bandwidths` of one run. InputError where it holds no complete result."""
    data = source.whole(_MAX_BYTES, "a result of more than 256 MiB", _EXPECTED)
    text, replaced = _valid(data.decode("utf-8-sig", "replace"))
    report, cut = _report(text)
    rows = list(_rows(report))
    if not rows:
        raise InputError(source.label, "no complete result", _EXPECTED, "run the benchmark to its end")
    settle(rows, source.label)
    notes = []
    if replaced:
        notes.append({"problem": "non_finite_number", "count": replaced, "detail": "a bare inf or nan became unknown"})
    if cut:
        said = "the document is not complete; its complete results are used"
        notes.append({"problem": "truncated", "count": 1, "detail": said})
    wrong = sum(row["wrong"] for row in rows)
    if wrong:
        said = "results that the benchmark found wrong: the links or GPUs corrupt data"
        notes.append({"problem": "inconsistent_state", "count": wrong, "detail": said})
    schema = INGESTED["bandwidths"]
    hosts = _hosts(report)
    files = {"file": 0, "path": source.label, "kind": "nccl_tests", "host": hosts[0] if len(set(hosts)) == 1 else None,
             "events_count": len(rows), "status": "partial" if cut else "repaired" if replaced else "ok",
             "detail": "the document is not complete" if cut else ""}  # fmt: skip
    return {
        "files": INGESTED["files"].build({name: [value] for name, value in files.items()}),
        "bandwidths": schema.of_rows(rows),
        "quality": quality([{"path": source.label, **note} for note in notes]),
    }


def _valid(text: str) -> tuple[str, int]:
    """The text with bare inf and nan as null, and how many there were; strings stay."""
    count = 0

    def swap(match: re.Match[str]) -> str:
        nonlocal count
        if match[0].startswith('"'):
            return match[0]
        count += 1
        return "null"

    return _TOKEN.sub(swap, text), count


def _report(text: str) -> tuple[Row, bool]:
    """args, config and results, and whether the document is damaged: then what of them is complete."""
    try:
        found = _DECODER.decode(text.strip())
        return (found if isinstance(found, dict) else {}), False
    except (ValueError, RecursionError):
        pass
    report: Row = {"results": list(_complete(text))}
    for key, pattern in (("args", _ARGUMENTS), ("config", _CONFIG)):
        if match := pattern.search(text):
            try:
                report[key] = _DECODER.raw_decode(text, match.end())[0]
            except (ValueError, RecursionError):
                continue
    return report, True


def _complete(text: str) -> Iterator[Any]:
    """Results up to the first that is damaged."""
    match = _RESULTS.search(text)
    at = match.end() if match else len(text)
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        try:
            found, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield found


def _rows(report: Row) -> Iterator[Row]:
    """Two rows per result, as far as it has both placements."""
    told = program(" ".join(str(a) for a in _list(report.get("args"))[:1]))
    devices = _devices(report)
    size = len(devices)
    groups = Counter(str(d.get("group")).strip() for d in devices)
    per_group = set(groups.values())
    ranks = (per_group.pop() if len(per_group) == 1 else None) if size else None
    hosts = len(set(_hosts(report))) if len(groups) == 1 else None  # of several communicators each has its own
    for result in _list(report.get("results")):
        if not isinstance(result, dict):
            continue
        size_bytes, dtype = _whole(result.get("size")), str(result.get("type") or "").strip()
        head = {key: str(result.get(key, "")).strip() for key in ("redop", "root")}
        for placement in ("out_of_place", "in_place"):
            one = result.get(placement)
            if not isinstance(one, dict) or size_bytes is None:
                continue
            time_us = _number(one.get("time", one.get("cpu_time")))
            if time_us is None:
                continue
            algbw, busbw = _number(one.get("alg_bw")), _number(one.get("bus_bw"))
            yield {
                "op": told or operation(head, algbw, busbw, ranks),
                "size_bytes": size_bytes,
                "dtype": TYPES.get(dtype, dtype or None),
                "group_size": ranks,
                "node_count": hosts or None,
                "dur_ns": round(time_us * 1000),
                "algbw_bytes_per_s": algbw * 1e9 if algbw else None,
                "busbw_bytes_per_s": busbw * 1e9 if busbw else None,
                "placement": placement,
                "source": "nccl_tests",
                "run": 1,
                "wrong": bool(_number(one.get("nwrong"))),
            }


def _devices(report: Row) -> list[Row]:
    config = report.get("config")
    found = config.get("devices") if isinstance(config, dict) else None
    return [d for d in _list(found or report.get("devices")) if isinstance(d, dict)]


def _hosts(report: Row) -> list[str]:
    return [str(d["hostname"]).strip() for d in _devices(report) if d.get("hostname")]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    """A finite number, also one that stands in a string; else None: N/A, nan, unchecked."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _whole(value: Any) -> int | None:
    found = _number(value)
    return int(found) if found is not None and 0 <= found < 2**62 else None
