"""Golden values of Megatron-LM's functional tests (JSON: metric -> steps and values) as `series`.

They are what one run logged to TensorBoard, metric by metric: `{"lm loss": {"start_step": 1, "step_interval": 5,
"values": {"1": 10.8, ...}}}`, in older versions with `values` as a list. Times are seconds though unsaid
(`iteration-time`). No rank is named.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, quality
from diagnose.schema import INGESTED, Tables

_SIGN = re.compile(rb'^\s*\{\s*"[^"]{1,80}"\s*:\s*\{\s*"(?:start_step|end_step|step_interval|values)"\s*:')
_MAX_BYTES = 256 << 20


def sniff(head: bytes, name: str) -> bool:
    """Whether the first metric of a JSON object has steps and values."""
    return bool(_SIGN.match(head)) and b'"step_interval"' in head[:4096]


def read(source: Source, options: Options) -> Tables:
    """`series` of every metric. InputError where it is cut or holds no numbers."""
    data = source.whole(_MAX_BYTES, "golden values of more than 256 MiB", "a smaller file")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(source.label, "golden values that do not parse", "a whole file", "copy it again") from error
    step: list[int] = []
    metric: list[str] = []
    value: list[float] = []
    lost = 0
    for name, given in document.items():
        pairs = _pairs(given) if isinstance(given, dict) else []
        kept = [(s, v) for s, v in pairs if v is not None]
        lost += len(pairs) - len(kept)
        step += [s for s, _ in kept]
        value += [v for _, v in kept if v is not None]
        metric += [name] * len(kept)
    if not step:
        raise InputError(source.label, "golden values without numbers", "metrics with values", "leave it out")
    note = {"problem": "unparsed_value", "path": source.label, "count": lost, "detail": "values that are no numbers"}
    files = {"file": 0, "path": source.label, "kind": "series", "events_count": len(step), "status": "ok", "detail": ""}
    return {
        "files": INGESTED["files"].build({key: [v] for key, v in files.items()}),
        "series": INGESTED["series"].build({"step": step, "metric": metric, "value": value}),
        "quality": quality([note] if lost else []),
    }


def _pairs(given: dict[str, Any]) -> list[tuple[int, float | None]]:
    values = given.get("values")
    if isinstance(values, dict):
        return [(int(key), _number(v)) for key, v in values.items() if str(key).isdecimal()]
    first, apart = given.get("start_step", 0), given.get("step_interval", 1)
    if isinstance(values, list) and isinstance(first, int) and isinstance(apart, int):
        return [(first + apart * at, _number(v)) for at, v in enumerate(values)]
    return []


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)
