"""How each part of a step is named, defined and coloured, everywhere the same.

Families, so that few colours do: computing is blue, communication is warm (darker for what is usually inside a node),
copies are teal, idle is violet to grey. Neighbouring lightness differs, so the families also survive colour blindness
and grey print. Waiting for a peer has its dimension's colour, hatched.
"""

from __future__ import annotations

from typing import NamedTuple

from diagnose.schema import COMM_DIMS, IDLE_CAUSES, PARTS


class Part(NamedTuple):
    """Words and colour of one part."""

    label: str
    meaning: str
    colour: str
    hatched: bool = False


_DIM_NAMES = {"tp": "TP", "cp": "CP", "ep": "EP", "pp": "PP", "dp": "DP", "other": "other"}
_DIM_COLOURS = {"tp": "#9c3d10", "cp": "#bd5a1a", "ep": "#d9822b", "pp": "#c2a12a", "dp": "#e2703a", "other": "#c98f6b"}
_DIM_WORDS = {
    "tp": "tensor-parallel",
    "cp": "context-parallel",
    "ep": "expert-parallel",
    "pp": "pipeline",
    "dp": "data-parallel",
    "other": "of a group whose dimension is unknown",
}
_IDLE = {
    "input": Part("input wait", "device idle, the host waited for the data loader", "#6a51a3"),
    "gc": Part("garbage collection", "device idle during Python's garbage collection", "#b05c9a"),
    "alloc": Part("allocation", "device idle during cudaMalloc or cudaFree", "#d08bbd"),
    "sync": Part(
        "after a sync", "device idle because the host had waited for it: a blocking synchronise or .item()", "#8f7fc4"
    ),
    "launch": Part("late launch", "device idle, the host issued the next kernel late", "#66758f"),
    "idle": Part("unexplained idle", "device idle, no cause found", "#b3bbc8"),
}


def _comm(dim: str) -> dict[str, Part]:
    name, words, colour = _DIM_NAMES[dim], _DIM_WORDS[dim], _DIM_COLOURS[dim]
    exposed = f"communication {words}" if dim == "other" else f"{words} communication"
    return {
        f"{dim}_wait": Part(f"{name} wait", f"exposed {exposed}, until the last peer arrived", colour, True),
        f"{dim}_transfer": Part(f"{name} transfer", f"exposed {exposed}, after the last peer arrived", colour),
        f"{dim}_comm": Part(
            f"{name} comm", f"exposed {exposed}: no compute ran; waiting and transfer together", colour
        ),
    }


PARTS_SHOWN: dict[str, Part] = {
    "compute": Part("compute", "any compute kernel ran; communication under it is hidden", "#4a80c4"),
    **{key: part for dim in COMM_DIMS for key, part in _comm(dim).items()},
    "comm": Part("communication", "communication of any dimension", _DIM_COLOURS["dp"]),
    "unclassified": Part(
        "unclassified", "only kernels that are neither known compute nor known communication", "#c0679b"
    ),
    "copy": Part("copy", "only copies or memory sets ran", "#2a9d8f"),
    **_IDLE,
}
"""Part -> its words and colour, in order of precedence."""

IDLE_PARTS = IDLE_CAUSES


def part(key: str) -> Part:
    """Words and colour of `key`; a part of a later version keeps its own name in grey."""
    return PARTS_SHOWN.get(key) or Part(key, "a part that this version does not know", "#b3bbc8")


def in_order(parts: list[dict[str, object]]) -> list[dict[str, object]]:
    """Parts sorted by precedence; unknown ones last."""
    place = {key: i for i, key in enumerate(PARTS)}
    return sorted(parts, key=lambda p: place.get(str(p["part"]), len(place)))
