"""Out-of-memory messages, allocator settings and cache flushes in a log.

What a message says, and what not, stands in `_oom_lines`.
"""

from __future__ import annotations

from diagnose.ingest.text._lines import Lines
from diagnose.ingest.text._oom_lines import OomText
from diagnose.schema import INGESTED, Tables

_SIZE = r"[\d.]+ [KMGTP]?i?B"
MARK = (
    r"\b(?:CUDA|HIP|XPU|NPU|MUSA|MLU|MTIA) (?:error: )?out of memory|failure (?:\d+ )?'out of memory'"
    r"|runtime error \(2\) ?: out of memory|NCCL WARN .*Failed to (?:CUDA|HIP)|CUBLAS_STATUS_ALLOC_FAILED"
    r"|cudaErrorMemoryAllocation|hipErrorOutOfMemory|would exceed allowed memory"
    rf"|(?:Currently allocated|Requested|Device limit|Free \(according to CUDA\))\s*: {_SIZE}"
    rf"|PyTorch limit \(set by|^(?:\[[^\]]*\]:?)?\s+: {_SIZE}"
    r"|PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF['\x22]?\s*[=:]|pytorch allocator cache flushes"
    r"|^\s*rank\s*: \d+ \(local_rank: \d+\)"
)


class Reader:
    """Collects the messages of one document."""

    def __init__(self) -> None:
        self.text = OomText()

    def feed(self, lines: Lines) -> int:
        """Read lines; those of launchers and settings count too."""
        return sum(self.text.line(number, text) for number, text in lines.rows())

    def tables(self, path: str) -> Tables:
        """Messages, and what the log shows of the allocator's settings and troubles."""
        rows = {"oom_messages": self.text.rows}
        rows["settings"] = [{"key": k, "value": v, "source": path} for k, v in self.text.settings.items()]
        if flushes := self.text.flushes:
            detail = f"{sum(flushes)} allocator cache flushes in {len(flushes)} warnings"
            rows["log_events"] = [
                {"kind": "allocator_flushes", "level": "WARNING", "detail": detail, "count": sum(flushes)}
            ]
        return {name: INGESTED[name].of_rows(found) for name, found in rows.items() if found}
