"""Settings of mixtures of experts that frameworks print at the start, as `settings` keyed `moe.<name>`.

Megatron-LM prints all its arguments (`moe_aux_loss_coeff ..... 0.001`); wrappers print them as `key = value` or `key:
value`, DeepSpeed and others as parts of their configuration. Values are text as printed; `None` means that the feature
is off (a capacity factor of None drops nothing). What a setting means to the job is judged in `moe_setup`.
"""

from __future__ import annotations

import re
from typing import Any

from diagnose.ingest.text._lines import Lines
from diagnose.schema import INGESTED, Tables
from diagnose.schema.moe import SETTING_NAMES as NAMES

MARK = rf"(?:^|[\s\['\"])(?:{'|'.join(NAMES)})['\"\]]?(?: \.{{3,}} | ?[=:] ?)"
_PAIR = re.compile(
    rf"(?:^|[\s\['\"])({'|'.join(NAMES)})['\"\]]?(?: \.{{3,}} | ?[=:] ?)(\[[^\]]*\]|['\"]?[\w.+-]+['\"]?)"
)


class Reader:
    """The last printed value of every setting."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def feed(self, lines: Lines) -> int:
        """Read lines with settings; how many there were. Notes on ignored keys are no settings."""
        known = 0
        for _, text in lines.rows():
            if "gnored" in text:
                continue
            for name, value in _PAIR.findall(text):
                self.found[f"moe.{NAMES[name]}"] = value.strip("'\"")
                known += 1
        return known

    def tables(self, path: str) -> Tables:
        """`settings` rows."""
        rows: dict[str, Any] = {"key": list(self.found), "value": list(self.found.values())}
        return {"settings": INGESTED["settings"].build(rows | {"source": [path] * len(self.found)})}
