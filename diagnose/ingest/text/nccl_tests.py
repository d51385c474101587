"""Results of nccl-tests and rccl-tests as they print them: `bandwidths`, two rows per line.

Columns differ between releases, so the header says what they are; where an old release leaves a cell blank, values are
counted from the right. The operation is that of the program (`all_reduce_perf`) where its name stands in the log, else
what columns and the factor between bus and algorithm bandwidth leave. Times are averages over iterations; a benchmark
says what the links can do, not what the job did. Source: nccl-tests src/common.cu, 2.0 to 2.19.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

from diagnose.ingest.text._lines import Lines
from diagnose.schema import INGESTED, Tables

TYPES = {
    "float": "float32", "half": "float16", "double": "float64", "bfloat16": "bfloat16", "int8": "int8",
    "uint8": "uint8", "int32": "int32", "uint32": "uint32", "int64": "int64", "uint64": "uint64",
    "f8e4m3": "float8_e4m3", "f8e5m2": "float8_e5m2", "fp8_e4m3": "float8_e4m3", "fp8_e5m2": "float8_e5m2",
}  # fmt: skip
_LAUNCHER = r"(?:\[\d+,\d+\]<std\w+>:|\s*\d+: |\[[\w ]+\]:)?\s*"
MARK = (
    r"#\s+size\s+count\s+type|#\s+Rank\s+\d+ .*Pid\s+\d+ on |# Avg bus bandwidth|# Out of bounds values|"
    r"\b(?:all_reduce|all_gather|reduce_scatter|broadcast|reduce|alltoall|sendrecv|gather|scatter)_perf\b|"
    rf"^{_LAUNCHER}\d+\s+\d+\s+(?:{'|'.join(TYPES)})\s"
)
_ROW = re.compile(rf"^{_LAUNCHER}(\d+\s+\d+\s+(?:{'|'.join(TYPES)})\s.*)$")
_DEVICE = re.compile(r"#\s+Rank\s+(\d+) .*Pid\s+\d+ on\s+(\S+) device")
_PROGRAM = re.compile(
    r"\b(all_reduce|all_gather|reduce_scatter|broadcast|reduce|alltoall|sendrecv|gather|scatter)_perf\b"
)
_OPERATIONS = {
    "alltoall": "all_to_all", "sendrecv": "p2p", "allreduce": "all_reduce", "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
}  # fmt: skip
_IN_NAME = re.compile(r"(all_?reduce|all_?gather|reduce_?scatter|broadcast|all_?to_?all|sendrecv)")
_FACTOR_SLACK = 0.03  # printed bandwidths have three digits


class Reader:
    """Rows of one document, run by run."""

    def __init__(self) -> None:
        self.columns: list[str] = []
        self.rows: list[dict[str, Any]] = []
        self.hosts: dict[int, str] = {}
        self.program: str | None = None
        self.run = 0

    def feed(self, lines: Lines) -> int:
        """Read header, device and result lines."""
        before = len(self.rows)
        for _, text in lines.rows():
            if told := program(text):
                self.program = told
            elif match := _DEVICE.search(text):
                if int(match[1]) == 0:
                    self.hosts = {}
                self.hosts[int(match[1])] = match[2]
            elif "#" in text and "count" in text and "type" in text:
                self.columns = text[text.index("#") + 1 :].split()
                self.run += 1
            elif self.columns and (match := _ROW.match(text)):
                self.rows += self._results(match[1].split())
        return (len(self.rows) - before) // 2

    def _results(self, words: list[str]) -> list[dict[str, Any]]:
        columns = list(self.columns)
        if columns[-1] == "timestamp" and len(words) == len(columns) + 1:
            words = [*words[:-2], " ".join(words[-2:])]
        missing = len(columns) - len(words)
        if 0 < missing <= 2:  # old releases leave redop or root blank
            words = [*words[:3], *[""] * missing, *words[3:]]
        if len(words) != len(columns) or columns[:3] != ["size", "count", "type"]:
            return []
        base: dict[str, Any] = {
            "size_bytes": int(words[0]),
            "dtype": TYPES[words[2]],
            "group_size": len(self.hosts) or None,
            "node_count": len(set(self.hosts.values())) or None,
            "source": "nccl_tests",
            "run": self.run,
        }
        head = dict(zip(columns[:5], words[:5], strict=True))
        results = []
        for placement, start in zip(("out_of_place", "in_place"), _starts(columns), strict=False):
            time, algbw, busbw = (_number(w) for w in words[start : start + 3])
            if time is None:
                continue
            row = {**base, "placement": placement, "dur_ns": round(time * 1000)}
            row |= {"algbw_bytes_per_s": _scaled(algbw), "busbw_bytes_per_s": _scaled(busbw)}
            row["op"] = self.program or operation(head, algbw, busbw, row["group_size"])
            results.append(row)
        return results

    def tables(self, path: str) -> Tables:
        """`bandwidths`, if any. A run's operation is what its large messages or the file's name say."""
        if not self.rows:
            return {}
        settle(self.rows, path)
        schema = INGESTED["bandwidths"]
        return {"bandwidths": schema.of_rows(self.rows)}


def program(text: str) -> str | None:
    """Operation of the nccl-tests program that the text names, None where it names none."""
    match = _PROGRAM.search(text)
    return _OPERATIONS.get(match[1], match[1]) if match else None


def settle(rows: list[dict[str, Any]], path: str) -> None:
    """Give all rows of a `run` one `op`: what most of them say, else what the file's name says."""
    named = _IN_NAME.search(path.replace("\\", "/").rsplit("/", 1)[-1].lower())
    runs: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        runs.setdefault(row["run"], []).append(row)
    for own in runs.values():
        told = Counter(row["op"] for row in own if row["op"]).most_common(1)
        op = told[0][0] if told else _OPERATIONS.get(named[1], named[1]) if named else None
        for row in own:
            row["op"] = op


def _starts(columns: list[str]) -> list[int]:
    """Where the time of each placement stands."""
    return [i for i, name in enumerate(columns) if name in ("time", "cputime")]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None  # N/A
    return value if math.isfinite(value) else None


def _scaled(gigabytes_per_s: float | None) -> float | None:
    return gigabytes_per_s * 1e9 if gigabytes_per_s else None


def operation(head: dict[str, str], algbw: float | None, busbw: float | None, ranks: int | None) -> str | None:
    """What `redop`, `root` and the factor between the bandwidths (GB/s) leave; None where two operations fit."""
    if not (algbw and busbw and ranks and ranks > 2 and algbw > 1):
        return None
    factor, ring = busbw / algbw, (ranks - 1) / ranks
    reduces = head.get("redop", "none") not in ("none", "")
    rooted = head.get("root", "-1") not in ("-1", "")
    if abs(factor - 2 * ring) < _FACTOR_SLACK * ring and reduces:
        return "all_reduce"
    if abs(factor - 1) < _FACTOR_SLACK and rooted and abs(ring - 1) > 2 * _FACTOR_SLACK:
        return "reduce" if reduces else "broadcast"
    return "reduce_scatter" if abs(factor - ring) < _FACTOR_SLACK * ring and reduces and not rooted else None
