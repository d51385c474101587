"""A rule in words, for `diagnose rules ID`."""

from __future__ import annotations

import textwrap

from diagnose import units
from diagnose.findings import Rule

WIDTH = 100


def explain(rule: Rule) -> str:
    """What the rule looks for, why it matters, what to change, when it stays quiet, its thresholds and their origin."""
    lines = [
        f"{rule.id}: {rule.title}",
        f"symptom {rule.symptom}, {rule.severity}" + (", decides whether the symptom is clear" if rule.decides else ""),
    ]
    for heading, text in (
        ("why", rule.why),
        ("fix", rule.fix),
        ("quiet when", rule.quiet_when),
        ("collect", rule.collect),
    ):
        if text:
            lines += ["", heading, _wrap(text)]
    needs = [*rule.needs, *(f"{name} (a value)" for name in rule.needs_values)]
    lines += ["", "needs", _wrap(", ".join(needs))]
    if rule.params:
        lines += ["", f"parameters (change with --set {rule.id}.NAME=VALUE)"]
        for name, param in rule.params.items():
            default = param["default"]
            lines.append(_wrap(f"{name} = {default} ({units.show(name, default)}): {param['doc']}"))
    lines += ["", "sources", *(f"  {source}" for source in rule.sources)]
    return "\n".join(lines)


def _wrap(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
