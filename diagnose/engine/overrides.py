"""Thresholds that the user changes: `--set rule.param=value`, typed like the parameter's default."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from diagnose.engine.load import suggest
from diagnose.errors import UsageError
from diagnose.findings import Rule


def typed(rules: Iterable[Rule], overrides: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """{"rule.param": value} as {rule: {param: value}} with values of the defaults' types.

    Raises UsageError for an unknown rule or parameter, or a value of another type.
    """
    known = {rule.id: rule for rule in rules}
    result: dict[str, dict[str, Any]] = {}
    for target, value in overrides.items():
        rule_id, dot, name = target.strip().partition(".")
        text = f"--set {target}={value}"
        if not dot:
            raise UsageError(f"{text}: write rule.param=value, such as comm-share.min_share_ratio=0.2")
        if rule_id not in known:
            raise UsageError(f"{text}: no rule {rule_id!r}{suggest(rule_id, known)}; `diagnose rules` lists all")
        params = known[rule_id].params
        if name not in params:
            hint = suggest(name, params) or f"; it has {', '.join(params) or 'no parameters'}"
            raise UsageError(f"{text}: rule {rule_id} has no parameter {name!r}{hint}")
        result.setdefault(rule_id, {})[name] = _typed(text, str(value).strip(), params[name]["default"])
    return result


def _typed(text: str, value: str, default: Any) -> Any:
    if isinstance(default, str):
        return value
    if isinstance(default, bool):
        if value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise UsageError(f"{text}: expected true or false")
    try:
        number = float(value)
    except ValueError:
        raise UsageError(f"{text}: expected a number, such as {default}") from None
    if not math.isfinite(number):
        raise UsageError(f"{text}: expected a finite number, such as {default}")
    if isinstance(default, float):
        return number
    if not number.is_integer():
        raise UsageError(f"{text}: expected a whole number, such as {default}")
    return int(value) if re.fullmatch(r"[+-]?\d+", value) else int(number)
