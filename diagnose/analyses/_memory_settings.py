"""What the job's settings and call stacks say about expandable segments: on or off, and who cannot live with them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_CONFLICTS = (
    ("DeepEP", r"deep_ep|deepep"),
    ("vLLM's memory pool", r"cumem|vllm[/\\._].*(sleep|mem_pool|device_allocator)"),
    ("CUDA IPC", r"cuda_?ipc|_share_cuda_|reductions\.py:\d+ reduce_tensor|custom_all_reduce"),
    ("a CUDA memory pool (MemPool)", r"use_mem_pool|\bMemPool\b"),
)
"""Their memory is shared by IPC handle or comes from a pool of its own: virtual-memory segments offer neither."""


def expandable_setting(settings: pa.Table | None) -> bool | None:
    """What PYTORCH_*ALLOC_CONF says about expandable segments; None where it is not among the settings."""
    if settings is None:
        return None
    for key, value in zip(settings["key"].to_pylist(), settings["value"].to_pylist(), strict=True):
        if key and key.endswith("ALLOC_CONF") and "expandable_segments" in (value or ""):
            return "expandable_segments:true" in value.replace(" ", "").lower()
        if key == "allocator.expandable_segments" and value == "true":
            return True
    return None


def conflicts(settings: pa.Table | None, stacks: pa.Table | None) -> str | None:
    """Names of what was seen in the job that expandable segments break."""
    texts = [stacks["frames"]] if stacks is not None else []
    if settings is not None:
        texts += [settings["key"], settings["value"]]
    found = [
        name
        for name, pattern in _CONFLICTS
        if any(pc.any(pc.match_substring_regex(column.fill_null(""), f"(?i){pattern}")).as_py() for column in texts)
    ]
    return " and ".join(found) or None
