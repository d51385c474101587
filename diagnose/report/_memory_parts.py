"""How each part of memory is named, defined and coloured: state blue to violet, activations warm, losses pink."""

from __future__ import annotations

from diagnose.report._parts import Part

MEMORY_PARTS: dict[str, Part] = {
    "parameters": Part("parameters", "weights, and their 16-bit or gathered copies that live on", "#4a80c4"),
    "gradients": Part("gradients", "gradients that live until the optimizer step", "#2a9d8f"),
    "optimizer": Part("optimizer", "states and master weights of the optimizer, and its temporaries", "#6a51a3"),
    "activations": Part("activations", "kept for backward, recomputed, or temporaries of backward", "#e2703a"),
    "comm_buffers": Part("communication buffers", "gathered shards, gradient buckets, dispatch buffers", "#c2a12a"),
    "fragmentation": Part(
        "fragmentation",
        "free, but in segments that hold a live block: only fitting requests can use it",
        "#c0679b",
        True,
    ),
    "cached": Part("cached", "wholly free segments: any request can use them, empty_cache() returns them", "#b3bbc8"),
    "non_torch": Part("outside PyTorch", "CUDA context, NCCL, libraries, other processes", "#66758f"),
    "unknown": Part("unknown", "in use, but nothing tells for what", "#8a8f99", True),
}
"""Part -> words and colour, in the order in which they are stacked."""


SPACES: dict[str, Part] = {
    "live": Part("live blocks", "in use", "#4a80c4"),
    "largest_hole": Part("largest hole", "what the largest request can be that fits here", "#c0679b"),
    "smaller_holes": Part("smaller holes", "free, in smaller pieces", "#c0679b", True),
}
"""What a segment consists of."""


def memory_part(key: str) -> Part:
    """Words and colour of `key`; a part of a later version keeps its own name in grey."""
    return MEMORY_PARTS.get(key) or SPACES.get(key) or Part(key, "a part that this version does not know", "#b3bbc8")
