"""The product: what a diagnosis says, as plain values. JSON, terminal text and HTML are renderings of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA_VERSION = 1

SYMPTOMS: dict[str, str] = {
    "comm_saturation": "More GPUs made it slower",
    "drifting_throughput": "Slower and slower over steps",
    "low_speedup": "N GPUs give far less than N times",
    "moe_drop": "MoE drops tokens or uses few experts",
    "oom_despite_headroom": "Out of memory despite headroom",
}
"""Symptom id -> the same in users' words."""

SEVERITIES = ("info", "warning", "critical")


@dataclass(frozen=True)
class Rule:
    """One check: a SELECT that returns its offenders, with the words around it."""

    id: str
    symptom: str
    title: str
    severity: str
    needs: tuple[str, ...]
    needs_values: tuple[str, ...]
    decides: bool
    summary: str
    why: str
    fix: str
    quiet_when: str
    sources: tuple[str, ...]
    params: dict[str, dict[str, Any]]
    sql: str
    general: bool = False
    """It names a total, or the price of a layout; findings of its symptom that explain much of it stand before it."""
    collect: str = ""
    """What the user should record so that this rule can answer, when it is skipped."""


@dataclass(frozen=True)
class Finding:
    """One offender that a rule returned. `lost_ns` is per step; None where it is not a time loss."""

    rule: str
    symptom: str
    severity: str
    title: str
    summary: str
    lost_ns: int
    lost_kind: str
    lost_ratio: float | None
    lost_bytes: int
    confidence_ratio: float
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    steps: tuple[int, ...]
    evidence: dict[str, Any]
    why: str
    fix: str


@dataclass(frozen=True)
class Outcome:
    """What came of one rule: found | clear | skipped | failed; the reason says what is missing or wrong."""

    rule: str
    symptom: str
    status: str
    reason: str
    findings: tuple[Finding, ...] = ()
    decides: bool = False
    general: bool = False
    """Whether the rule's `clear` counts for its symptom."""


@dataclass(frozen=True)
class Symptom:
    """The answer to one of the five questions."""

    symptom: str
    status: str
    lost_ns: int | None
    lost_ratio: float | None
    lost_bytes: int | None
    reason: str


@dataclass(frozen=True)
class Diagnosis:
    """Everything a run of `diagnose` found; `to_dict()` is the JSON product (schema_version 1).

    Field contents are JSON-ready dicts with the keys of the published JSON schema
    (`diagnose/diagnosis.schema.json`).
    """

    tool: dict[str, str]
    inputs: list[dict[str, Any]]
    job: dict[str, Any]
    quality: list[dict[str, Any]]
    step_time: dict[str, Any]
    window: dict[str, Any]
    symptoms: list[Symptom]
    questions: list[dict[str, Any]]
    findings: list[Finding]
    outcomes: list[Outcome]
    memory: list[dict[str, Any]] = field(default_factory=list)
    plan: dict[str, Any] | None = None
    plan_reason: str = ""
    """Why `plan` is None, in one line; empty where there is a plan."""
    tables: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Arrow tables behind the diagnosis, by name; not part of the JSON."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON product: plain dicts and lists in the published order of keys."""
        outcomes = [{"rule": o.rule, "status": o.status, "reason": o.reason} for o in self.outcomes]
        return {
            "schema_version": SCHEMA_VERSION,
            "tool": self.tool,
            "inputs": self.inputs,
            "job": self.job,
            "quality": self.quality,
            "step_time": self.step_time,
            "window": self.window,
            "symptoms": [asdict(s) for s in self.symptoms],
            "questions": self.questions,
            "findings": [_plain(asdict(f)) for f in self.findings],
            "outcomes": outcomes,
            "memory": self.memory,
            "plan": self.plan,
            "plan_reason": self.plan_reason,
        }

    def to_json(self) -> str:
        """`to_dict()` as indented JSON text."""
        import json

        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)

    def frame(self, name: str) -> Any:
        """Table `name` as a pandas DataFrame. Raises KeyError where this diagnosis has no such table."""
        return self.tables[name].to_pandas()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return list(value) if isinstance(value, tuple) else value
