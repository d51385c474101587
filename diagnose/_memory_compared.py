"""Memory that the formulas give for the job described, against what the run held, part by part.

At the failure, else at the peak, of the fullest device of which the whole is known. What nothing tells apart may belong
to any part, so a part is short only by what even all of the unknown could not fill; it is over by what it surely holds
more. Formulas know no cache and no fragmentation: of these only the measured size is given. Memory outside PyTorch is
compared where the device's use was recorded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

PREDICTED = ("parameters", "gradients", "optimizer", "activations", "comm_buffers", "non_torch")
UNPREDICTED = ("fragmentation", "cached")


def compared(rows: list[dict[str, Any]], predicted: Mapping[str, float]) -> dict[str, Any] | None:
    """`predicted`: bytes by part. None where no recording shows the memory of a whole device."""
    held: dict[tuple[Any, ...], dict[str, int]] = defaultdict(dict)
    for row in rows:
        if row["moment"] in ("oom", "peak") and row["whole"] is not False:
            held[row["moment"], row["rank"], row["device"]][row["part"]] = row["bytes"]
    if not held:
        return None
    failed = [key for key in held if key[0] == "oom"]
    key = max(failed or held, key=lambda k: (sum(held[k].values()), str(k)))
    measured = held[key]
    unknown = measured.get("unknown", 0)
    names = [name for name in PREDICTED if name != "non_torch" or name in measured]
    parts = [_part(name, round(predicted[name]), measured.get(name, 0), unknown) for name in names]
    parts += [
        {"part": name, "predicted_bytes": None, "measured_bytes": measured[name], "difference_bytes": None}
        for name in UNPREDICTED
        if name in measured
    ]
    return {
        "moment": key[0],
        "rank": key[1],
        "device": key[2],
        "predicted_bytes": sum(round(predicted[name]) for name in names),
        "measured_bytes": sum(measured.values()),
        "unknown_bytes": unknown,
        "parts": parts,
    }


def _part(name: str, predicted: int, measured: int, unknown: int) -> dict[str, Any]:
    """`difference_bytes`: more (positive) or less than predicted; null where the unknown could make up for it."""
    more = measured - predicted
    if more <= 0:
        short = more + unknown
        difference = short if short < 0 or not unknown else None
    else:
        difference = more
    return {"part": name, "predicted_bytes": predicted, "measured_bytes": measured, "difference_bytes": difference}
