"""Values of router records: whole numbers, layers, and counts per expert in the many ways they are written."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diagnose.ingest.expert_counts import _names as names

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_LIST = re.compile(r"^\s*(?:tensor|array|torch\.Tensor)?\s*\(?\s*\[([\s\d.,eE+-]*)\]")
_DIGITS = re.compile(r"(\d+)\D*$")
_PERCENT_ERROR = 0.5
"""Percentages that do not sum to 100 within this are of something else."""
_ROUND_ERROR = 1e-3


class RefusedError(Exception):
    """Counts that cannot be read; the message is the reason."""


def layer(value: Any) -> int | None:
    """Number of a layer, also where it ends a name (`model.layers.3`)."""
    found = whole(value)
    if found is None and isinstance(value, str) and (match := _DIGITS.search(value)):
        return int(match[1])
    return found


def maybe(value: Any) -> float | None:
    """A finite number, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def whole(value: Any) -> int | None:
    """A whole number, or None; true and false are none."""
    number = None if isinstance(value, bool) else maybe(value)
    return int(number) if number is not None and number == int(number) else None


def number(value: Any) -> float:
    """A finite number. RefusedError for anything else."""
    number = None if isinstance(value, bool) else maybe(value)
    if number is None:
        raise RefusedError("counts that are no numbers")
    return number


def lists(value: Any) -> list[tuple[int | None, Ints, Floats]]:
    """(layer where nested, experts, numbers) of what was recorded as counts. RefusedError where it is none."""
    if isinstance(value, str):
        value = _parsed(value)
    if isinstance(value, list) and value and all(isinstance(v, list) for v in value):
        return [(n, *_flat(v)) for n, v in enumerate(value)]
    if isinstance(value, dict) and value and all(isinstance(v, (list, dict)) for v in value.values()):
        return [(layer(k), *_flat(v)) for k, v in value.items()]
    return [(None, *_flat(value))]


def _flat(value: Any) -> tuple[Ints, Floats]:
    if isinstance(value, dict) and value:
        places = [_DIGITS.search(str(k)) for k in value]
        if None in places:
            raise RefusedError("counts by names that hold no number of an expert")
        return np.array([int(p[1]) for p in places if p], np.int64), np.array([number(v) for v in value.values()])
    if isinstance(value, list) and value:
        if set(map(type, value)) <= {int, float}:  # nearly always, and quicker than one by one
            return np.arange(len(value)), np.array(value, np.float64)
        return np.arange(len(value)), np.array([number(v) for v in value], np.float64)
    if isinstance(value, float) and math.isnan(value):
        raise RefusedError("nan in place of counts")
    raise RefusedError("counts that are neither a list nor an object")


def _parsed(text: str) -> Any:
    if match := _LIST.match(text):
        return [float(v) for v in re.split(r"[\s,]+", match[1].strip(" ,")) if v]
    try:
        return json.loads(text.replace("'", '"')) if text.lstrip()[:1] in ("{", "[") else None
    except ValueError:
        return None


def counts(kind: str, numbers: Floats, facts: dict[str, Any], *, partial: bool = False) -> Floats:
    """Numbers as whole counts. RefusedError where they are none; `partial`: percentages of single experts."""
    if not np.isfinite(numbers).all() or (numbers < 0).any():
        raise RefusedError("counts below zero or not finite")
    if kind == names.PERCENT:
        total = facts["tokens_entered_count"]
        if total is None:
            raise RefusedError("percentages without their total")
        if not partial and abs(numbers.sum() - 100) > _PERCENT_ERROR:
            raise RefusedError("percentages that do not sum to 100")
        assigned: Floats = np.rint(numbers / 100 * total * (facts["topk"] or 1))
        return assigned
    if np.abs(numbers - np.rint(numbers)).max(initial=0) > _ROUND_ERROR:
        raise RefusedError("counts that are no whole numbers (shares or means?)")
    return numbers


def first_expert(key: str, value: Any, facts: dict[str, Any]) -> int:
    """Number of the first expert in a list about this rank's own experts."""
    if not ("local_expert" in key or key.startswith("received")):
        return 0
    if facts["ep_rank"] is None or not isinstance(value, list):
        raise RefusedError("counts of a rank's own experts without its expert-parallel rank")
    return int(facts["ep_rank"]) * len(value)
