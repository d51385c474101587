"""The five collapse symptoms: found, clear, or unknown with the file that would settle it.

Found: any finding of at least `warning`. Clear: every rule of the symptom whose header says `decides` ran clear, and
there is at least one. Otherwise unknown. Clear does not mean fast, only that this symptom's causes were looked for
and not met. The loss is that of the largest finding, never a sum: findings of one symptom overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from diagnose.engine import collect
from diagnose.findings import SEVERITIES, SYMPTOMS, Outcome, Symptom
from diagnose.schema import PROBLEMS
from diagnose.units import show

ACT_ON = SEVERITIES.index("warning")

WORTH_SAYING = 0.03
"""Of the step: waiting below it is no news; as in `late-rank`."""

COMPARE_RANKS = ("late-rank",)
"""Only these look over several ranks; without one of them clear, `low_speedup` of a job of several ranks stays open."""


def symptoms(outcomes: Sequence[Outcome], tables: Mapping[str, pa.Table]) -> list[Symptom]:
    """Answers to all five questions, in the published order."""
    return [_symptom(name, [o for o in outcomes if o.symptom == name], tables) for name in SYMPTOMS]


def _symptom(name: str, outcomes: Sequence[Outcome], tables: Mapping[str, pa.Table]) -> Symptom:
    findings = [f for o in outcomes for f in o.findings if SEVERITIES.index(f.severity) >= ACT_ON]
    if findings:
        worst = max(findings, key=lambda f: (f.lost_ns, f.lost_bytes, SEVERITIES.index(f.severity)))
        lost_bytes = max(f.lost_bytes for f in findings)
        titles = "; ".join(dict.fromkeys(f.title for f in sorted(findings, key=lambda f: -f.lost_ns)))
        return Symptom(name, "found", worst.lost_ns, worst.lost_ratio, lost_bytes or None, titles)
    deciders = [o for o in outcomes if o.decides]
    unsettled = [o for o in deciders if o.status in ("skipped", "failed")]
    if not deciders:
        return _unknown(name, f"nothing in these inputs settles it{collect.NEEDED}{collect.for_symptom(name)}")
    if unsettled:
        return _unknown(name, _why_open(unsettled, tables))
    if name == "low_speedup" and not _ranks_compared(outcomes, tables):
        seen = "no local cause on the ranks seen; ranks were not compared"
        return _unknown(name, seen + collect.NEEDED + collect.for_symptom(name))
    clear = ", ".join(o.rule for o in deciders)
    return Symptom(name, "clear", 0, 0.0, None, f"looked for and not met: {clear}{_waits(name, tables)}")


def _waits(name: str, tables: Mapping[str, pa.Table]) -> str:
    """For `comm_saturation`: that most communication time is waiting, where it is. Time waited is not saturation."""
    spans = tables.get("spans")
    if name != "comm_saturation" or spans is None or not spans.num_rows:
        return ""
    per_rank = spans.group_by("rank").aggregate([("wait_ns", "mean"), ("comm_ns", "mean"), ("mean_ns", "max")])
    worst = max(per_rank.to_pylist(), key=lambda row: row["wait_ns_mean"] or 0.0)
    wait, transfer = worst["wait_ns_mean"] or 0.0, worst["comm_ns_mean"] or 0.0
    if wait <= max(transfer, WORTH_SAYING * (worst["mean_ns_max"] or 0)):
        return ""
    said = f"{show('_ns', round(wait))} of rank {worst['rank']}, {show('_ns', round(transfer))} of transfer"
    return f"; most communication time is waiting for other ranks ({said}), which low_speedup answers"


def _unknown(name: str, reason: str) -> Symptom:
    return Symptom(name, "unknown", None, None, None, reason)


def _why_open(unsettled: Iterable[Outcome], tables: Mapping[str, pa.Table]) -> str:
    """What the rules that could not answer lack, each thing once."""
    causes, needed = [], []
    for outcome in unsettled:
        cause, _, file = outcome.reason.partition(collect.NEEDED)
        causes.append(f"{outcome.rule} failed: {cause}" if outcome.status == "failed" else cause)
        needed += [file] if file else []
    text = "; ".join(_blind(tables) or dict.fromkeys(causes))
    shortest = [file for file in dict.fromkeys(needed) if not any(o != file and file.startswith(o) for o in needed)]
    return text + (collect.NEEDED + ", and ".join(shortest) if needed else "")


def _blind(tables: Mapping[str, pa.Table]) -> list[str]:
    """What the ingester already knows to be missing from every time figure."""
    quality = tables.get("quality")
    if quality is None:
        return []
    rows = zip(quality["problem"].to_pylist(), quality["detail"].to_pylist(), strict=True)
    return list(dict.fromkeys(detail or PROBLEMS[slug] for slug, detail in rows if slug == "gpu_events_missing"))


def _ranks_compared(outcomes: Iterable[Outcome], tables: Mapping[str, pa.Table]) -> bool:
    """A job of one rank has nothing to compare; of more, a rule that compares ranks must have run clear."""
    if any(o.rule in COMPARE_RANKS and o.status == "clear" for o in outcomes):
        return True
    files = tables.get("files")
    return files is not None and files.num_rows > 0 and set(files["world_size"].to_pylist()) == {1}
