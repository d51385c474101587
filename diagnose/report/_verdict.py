"""The verdict in words: what costs most, the facts behind it, what to change first, what that wins back.

The biggest finding speaks, never a part of the step on its own: a large part is a cost, not yet a fault. Losses are
upper bounds unless a what-if simulated them, and are worded so. GPU-hours a day = lost share of the step x GPUs of
the job x 24 h; left out where the job's size is unknown.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from diagnose.findings import SYMPTOMS, Diagnosis, Finding, Symptom
from diagnose.report._hang import RULE, facts, foremost, headline
from diagnose.report._parts import IDLE_PARTS, in_order, part
from diagnose.report._text import clean, first_sentences
from diagnose.units import show

COLLECT_ORDER = ("low_speedup", "comm_saturation", "drifting_throughput", "oom_despite_headroom", "moe_drop")
"""Which open symptom to settle first: those that most jobs have."""

WORTH_NAMING = 1.02
"""The longest rank over the mean of all, from which a reader would take them for two different steps."""


class Verdict(NamedTuple):
    """`tone`: found | clear | unknown. `facts`: (label, sentence), few. `cost` and on: empty without a finding."""

    tone: str
    headline: str
    facts: tuple[tuple[str, str], ...]
    cost: str = ""
    change: str = ""
    worth: str = ""
    rule: str = ""


def verdict(diagnosis: Diagnosis) -> Verdict:
    """The answer of the whole diagnosis."""
    top = next((f for f in foremost(diagnosis.findings) if f.severity != "info"), None)
    if top is None:
        return _nothing(diagnosis)
    of_each = f" {_whole(diagnosis, top)}" if top.lost_ns else ""
    text = (headline(diagnosis, top) if top.rule == RULE else "") or clean(top.title)
    change, won = clean(top.fix), worth(diagnosis, top)
    return Verdict("found", text, _behind(diagnosis, top), f"{loss(top)}{of_each}", change, won, top.rule)


def _behind(diagnosis: Diagnosis, top: Finding) -> tuple[tuple[str, str], ...]:
    """What stands behind the headline: nothing about time where none was measured and none is claimed."""
    next_ = _next(diagnosis, top)
    if top.rule == RULE:
        return (*facts(diagnosis, top), *next_)
    known = [("Cause", clean(top.summary))]
    if measured(diagnosis)[0]:
        return (*known, ("Step", composition(diagnosis)), *(next_ or [("Comm", communication(diagnosis))]))
    if not (top.lost_ns or top.lost_bytes or top.symptom == "oom_despite_headroom"):
        known.append(("Cost", "unknown: no time was recorded; a torch.profiler trace of the same job tells it"))
    return (*known, *next_)


def loss(finding: Finding) -> str:
    """What a finding costs: `up to 13.1 ms (21.4 %)`, `about 2.0 GiB`, or nothing."""
    about = "about" if finding.lost_kind == "simulated" else "up to"
    if finding.lost_ns:
        ratio = f" ({show('_ratio', finding.lost_ratio)})" if finding.lost_ratio is not None else ""
        return f"{about} {show('lost_ns', finding.lost_ns)}{ratio}"
    return f"{about} {show('lost_bytes', finding.lost_bytes)}" if finding.lost_bytes else ""


def worth(diagnosis: Diagnosis, finding: Finding) -> str:
    """GPU-hours a day that go with the finding; empty where the job's size or the lost share is unknown."""
    gpus = diagnosis.job.get("world_size")
    if not finding.lost_ns or not gpus or finding.lost_ratio is None:
        return ""
    hours = finding.lost_ratio * gpus * 24
    shown = f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}"
    about = "about" if finding.lost_kind == "simulated" else "up to"
    unit = "GPU" if diagnosis.job.get("gpu") else "rank"  # a job without GPUs has ranks all the same
    assumed = ", if all are like the one seen" if gpus > 1 and len(diagnosis.job["ranks_seen"]) == 1 else ""
    return f"{about} {shown} of {gpus * 24:,} {unit}-hours a day on {gpus:,} {unit}{'s' * (gpus > 1)}{assumed}"


def composition(diagnosis: Diagnosis, most: int = 4) -> str:
    """The mean step (or the recording) as its largest parts: `61.2 ms (mean of 4 steps) = 68.1 % compute + ...`.

    Losses are over the step of the longest rank, so that is named where the mean of the ranks reads differently.
    """
    parts, mark = measured(diagnosis)
    total = sum(p["dur_ns"] for p in parts)
    if not total:
        return "no work of the device was recorded, so where the time went is unknown"
    longest = _longest_ns(diagnosis)
    if longest > WORTH_NAMING * total:
        mark, most = f"{mark}; longest {show('_ns', longest)}", most - 1
    largest = sorted(parts, key=lambda p: -p["dur_ns"])
    words = [f"{share(p['dur_ns'], total)} {part(p['part']).label}" for p in largest[:most]]
    rest = sum(p["dur_ns"] for p in largest[most:])
    if rest:
        words.append(f"{share(rest, total)} other")
    return f"{show('_ns', total)} ({mark}) = {' + '.join(words)}"


def _longest_ns(diagnosis: Diagnosis) -> int:
    """Mean step of the rank that takes longest; 0 without steps."""
    of_rank: dict[int, int] = {}
    for row in diagnosis.step_time.get("per_rank") or []:
        of_rank[row["rank"]] = of_rank.get(row["rank"], 0) + row["dur_ns"]
    return max(of_rank.values(), default=0)


def share(dur_ns: float, total_ns: float) -> str:
    """`21.4 %`; small but present is `<0.1 %`, never 0."""
    return "<0.1 %" if 0 < dur_ns < total_ns * 0.001 else show("_ratio", dur_ns / total_ns) if total_ns else "unknown"


def measured(diagnosis: Diagnosis) -> tuple[list[dict[str, Any]], str]:
    """The parts to show, in order of precedence, and what they are parts of: the mean step, else the recording."""
    parts = [p for p in diagnosis.step_time.get("parts") or [] if p["dur_ns"]]
    if parts:
        count = diagnosis.step_time.get("steps_count") or 0
        ranks = {row["rank"] for row in diagnosis.step_time.get("per_rank") or []}
        mark = f"mean of {count} steps" if count > 1 else "the one recorded step"
        unit = "ranks" if all(rank >= 0 for rank in ranks) else "recordings"  # of unknown rank: perhaps one process
        return in_order(parts), f"{mark}, {len(ranks)} {unit}" if len(ranks) > 1 else mark
    return in_order([p for p in diagnosis.window.get("parts") or [] if p["dur_ns"]]), "recording"


def communication(diagnosis: Diagnosis) -> str:
    """How much communication is hidden and how much of the step the rest takes."""
    of_step = bool(diagnosis.step_time.get("parts"))
    of = diagnosis.step_time if of_step else diagnosis.window
    hidden, exposed = (of.get(k) for k in ("hidden_comm_ratio", "comm_share_ratio"))
    if hidden is None:
        return "no communication ran" if exposed == 0 else "how much communication is hidden is unknown"
    words = f"{show('_ratio', hidden)} of communication is hidden"
    if exposed is None:
        return words
    return f"{words}; exposed, it takes {show('_ratio', exposed)} of the {'step' if of_step else 'recording'}"


def needed(symptom: Symptom) -> str:
    """What would settle an unknown symptom, `needs ...`: its reason from `needed: ` on, where it says so."""
    reason = clean(symptom.reason)
    _, says, what = reason.rpartition("needed: ")
    return f"needs {what}" if symptom.status == "unknown" and says else reason


def cost(diagnosis: Diagnosis, symptom: Symptom) -> str:
    """What a symptom that was found costs: `up to 13.1 ms a step (21.4 %)`, `in all` without steps."""
    if symptom.status == "found" and symptom.lost_ns:
        ratio = f" ({show('_ratio', symptom.lost_ratio)})" if symptom.lost_ratio is not None else ""
        per = "a step" if _counts_steps(diagnosis) else "in all"
        return f"up to {show('lost_ns', symptom.lost_ns)} {per}{ratio}"
    if symptom.status == "found" and symptom.lost_bytes:
        return f"up to {show('lost_bytes', symptom.lost_bytes)}"
    return ""


def _next(diagnosis: Diagnosis, top: Finding) -> list[tuple[str, str]]:
    """The next finding of another rule, if any."""
    other = next((f for f in foremost(diagnosis.findings) if f.rule != top.rule and f.severity != "info"), None)
    if other is None:
        return []
    lost = loss(other)
    return [("Next", clean(other.title) + (f": {lost}" if lost else ""))]


def _whole(diagnosis: Diagnosis, finding: Finding) -> str:
    """What the loss is a share of, as the finding counts it: its own step, else the mean one."""
    parts, _ = measured(diagnosis)
    total = finding.lost_ns / finding.lost_ratio if finding.lost_ratio else sum(p["dur_ns"] for p in parts)
    if not total:
        return "a step"
    shown = show("_ns", total)
    return f"of every {shown} step" if _counts_steps(diagnosis) else f"of the {shown} recording"


def _counts_steps(diagnosis: Diagnosis) -> bool:
    """Whether losses are per step: steps were recorded, or only records of steps (a log, the live hook)."""
    return bool(diagnosis.step_time.get("parts") or not diagnosis.window.get("parts"))


def _nothing(diagnosis: Diagnosis) -> Verdict:
    status = {s.symptom: s.status for s in diagnosis.symptoms}
    clear, unknown = (sum(v == what for v in status.values()) for what in ("clear", "unknown"))
    facts: tuple[tuple[str, str], ...] = (("Step", composition(diagnosis)),)
    if measured(diagnosis)[0]:
        facts = (*facts, ("Comm", communication(diagnosis)), ("Idle", _idle(diagnosis)))
    facts = (*facts, *_said(diagnosis))
    settle = _first_to_collect(diagnosis)
    if not clear:
        return Verdict("unknown", "What was recorded cannot answer any of the five questions", facts, change=settle)
    if unknown:
        text = (
            f"No problem found in what was recorded: {clear} of {len(SYMPTOMS)} clear, {unknown} cannot be judged yet"
        )
        return Verdict("clear", text, facts, change=settle)
    return Verdict("clear", "Healthy: all five symptoms are clear", facts)


def _said(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """The first thing that a log calls an error, else a warning: no rule judged it, but it may end a job."""
    events = diagnosis.tables.get("log_events")
    rows = [] if events is None else events.select(["line", "level", "detail"]).to_pylist()
    for levels in (("ERROR",), ("WARN", "WARNING")):
        told = [row for row in rows if row["level"] in levels and row["detail"]]
        if told:
            first = min(told, key=lambda row: row["line"] or 0)
            place = f"line {first['line']}" if first["line"] else "first"
            more = f", first of {len(told)}" if len(told) > 1 else ""
            return [("Log", f"{first_sentences(first['detail'], 100)} ({place}{more}; no rule judges it)")]
    return []


def _first_to_collect(diagnosis: Diagnosis) -> str:
    """The one input that settles the most likely of the open symptoms; what the others need stands beside each."""
    open_ = {s.symptom: needed(s) for s in diagnosis.symptoms if s.status == "unknown" and "needed: " in s.reason}
    return next((open_[name].removeprefix("needs ") for name in COLLECT_ORDER if name in open_), "")


def _idle(diagnosis: Diagnosis) -> str:
    parts, _ = measured(diagnosis)
    total = sum(p["dur_ns"] for p in parts)
    causes = sorted((p for p in parts if p["part"] in IDLE_PARTS), key=lambda p: -p["dur_ns"])
    if not total:
        return "unknown"
    if not causes:
        return "the device was never idle"
    listed = ", ".join(f"{share(p['dur_ns'], total)} {part(p['part']).label}" for p in causes[:3])
    return f"device idle {share(sum(p['dur_ns'] for p in causes), total)}: {listed}"
