"""A whole made-up diagnosis: two ranks, four steps, some thousand kernels, exposed communication, every severity.

`python -m tests.report.example` rewrites `reports/example/diagnosis.json`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.findings import Diagnosis, Finding, Outcome, Symptom
from tests.report import example_run
from tests.report.example_run import ELEMENTWISE, HOSTILE, RANKS, STEPS

GOLDEN = Path(__file__).parents[2] / "reports" / "example" / "diagnosis.json"


@cache
def example(*, hostile: bool = False) -> Diagnosis:
    """The diagnosis with its tables, one value for all tests; `hostile`: names in it try to break out of the page."""
    tables = example_run.tables(hostile=hostile)
    parts = _mean(tables["step_time"], len(RANKS) * len(STEPS))
    total = sum(parts.values())
    per_rank = [
        {"rank": rank, "part": part, "dur_ns": ns}
        for rank in RANKS
        for part, ns in _mean(
            tables["step_time"].filter(pc.equal(tables["step_time"]["rank"], rank)), len(STEPS)
        ).items()
    ]
    listed = [{"part": p, "dur_ns": ns, "ratio": ns / total} for p, ns in parts.items()]
    window = [{"part": p, "dur_ns": ns * len(STEPS), "ratio": ns / total} for p, ns in parts.items()]
    name = HOSTILE[0] if hostile else "layers.3.mlp"
    return Diagnosis(
        tool={"name": "diagnose", "version": "0.1.0"},
        inputs=[
            {
                "path": "run/rank0.pt.trace.json.gz",
                "kind": "kineto",
                "rank": 0,
                "events_count": 18_211,
                "status": "ok",
                "detail": "",
            },
            {
                "path": f"run/{HOSTILE[1] if hostile else 'rank1.pt.trace.json.gz'}",
                "kind": "kineto",
                "rank": 1,
                "events_count": 18_054,
                "status": "repaired",
                "detail": "12 bare inf became unknown",
            },
        ],
        job={
            "world_size": 64,
            "ranks_seen": list(RANKS),
            "gpu": "NVIDIA H100 80GB HBM3",
            "layout": {
                "dp": {"value": 16, "source": "group sizes"},
                "tp": {"value": 4, "source": "descriptions"},
                "pp": {"value": None, "source": "unknown"},
                "ep": {"value": None, "source": "unknown"},
                "cp": {"value": None, "source": "unknown"},
            },
            "model": {},
        },
        quality=[
            {
                "problem": "non_finite_number",
                "path": "run/rank1.pt.trace.json.gz",
                "rank": 1,
                "count": 12,
                "byte_offset": 1_048_576,
                "detail": "a bare inf or nan became unknown",
            },
            {
                "problem": "profiler_overhead",
                "path": "run/rank0.pt.trace.json.gz",
                "rank": 0,
                "count": 3,
                "byte_offset": None,
                "detail": "Python stacks were recorded; host times are longer than without",
            },
        ],
        step_time={
            "steps_count": len(STEPS),
            "median_ns": total,
            "parts": listed,
            "per_rank": per_rank,
            "hidden_comm_ratio": 0.38,
            "comm_share_ratio": (parts["tp_comm"] + parts["dp_comm"]) / total,
        },
        window={"dur_ns": total * len(STEPS), "parts": window, "per_rank": []},
        symptoms=_symptoms(parts, total),
        questions=[
            {"question": "Are TP and EP inside the fast domain?", "answer": "unknown", "figure": None, "findings": []},
            {
                "question": "Is the bubble acceptable at this micro-batch count?",
                "answer": "unknown",
                "figure": None,
                "findings": [],
            },
            {
                "question": "Is the tight memory state or activations?",
                "answer": "unknown",
                "figure": None,
                "findings": [],
            },
        ],
        findings=_findings(parts, total, name),
        outcomes=_outcomes(),
        tables=tables,
    )


def _mean(step_parts: pa.Table, divisor: int) -> dict[str, int]:
    sums: dict[str, int] = {}
    for row in step_parts.to_pylist():
        sums[row["part"]] = sums.get(row["part"], 0) + row["dur_ns"]
    return {part: ns // divisor for part, ns in sums.items()}


def _finding(rule: str, symptom: str, severity: str, lost_ns: int, total_ns: int, **words: Any) -> Finding:
    fixed = {
        "lost_kind": "bound",
        "lost_bytes": 0,
        "ranks": RANKS,
        "hosts": (),
        "steps": STEPS,
        "confidence_ratio": 0.5,
    }
    return Finding(
        rule=rule, symptom=symptom, severity=severity, lost_ns=lost_ns, lost_ratio=lost_ns / total_ns, **(fixed | words)
    )


def _findings(parts: dict[str, int], total: int, name: str) -> list[Finding]:
    return [
        _finding(
            "unhidden-gradients",
            "comm_saturation",
            "critical",
            parts["dp_comm"],
            total,
            title="Gradient reduction is not hidden under the backward pass",
            summary="6 reduce_scatter a step outlast the backward pass: 38.0 % of them is hidden.",
            why="A bucket can be reduced when its last gradient is ready; later, nothing is left to hide it under.",
            fix="Megatron-LM: --overlap-grad-reduce. FSDP2: fully_shard per layer, and prefetch the next one.",
            evidence={
                "exposed_ns": parts["dp_comm"],
                "hidden_ratio": 0.38,
                "size_bytes": 64 << 20,
                "calls_count": 6,
                "module": name,
            },
        ),
        _finding(
            "launch-bound",
            "low_speedup",
            "warning",
            parts["launch"],
            total,
            title="The host launches kernels late",
            summary="1,120 gaps a step before kernels that the host issued late.",
            why="The GPU finishes small kernels faster than Python can issue the next ones.",
            fix="torch.compile (mode='reduce-overhead' uses CUDA graphs), or a fused optimizer (fused=True).",
            evidence={"gap_ns": parts["launch"], "kernels_count": 1120, "kernel": ELEMENTWISE},
            confidence_ratio=0.8,
        ),
        _finding(
            "pageable-copy",
            "low_speedup",
            "info",
            parts["copy"],
            total,
            title="Copies from pageable memory",
            summary="8.00 MiB a step are copied from memory that is not pinned.",
            why="A pageable copy is staged by the driver and blocks the host.",
            fix="DataLoader(pin_memory=True), and .to(device, non_blocking=True).",
            evidence={"size_bytes": 8 << 20, "dur_ns": parts["copy"]},
            lost_kind="simulated",
            confidence_ratio=0.9,
        ),
    ]


def _symptoms(parts: dict[str, int], total: int) -> list[Symptom]:
    found = [("comm_saturation", parts["dp_comm"]), ("low_speedup", parts["launch"])]
    unknown = {
        "drifting_throughput": "nothing here settles it; needed: a training log or hook records of some thousand steps",
        "moe_drop": "nothing here settles it; needed: router counts per step (hook records)",
        "oom_despite_headroom": "nothing here settles it; needed: a memory snapshot of the rank that ran out",
    }
    reasons = {"comm_saturation": "unhidden-gradients", "low_speedup": "launch-bound"}
    answers = [Symptom(s, "found", ns, ns / total, None, reasons[s]) for s, ns in found]
    answers += [Symptom(s, "unknown", None, None, None, reason) for s, reason in unknown.items()]
    order = ("comm_saturation", "drifting_throughput", "low_speedup", "moe_drop", "oom_despite_headroom")
    return sorted(answers, key=lambda a: order.index(a.symptom))


def _outcomes() -> list[Outcome]:
    return [
        Outcome("unhidden-gradients", "comm_saturation", "found", ""),
        Outcome("launch-bound", "low_speedup", "found", ""),
        Outcome("pageable-copy", "low_speedup", "found", ""),
        Outcome("input-stall", "low_speedup", "clear", ""),
        Outcome("gc-pauses", "drifting_throughput", "clear", ""),
        Outcome("late-rank", "low_speedup", "skipped", "needs traces of all ranks of a group; 2 of 64 were given"),
        Outcome(
            "fragmentation",
            "oom_despite_headroom",
            "skipped",
            "needs a memory snapshot (torch.cuda.memory._dump_snapshot)",
        ),
    ]


if __name__ == "__main__":
    GOLDEN.write_text(example().to_json() + "\n", encoding="utf-8")
