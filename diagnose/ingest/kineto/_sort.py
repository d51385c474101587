"""Which kind of event each slice is, from its phase and category: decides how the slice is then read.

The C++ writer begins every event with the same bytes up to the phase and the category. Where a slice begins
so, both are read straight from the bytes (exact: they stand at fixed places); all others go through DuckDB. So do
slices of which nothing is read later, flows of a usual length excepted: only a parser tells whether they hold more.
"""

from __future__ import annotations

import re
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest.kineto._parse import SHAPES, SORT, Parser, Slices
from diagnose.ingest.kineto._stream import PAD, Bytes
from diagnose.schema import EVENT_KINDS

Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

KIND = {name: code for code, name in enumerate(EVENT_KINDS)}
DEVICE_KINDS = frozenset({"device_annotation", "kernel", "memcpy", "memset", "comm", "sync"})

# The writer's categories (kineto ActivityType.h), lower case; early versions capitalised them.
_CATEGORIES = {
    "op": "cpu_op operator",
    "annotation": "user_annotation",
    "device_annotation": "gpu_user_annotation gpu_op",
    "kernel": "kernel concurrent_kernel mtia_ccp_events",
    "memcpy": "gpu_memcpy memcpy",
    "memset": "gpu_memset memset",
    "comm": "collective_comm",
    "runtime": "cuda_runtime cuda_driver runtime hip_runtime mtia_runtime glow_runtime xpu_runtime xpu_driver "
    "privateuse1_runtime privateuse1_driver hpu_op",
    "sync": "cuda_sync xpu_sync cuda_event",
    "python": "python_function",
    "instant": "cpu_instant_event",
    "overhead": "overhead",
    "counter": "hardware_counters mtia_counters xpu_scope_profiler",
    "other": "trace external_correlation mtia_insight cuda_profiler_range",
}
CATEGORY_KIND = {category: kind for kind, text in _CATEGORIES.items() for category in text.split()}
_SHAPE_OF = {
    **dict.fromkeys(EVENT_KINDS, "bare"),
    **dict.fromkeys(DEVICE_KINDS, "device"),
    "op": "op",
    "annotation": "op",
    "runtime": "runtime",
}
_LIST_PIDS = {"CPU functions": "op", "CUDA functions": "kernel"}  # EventList.export_chrome_trace has no categories
MEMORY_NAMES = ("[memory]", "[OutOfMemory]")

_LEAD = re.compile(rb'(\{\s*"ph"\s*:\s*")[A-Za-z]("\s*,\s*"cat"\s*:\s*")')
_FLOW_PHASES = np.frombuffer(b"sft", np.uint8)
_SHORTEST_EVENT = 40  # bytes; flow records of one writer differ by less, unless another event lost its brace in one


class Sort(NamedTuple):
    """What to do with one event: `shape` names what is read from it; `flow`, `lost` and `alien` are not read."""

    shape: str
    kind: int
    unknown_category: bool = False


class Sorted(NamedTuple):
    """`sorts[code[i]]` for each slice; code -1: the slice is not valid JSON."""

    sorts: tuple[Sort, ...]
    codes: Codes


class Sorter:
    """Sorts the slices of a document; remembers how its writer begins events and the categories it met."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._known: dict[tuple[str | None, str | None], int] = {}
        self._sorts: list[Sort] = []
        self._growing = Lock()  # the next block is sorted while repaired events of this one are

    def sort(self, slices: Slices, flat: Mask) -> Sorted:
        """What each slice is."""
        codes = np.full(len(slices), -2, np.int32)
        lead = self._lead(slices)
        if lead:
            self._sort_by_bytes(slices, flat, lead, codes)
        todo = np.flatnonzero(codes == -2)
        if len(todo):
            codes[todo] = self._sort_by_parser(slices.take(todo))
        return Sorted(tuple(self._sorts), codes)

    def _lead(self, slices: Slices) -> tuple[bytes, bytes] | None:
        for row in range(min(len(slices), 8)):
            match = _LEAD.match(slices.padded[slices.starts[row] : slices.ends[row]][:120].tobytes())
            if match and len(match[1]) + len(match[2]) < PAD - 24:
                return match[1], match[2]
        return None

    def _sort_by_bytes(self, slices: Slices, flat: Mask, lead: tuple[bytes, bytes], codes: Codes) -> None:
        padded, starts = slices.padded, slices.starts
        before, between = lead
        long = slices.ends - starts > len(before) + len(between) + 24
        begins = long & _matches(padded, starts, before)
        phase = padded[starts + len(before)]
        quoted = padded[starts + len(before) + 1] == ord('"')
        flows = np.flatnonzero(begins & quoted & flat & np.isin(phase, _FLOW_PHASES))
        if len(flows):
            lengths = slices.ends[flows] - starts[flows]
            codes[flows[lengths < lengths.min() + _SHORTEST_EVENT]] = self._code("s", None)
        rows = np.flatnonzero(begins & ~np.isin(phase, _FLOW_PHASES))
        rows = rows[_matches(padded, starts[rows] + len(before) + 1, between)]
        at = starts[rows] + len(before) + 1 + len(between)
        words = _words(padded)
        compared = words[at], words[at + 8], phase[rows].astype(np.uint64)
        key = compared[0] ^ compared[1] * np.uint64(0x9E3779B97F4A7C15) ^ compared[2] << np.uint64(56)
        found = pa.array(key).dictionary_encode()
        local = found.indices.to_numpy()
        first = np.zeros(len(found.dictionary), np.int64)
        first[local[::-1]] = np.arange(len(rows))[::-1]
        same = np.ones(len(rows), np.bool_)  # equal hashes are no proof
        for values in compared:
            same &= values == values[first][local]
        known = np.full(len(first), -2, np.int32)
        for index, row in enumerate(first):
            text, quote, _ = padded[at[row] : at[row] + 48].tobytes().partition(b'"')
            if quote and text.isascii() and b"\\" not in text:
                known[index] = self._code(chr(phase[rows[row]]), text.decode())
                if len(text) >= 16:
                    alike = np.flatnonzero(local == index)
                    same[alike] &= _matches(padded, at[alike], text + quote)
        read = [code < 0 or self._sorts[code].shape in SHAPES for code in known]
        known[~np.array(read, np.bool_)] = -2
        codes[rows] = np.where(same, known[local], -2)

    def _sort_by_parser(self, slices: Slices) -> Codes:
        found = self._parser.parse(slices, SORT)
        phases, categories = (pc.struct_field(found, k).dictionary_encode() for k in ("ph", "cat"))
        phase, category = (c.indices.fill_null(-1).to_numpy(zero_copy_only=False) for c in (phases, categories))
        width = len(categories.dictionary) + 1
        pairs, local = np.unique(phase.astype(np.int64) * width + category + 1, return_inverse=True)
        texts = ([*phases.dictionary.to_pylist(), None], [*categories.dictionary.to_pylist(), None])
        known = np.array([self._code(texts[0][p // width], texts[1][p % width - 1]) for p in pairs], np.int32)
        codes: Codes = known[local] if len(pairs) else np.zeros(0, np.int32)
        self._sort_by_name(found, category, codes)
        codes[~found.is_valid().to_numpy(zero_copy_only=False)] = -1
        return codes

    def _sort_by_name(self, found: pa.StructArray, category: Codes, codes: Codes) -> None:
        """Events without a category whose name or process still says what they are."""
        if not (category < 0).any():
            return
        timed = (category < 0) & np.isin(codes, [self._code("X", None), self._code("i", None)])
        is_memory = pc.is_in(pc.struct_field(found, "name"), pa.array(MEMORY_NAMES)).to_numpy(zero_copy_only=False)
        codes[timed & is_memory] = self._code("i", "cpu_instant_event")
        pid = pc.struct_field(found, "pid")
        for text, kind in _LIST_PIDS.items():
            there = pc.equal(pid, text).fill_null(False).to_numpy(zero_copy_only=False)
            codes[timed & there & (codes == self._code("X", None))] = self._code("X", {"op": "cpu_op"}.get(kind, kind))

    def _code(self, phase: str | None, category: str | None) -> int:
        pair = (phase, category)
        with self._growing:
            if pair not in self._known:
                self._known[pair] = len(self._sorts)
                self._sorts.append(_decide(phase, category))
            return self._known[pair]


def _decide(phase: str | None, category: str | None) -> Sort:
    kind = CATEGORY_KIND.get((category or "").lower())
    if phase == "X":
        shape = "memory" if kind == "instant" else _SHAPE_OF[kind or "other"]
        return Sort(shape, KIND[kind or "other"], kind is None)
    if phase in ("i", "I", "R", "P"):
        return Sort("memory" if kind == "instant" else "bare", KIND["instant"])
    fixed = {"C": "bare", "M": "meta", "s": "flow", "t": "flow", "f": "flow", None: "lost"}
    return Sort(fixed.get(phase, "alien"), KIND["counter" if phase == "C" else "other"])


def _words(padded: Bytes) -> npt.NDArray[np.uint64]:
    """The eight bytes from each position on."""
    return np.ndarray((len(padded) - 7,), np.uint64, padded.data, strides=(1,))


def _matches(padded: Bytes, at: npt.NDArray[np.int64], pattern: bytes) -> Mask:
    """Where `pattern` stands; the window's padding covers what lies behind its end."""
    words = _words(padded)
    same = np.ones(len(at), np.bool_)
    for start in range(0, len(pattern), 8):
        part = pattern[start : start + 8]
        wanted = np.frombuffer(part.ljust(8, b"\0"), np.uint64)[0]
        mask = np.frombuffer((b"\xff" * len(part)).ljust(8, b"\0"), np.uint64)[0]
        same &= (words[at + start] & mask) == wanted
    return same
