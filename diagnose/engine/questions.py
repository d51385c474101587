"""The three "wrong dimension" questions above the findings: yes, no, or unknown, with the figure behind it.

(1) Are TP and EP inside the fast domain? (2) Is the pipeline bubble acceptable? (3) Is the tight memory model state?
A dimension that no record names is unknown, not absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from diagnose import units
from diagnose.engine import collect
from diagnose.findings import Outcome

FAST_DOMAIN = "Are tensor and expert parallelism inside the fast domain?"
BUBBLE = "Is the pipeline bubble acceptable at this number of micro-batches?"
_CROSSING = ("tensor-parallel-crosses-nodes", "expert-parallel-crosses-nodes", "misaligned-groups")
MEMORY = "Is the tight memory model state (rather than activations)?"


def questions(outcomes: Sequence[Outcome], tables: Mapping[str, pa.Table]) -> list[dict[str, Any]]:
    """Three dicts with question, answer, figure and the ids of the rules behind the answer."""
    groups = tables["groups"].to_pylist() if "groups" in tables else []
    return [_fast_domain(outcomes, groups, tables), _bubble(outcomes, groups, tables), _memory(outcomes)]


def _answer(question: str, answer: str, figure: str, findings: Sequence[str] = ()) -> dict[str, Any]:
    return {"question": question, "answer": answer, "figure": figure, "findings": list(findings)}


def _fast_domain(
    outcomes: Sequence[Outcome], groups: Sequence[Mapping[str, Any]], tables: Mapping[str, pa.Table]
) -> dict[str, Any]:
    inner = [g for g in groups if g["dim"] in ("tp", "ep") and g["size"] != 1]
    if not inner:
        return _without(FAST_DOMAIN, groups, "no tensor- or expert-parallel group")
    fast = _setting(tables, "cluster.fast_domain")
    outside = [g for g in inner if _spans_slow(g, fast)]
    if outside:
        widest = max(outside, key=lambda g: g["node_count"])
        name = f"{widest['dim'].upper()} group {widest['group']} of {widest['size']} ranks"
        figure = f"{name} spans {widest['node_count']} nodes"
        found = [o.rule for o in outcomes if o.rule in _CROSSING and o.findings]
        return _answer(FAST_DOMAIN, "no", figure, found)
    if any(g["node_count"] is None for g in inner):
        return _answer(FAST_DOMAIN, "unknown", f"needed: {collect.for_column('groups.node_count')}")
    sizes = units.ranges([g["size"] for g in inner if g["size"] is not None])
    return _answer(
        FAST_DOMAIN, "yes", f"{len(inner)} groups of {sizes or 'unknown size'} ranks, each inside the fast domain"
    )


def _spans_slow(group: Mapping[str, Any], fast_ranks: int | None) -> bool:
    """More than one node, and more ranks than a fast domain (an NVL72 rack spans nodes) where that is given."""
    if group["node_count"] is None or group["node_count"] <= 1:
        return False
    return fast_ranks is None or group["size"] is None or bool(group["size"] > fast_ranks)


def _bubble(
    outcomes: Sequence[Outcome], groups: Sequence[Mapping[str, Any]], tables: Mapping[str, pa.Table]
) -> dict[str, Any]:
    outcome = next((o for o in outcomes if o.rule == "pipeline-bubble"), None)
    if outcome is not None and outcome.status == "found":
        return _answer(BUBBLE, "no", outcome.findings[0].summary, [outcome.rule])
    if outcome is not None and outcome.status == "clear":
        return _answer(BUBBLE, "yes", _small_bubble(tables))
    if not any(g["dim"] == "pp" and g["size"] != 1 for g in groups):
        return _without(BUBBLE, groups, "no pipeline group")
    return _answer(BUBBLE, "unknown", f"needed: {collect.for_table('pipeline')}")


def _small_bubble(tables: Mapping[str, pa.Table]) -> str:
    """What lies below the rule's threshold: no pipeline, a measured bubble, or the law for the settings."""
    rows = [row for row in tables["bubbles"].to_pylist() if row["analysed"]] if "bubbles" in tables else []
    if not rows:
        return "the bubble is below its threshold"
    first = rows[0]
    if first["stages_count"] == 1:
        return "one stage: no pipeline in this job"
    parts = f"{first['stages_count']} stages and {first['microbatches_count']} micro-batches"
    if not first["measured"]:
        return f"{parts}: {first['law_ratio']:.1%} of the step by the schedule's law, not measured"
    shares = [row["bubble_ratio"] for row in rows if row["bubble_ratio"] is not None]
    return f"{parts}: {sum(shares) / len(shares):.1%} of the step is the schedule's bubble, as measured"


_STATE, _ACTIVATIONS = ("state-dominates",), ("activations-dominate", "transient-peak")


def _memory(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """State: shard it (ZeRO); activations: recompute, sequence or context parallel. The wrong tool saves nothing."""
    found = {o.rule: o.findings[0] for o in outcomes if o.findings and o.rule in (*_STATE, *_ACTIVATIONS)}
    sides = {rule in _STATE for rule in found}
    if len(sides) == 1:
        rule, finding = max(found.items(), key=lambda item: item[1].lost_bytes)
        return _answer(MEMORY, "yes" if rule in _STATE else "no", finding.summary, list(found))
    if sides:
        figure = "it differs: " + "; ".join(finding.summary for finding in found.values())
        return _answer(MEMORY, "unknown", figure, list(found))
    deciders = [o for o in outcomes if o.rule in ("state-dominates", "activations-dominate")]
    if deciders and all(o.status == "clear" for o in deciders):
        return _answer(MEMORY, "unknown", "neither holds most of the memory whose use is known")
    return _answer(MEMORY, "unknown", f"needed: {collect.for_table('memory_parts')}")


def _without(question: str, groups: Sequence[Mapping[str, Any]], what: str) -> dict[str, Any]:
    """None recorded: that says something only where the dimension of every group of several ranks is known."""
    several = [g for g in groups if g["size"] != 1]
    if several and all(g["dim"] is not None and g["dim_source"] not in (None, "unknown") for g in several):
        return _answer(question, "yes", f"{what} in this job")
    return _answer(question, "unknown", f"needed: {collect.for_table('groups')}")


def _setting(tables: Mapping[str, pa.Table], key: str) -> int | None:
    if "settings" not in tables:
        return None
    values = [row["value"] for row in tables["settings"].to_pylist() if row["key"] == key]
    return int(values[0]) if values and str(values[0]).isdigit() else None
