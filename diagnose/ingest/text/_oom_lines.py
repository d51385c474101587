"""Out-of-memory messages in text, in every wording since 2018, and the allocator settings a log shows.

A message says what was asked for and who holds the device at that moment; it does not say whether the unallocated part
is in one piece. The same message is often printed several times (by the rank, by the launcher): equal ones are one row
with a count. A process id that the container cannot see makes PyTorch name this process like a stranger; where its
figure holds what PyTorch reserved, and the device has no room for both, it is taken for this process.
Method: a reader fed line by line, since one wording spans six lines. Source: c10/cuda/CUDACachingAllocator.cpp
(malloc), CUDAMallocAsyncAllocator.cpp, nccl src/include/alloc.h; PyTorch 1.1 prints "cached" for unallocated.
"""

from __future__ import annotations

import re
from typing import Any

Row = dict[str, Any]

_SIZE = r"(\d+(?:\.\d+)?) ?(bytes|B|[KMGTP]i?B)\b"
_SCALES = {"bytes": 0, "B": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

_START = re.compile(rf"\b(CUDA|HIP|XPU|NPU|MUSA|MLU|MTIA) out of memory\.? ?Tried to allocate {_SIZE}")
_ASYNC = re.compile(r"Allocation on device (\d+) would exceed allowed memory\. \(out of memory\)")
_BARE = re.compile(
    r"(CUDA|HIP) error: out of memory|cuda runtime error \(2\) ?: out of memory|CUBLAS_STATUS_ALLOC_FAILED"
    r"|cudaErrorMemoryAllocation|hipErrorOutOfMemory"
)
_NCCL = re.compile(r"NCCL WARN .*(Cuda|HIP) failure (?:\d+ )?'out of memory'")
_NCCL_SIZE = re.compile(r"NCCL WARN .*Failed to (?:CUDA|HIP) \w+(?: async)? (\d+) bytes")
_NCCL_PREFIX = re.compile(r"(\S+?):(\d+):\d+ \[(\d+)\]")

_CAPACITY = re.compile(rf"(?:GPU|NPU|XPU) (\d+) has a total capac?i?ty of {_SIZE} of which {_SIZE} is free")
_OLD_DEVICE = re.compile(rf"\((?:GPU|NPU|XPU) (\d+); {_SIZE} total capacity")
_PROCESS = re.compile(rf"Process (\d+) has {_SIZE} memory in use")
_PARTS = {
    "process_bytes": re.compile(rf"this process has {_SIZE} memory in use"),
    "limit_bytes": re.compile(rf"{_SIZE} allowed;"),
    "allocated_bytes": re.compile(rf"{_SIZE} (?:is allocated by PyTorch|already allocated)"),
    "private_bytes": re.compile(rf"with {_SIZE} allocated in private pools"),
    "unallocated_bytes": re.compile(rf"{_SIZE} (?:is reserved by PyTorch but unallocated|cached)"),
    "free_bytes": re.compile(rf"; {_SIZE} free;"),
    "reserved_bytes": re.compile(rf"{_SIZE} reserved in total by PyTorch"),
}
_ASYNC_PARTS = {
    "allocated_bytes": re.compile(rf"Currently allocated\s*: {_SIZE}"),
    "tried_bytes": re.compile(rf"Requested\s*: {_SIZE}"),
    "capacity_bytes": re.compile(rf"Device limit\s*: {_SIZE}"),
    "free_bytes": re.compile(rf"Free \(according to CUDA\)\s*: {_SIZE}"),
    "limit_bytes": re.compile(rf"^(?:\[[^\]]*\]:?)?\s*: {_SIZE}"),
}
_ASYNC_LINES = 7
_NO_LIMIT_BYTES = 1 << 60  # the limit that is none prints as 17179869184 GiB

_RANK = re.compile(r"\[rank ?(\d+)\]")
_LAUNCHER_RANK = re.compile(r"^\s*rank\s*: (\d+) \(local_rank: \d+\)")
_CONF = re.compile(r"\b(PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF)['\"]?\s*[=:]\s*['\"]?([A-Za-z_]+:[\w:,.\[\]<>*-]+)")
_HINT = re.compile(r"out of memory|to avoid fragmentation|try setting", re.IGNORECASE)
_FLUSHES = re.compile(r"(\d+) pytorch allocator cache flushes since last step")
_FIELDS = (
    "wording", "allocator", "platform", "device", "tried_bytes", "capacity_bytes", "free_bytes", "process_bytes",
    "other_bytes", "other_process", "other_largest_bytes", "allocated_bytes", "reserved_bytes", "unallocated_bytes",
    "private_bytes", "limit_bytes",
)  # fmt: skip


class OomText:
    """Reads a text line by line; `rows` and `settings` say what was found."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.flushes: list[int] = []
        """Allocator cache flushes that DeepSpeed counted, one number per warning."""
        self._rows: dict[tuple[Any, ...], Row] = {}
        self._async: Row | None = None
        self._async_left = 0
        self._nccl: Row | None = None
        self._launcher_rank: int | None = None

    def line(self, number: int, text: str) -> bool:
        """Read line `number` (from 1). True where it holds a message, a setting, or a part of one."""
        if "\x1b" in text:
            text = _ANSI.sub("", text)
        if self._async is not None and self._continue_async(text):
            return True
        if match := _START.search(text):
            self._add(_message(text, match), number, text)
        elif match := _ASYNC.search(text):
            self._async = {"device": int(match[1]), "wording": "async", "allocator": "cudaMallocAsync", "_line": number}
            self._async |= {"platform": "cuda", "_text": text}
            self._async_left = _ASYNC_LINES
        elif _NCCL.search(text) or _NCCL_SIZE.search(text):
            self._add_nccl(number, text)
        elif match := _BARE.search(text):
            allocator = "cublas" if "CUBLAS" in match[0] else "cuda"
            platform = "hip" if "hip" in match[0].lower() else "cuda"
            self._add({"wording": "bare", "allocator": allocator, "platform": platform}, number, text)
        elif match := _LAUNCHER_RANK.match(text):
            self._launcher_rank = int(match[1])
        elif match := _FLUSHES.search(text):
            self.flushes.append(int(match[1]))
        elif (match := _CONF.search(text)) and not _HINT.search(text):
            self.settings.setdefault(match[1], match[2])
        else:
            return False
        return True

    @property
    def rows(self) -> list[Row]:
        """Columns of `oom_messages` by name, in the order of the text."""
        self._finish_async()
        return list(self._rows.values())

    def _add(self, fields: Row, number: int, text: str) -> Row:
        ranks = _RANK.search(text)
        rank = int(ranks[1]) if ranks else self._launcher_rank
        key = tuple(fields.get(name) for name in _FIELDS)
        row = self._rows.setdefault(key, {"rank": None, "line": number, "count": 0, **fields})
        row["count"] += 1
        row["rank"] = rank if row["rank"] is None else row["rank"]
        return row

    def _continue_async(self, text: str) -> bool:
        assert self._async is not None
        self._async_left -= 1
        for name, pattern in _ASYNC_PARTS.items():
            if name not in self._async and (match := pattern.search(text)):
                size = _size(*match.groups())
                self._async[name] = None if name == "limit_bytes" and size >= _NO_LIMIT_BYTES else size
                if name == "limit_bytes":
                    self._finish_async()
                return True
        if self._async_left <= 0:
            self._finish_async()
        return "PyTorch limit" in text

    def _finish_async(self) -> None:
        if self._async is not None:
            row, self._async = self._async, None
            self._add({k: v for k, v in row.items() if k[0] != "_"}, row["_line"], row["_text"])

    def _add_nccl(self, number: int, text: str) -> None:
        prefix = _NCCL_PREFIX.search(text)
        device = int(prefix[3]) if prefix else None
        size = _NCCL_SIZE.search(text)
        if size and self._nccl is not None and self._nccl["tried_bytes"] is None and self._nccl["device"] == device:
            self._nccl["tried_bytes"] = int(size[1])
            return
        fields = {"wording": "driver", "allocator": "nccl", "platform": "hip" if "HIP failure" in text else "cuda"}
        self._nccl = self._add(fields | {"device": device, "tried_bytes": int(size[1]) if size else None}, number, text)


def _message(text: str, start: re.Match[str]) -> Row:
    """Fields of a one-line message of PyTorch's own allocator."""
    row: Row = {"allocator": "pytorch", "platform": start[1].lower(), "tried_bytes": _size(start[2], start[3])}
    rest = text[start.end() :]
    if device := _CAPACITY.search(rest):
        row |= {"device": int(device[1]), "capacity_bytes": _size(device[2], device[3])}
        row["free_bytes"] = _size(device[4], device[5])
    elif device := _OLD_DEVICE.search(rest):
        row |= {"device": int(device[1]), "capacity_bytes": _size(device[2], device[3])}
    for name, pattern in _PARTS.items():
        if match := pattern.search(rest):
            row[name] = _size(*match.groups())
    row["wording"] = "old" if _OLD_DEVICE.search(rest) else "current"
    allocated, reserved, unallocated = (
        row.get(name) for name in ("allocated_bytes", "reserved_bytes", "unallocated_bytes")
    )
    if allocated is not None and reserved is not None:
        row["unallocated_bytes"] = max(0, reserved - allocated)
    elif allocated is not None and unallocated is not None:
        row["reserved_bytes"] = allocated + unallocated
    return row | _others(row, {int(m[1]): _size(m[2], m[3]) for m in _PROCESS.finditer(rest)})


def _others(row: Row, processes: dict[int, int]) -> Row:
    """Use of other processes, and of this one where it is named like a stranger."""
    reserved, capacity, free = (row.get(name) for name in ("reserved_bytes", "capacity_bytes", "free_bytes"))
    own: Row = {}
    if "process_bytes" not in row and None not in (reserved, capacity, free) and processes:
        pid, used = max(processes.items(), key=lambda item: item[1])
        together = sum(processes.values()) + (reserved or 0)
        if used >= (reserved or 0) and together > (capacity or 0) - (free or 0) + (capacity or 0) // 100:
            own["process_bytes"] = used
            processes = {k: v for k, v in processes.items() if k != pid}
    if not processes:
        return own
    pid, used = max(processes.items(), key=lambda item: item[1])
    return own | {"other_bytes": sum(processes.values()), "other_process": pid, "other_largest_bytes": used}


def _size(number: str, unit: str) -> int:
    scale = _SCALES.get(unit, _SCALES.get(unit[0], 0))
    return round(float(number) * float(1 << 10 * scale))
