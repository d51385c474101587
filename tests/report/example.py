"""A whole made-up diagnosis: two ranks, four steps, some thousand kernels, exposed communication, every severity.

`python -m tests.report.example` rewrites `reports/example/diagnosis.json`. Times are cut on a grid of 1 us, so that the
partition below is brute force: which of compute, communication, copy, idle holds each microsecond.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.analyses import (
    collectives, copies, gemms, idle, kernel_totals, kernels, mfu, profiler_cost, step_time, steps, syncs, window_time,
)  # fmt: skip
from diagnose.findings import Diagnosis, Finding, Outcome, Symptom
from diagnose.schema import INGESTED

GOLDEN = Path(__file__).parents[2] / "reports" / "example" / "diagnosis.json"
US = 1000
BASE_NS = 1_700_000_000_000_000_000
RANKS, STEPS = (0, 1), (3, 4, 5, 6)
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)"
)
HOSTILE = (
    "</script><b>x</b>",
    "<img src=x onerror=alert(1)>",
    "\u202egnihtemos\u202c \u05e9\u05dc\u05d5\u05dd {{7*7}} {% raw %} %{x} &lt;b&gt;",
    "void cutlass::Kernel<" + "cute::Layout<cute::tuple<int, 4>>, " * 140 + ">(Params)\x1b[31m\x00",
)


def example(*, hostile: bool = False) -> Diagnosis:
    """The diagnosis with its tables; `hostile` puts names into it that try to break out of the page."""
    work = [_Rank(rank, hostile) for rank in RANKS]
    tables = {
        "kernels": kernels.SCHEMA.build(_columns([k for w in work for k in w.kernels])),
        "collectives": collectives.SCHEMA.build(_columns([c for w in work for c in w.collectives])),
        "idle": idle.SCHEMA.build(_columns([i for w in work for i in w.idle])),
        "steps": steps.SCHEMA.build(_columns([s for w in work for s in w.steps])),
        "step_time": step_time.SCHEMA.build(_columns([p for w in work for p in w.parts])),
        "copies": copies.SCHEMA.build(_columns([c for w in work for c in w.copies])),
        "syncs": syncs.SCHEMA.build(_columns([s for w in work for s in w.syncs])),
    }
    tables |= _totals(tables)
    parts = _mean(tables["step_time"], len(RANKS) * len(STEPS))
    total = sum(parts.values())
    per_rank = [
        {"rank": w.rank, "part": part, "dur_ns": ns}
        for w in work
        for part, ns in _mean(tables["step_time"].filter(pa.compute.equal(tables["step_time"]["rank"], w.rank)), len(STEPS)).items()
    ]
    listed = [{"part": p, "dur_ns": ns, "ratio": ns / total} for p, ns in parts.items()]
    window = [{"part": p, "dur_ns": ns * len(STEPS), "ratio": ns / total} for p, ns in parts.items()]
    name = HOSTILE[0] if hostile else "layers.3.mlp"
    return Diagnosis(
        tool={"name": "diagnose", "version": "0.1.0"},
        inputs=[
            {"path": "run/rank0.pt.trace.json.gz", "kind": "kineto", "rank": 0, "events_count": 18_211, "status": "ok", "detail": ""},
            {"path": f"run/{HOSTILE[1] if hostile else 'rank1.pt.trace.json.gz'}", "kind": "kineto", "rank": 1, "events_count": 18_054,
             "status": "repaired", "detail": "12 bare inf became unknown"},
        ],
        job={
            "world_size": 64, "ranks_seen": list(RANKS), "gpu": "NVIDIA H100 80GB HBM3",
            "layout": {"dp": {"value": 16, "source": "group sizes"}, "tp": {"value": 4, "source": "descriptions"},
                       "pp": {"value": None, "source": "unknown"}, "ep": {"value": None, "source": "unknown"},
                       "cp": {"value": None, "source": "unknown"}},
            "model": {},
        },
        quality=[
            {"problem": "non_finite_number", "path": "run/rank1.pt.trace.json.gz", "rank": 1, "count": 12, "byte_offset": 1_048_576,
             "detail": "a bare inf or nan became unknown"},
            {"problem": "profiler_overhead", "path": "run/rank0.pt.trace.json.gz", "rank": 0, "count": 3, "byte_offset": None,
             "detail": "Python stacks were recorded; host times are longer than without"},
        ],
        step_time={"steps_count": len(STEPS), "median_ns": total, "parts": listed, "per_rank": per_rank,
                   "hidden_comm_ratio": 0.38, "comm_share_ratio": (parts["tp_comm"] + parts["dp_comm"]) / total},
        window={"dur_ns": total * len(STEPS), "parts": window, "per_rank": []},
        symptoms=_symptoms(parts, total),
        questions=[
            {"question": "Are TP and EP inside the fast domain?", "answer": "unknown", "figure": None, "findings": []},
            {"question": "Is the bubble acceptable at this micro-batch count?", "answer": "unknown", "figure": None, "findings": []},
            {"question": "Is the tight memory state or activations?", "answer": "unknown", "figure": None, "findings": []},
        ],
        findings=_findings(parts, total, name),
        outcomes=_outcomes(),
        tables=tables,
    )  # fmt: skip


class _Rank:
    """One rank's run, drawn on a grid of microseconds."""

    def __init__(self, rank: int, hostile: bool) -> None:
        self.rank, self.random, self.names = rank, np.random.RandomState(rank), HOSTILE if hostile else (GEMM, ELEMENTWISE)
        self.kernels: list[dict[str, Any]] = []
        self.collectives: list[dict[str, Any]] = []
        self.idle: list[dict[str, Any]] = []
        self.copies: list[dict[str, Any]] = []
        self.syncs: list[dict[str, Any]] = []
        self.steps: list[dict[str, Any]] = []
        self.parts: list[dict[str, Any]] = []
        start_us = 0
        for step in STEPS:
            length_us = 58_000 + 1_500 * rank + 400 * (step % 3)
            self._step(step, start_us, length_us)
            start_us += length_us

    def _step(self, step: int, start_us: int, length_us: int) -> None:
        grid = {part: np.zeros(length_us, bool) for part in ("compute", "tp_comm", "dp_comm", "copy")}
        self._copy(step, start_us, 400, 700, grid)
        at = 1500
        while at < length_us * 0.62:
            dur = int(self.random.randint(4, 160))
            self._compute(step, start_us, at, dur, grid)
            at += dur + int(self.random.choice([0, 0, 1, 12]))
            if self.random.rand() < 0.035:
                self._comm(step, start_us, at, 260, "tp", "all_reduce", grid)
                at += 262
        for i in range(6):
            self._comm(step, start_us, int(length_us * (0.3 + 0.1 * i)), 4300, "dp", "reduce_scatter", grid)
        for at in range(int(length_us * 0.86), length_us - 2500, 22):
            self._compute(step, start_us, at, 9, grid)
        self._partition(step, start_us, length_us, grid)

    def _event(self, step: int, start_us: int, at: int, dur: int) -> dict[str, Any]:
        ts_ns = BASE_NS + (start_us + at) * US
        event_id = 100_000 * self.rank + len(self.kernels)
        return {"event_id": event_id, "rank": self.rank, "step": step, "ts_ns": ts_ns, "dur_ns": dur * US}

    def _compute(self, step: int, start_us: int, at: int, dur: int, grid: dict[str, Any]) -> None:
        big = dur > 60
        row = self._event(step, start_us, at, dur) | {
            "name": self.names[0 if big else 1 + self.random.randint(0, len(self.names) - 1)],
            "class": "compute" if self.random.rand() > 0.01 else "unclassified",
            "category": "gemm" if big else "elementwise", "device": self.rank, "stream": 7, "in_flight": False, "graph": False,
            "op": "aten::mm" if big else "aten::add", "phase": "forward", "module": f"layers.{at // 4000}.mlp",
            "source": "model/transformer.py(212): forward", "launch_ns": BASE_NS,
        }  # fmt: skip
        self.kernels.append(row)
        grid["compute"][at : at + dur] = True

    def _comm(self, step: int, start_us: int, at: int, dur: int, dim: str, op: str, grid: dict[str, Any]) -> None:
        event = self._event(step, start_us, at, dur)
        self.kernels.append(
            event | {"name": f"ncclDevKernel_{op}", "class": "comm", "category": op, "stream": 13, "in_flight": False, "graph": False}
        )
        under = int(grid["compute"][at : at + dur].sum())
        size = 64 << 20 if dim == "dp" else 16 << 20
        self.collectives.append(
            event | {
                "group": self.names[0] if self.names is HOSTILE else {"dp": "1", "tp": "4"}[dim], "dim": dim, "op": op, "size_bytes": size,
                "dtype": "bfloat16", "group_size": 16 if dim == "dp" else 4, "stream": 13, "hidden_ns": under * US,
                "exposed_ns": (dur - under) * US, "algbw_bytes_per_s": size / (dur * 1e-6), "busbw_bytes_per_s": 1.5 * size / (dur * 1e-6),
                "bandwidth_bound": "lower", "phase": "backward", "blocked_by": "launched_late" if under < dur else None,
                "module": f"FSDP::layers.{at // 8000}" if dim == "dp" else "attention", "evidence": "kernel_args",
            }
        )  # fmt: skip
        grid[f"{dim}_comm"][at : at + dur] = True

    def _copy(self, step: int, start_us: int, at: int, dur: int, grid: dict[str, Any]) -> None:
        event = self._event(step, start_us, at, dur)
        self.kernels.append(
            event
            | {"name": "Memcpy HtoD (Pageable -> Device)", "class": "copy", "category": "memcpy_h2d", "stream": 7, "in_flight": False}
        )
        where = {"module": None, "source": "train.py(88): next_batch"}
        self.copies.append(
            event | where | {"direction": "h2d", "pageable": True, "size_bytes": 8 << 20, "exposed_ns": dur * US, "host_blocked_ns": dur * US}
        )
        blocked = {"name": "cudaStreamSynchronize", "op": "aten::item", "idle_ns": 40 * US, "module": "loss"}
        self.syncs.append({k: event[k] for k in ("rank", "step", "ts_ns")} | blocked | {"dur_ns": 900 * US, "source": "train.py(140): log"})
        grid["copy"][at : at + dur] = True

    def _partition(self, step: int, start_us: int, length_us: int, grid: dict[str, Any]) -> None:
        ts_ns = BASE_NS + start_us * US
        mark = {"rank": self.rank, "step": step, "name": f"ProfilerStep#{step}", "source": "profiler_step", "complete": True}
        self.steps.append(mark | {"host_ts_ns": ts_ns, "host_dur_ns": 40_000 * US, "ts_ns": ts_ns, "dur_ns": length_us * US})
        left = np.ones(length_us, bool)
        for part, busy in grid.items():
            self.parts.append({"rank": self.rank, "step": step, "part": part, "dur_ns": int((busy & left).sum()) * US})
            left &= ~busy
        edges = np.flatnonzero(np.diff(np.r_[0, left.astype(int), 0]))
        spent = {"input": 0, "launch": 0, "idle": 0}
        for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            cause = "input" if start < 1500 else "launch" if end - start < 100 else "idle"
            spent[cause] += end - start
            host = {"input": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "launch": "aten::mul", "idle": None}[cause]
            gap = {"rank": self.rank, "step": step, "ts_ns": ts_ns + start * US, "dur_ns": (end - start) * US, "cause": cause, "host": host}
            self.idle.append(gap | {"before": self.names[0], "module": "layers.0.attention", "source": "train.py(91): step"})
        self.parts += [{"rank": self.rank, "step": step, "part": p, "dur_ns": us * US} for p, us in spent.items() if us]


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    names = {key for row in rows for key in row}
    return {name: [row.get(name) for row in rows] for name in sorted(names)}


def _mean(step_parts: pa.Table, divisor: int) -> dict[str, int]:
    sums: dict[str, int] = {}
    for row in step_parts.to_pylist():
        sums[row["part"]] = sums.get(row["part"], 0) + row["dur_ns"]
    return {part: ns // divisor for part, ns in sums.items()}


def _totals(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    by_name: dict[Any, list[int]] = {}
    for row in tables["kernels"].to_pylist():
        key = (row["rank"], row["name"], row["class"], row["category"], row["module"], row["source"])
        by_name.setdefault(key, []).append(row["dur_ns"])
    names = ("rank", "name", "class", "category", "module", "source")
    rows = [
        dict(zip(names, key, strict=True)) | {"calls_count": len(d), "dur_ns": sum(d), "median_ns": sorted(d)[len(d) // 2], "max_ns": max(d)}
        for key, d in by_name.items()
    ]
    product = {"rank": 0, "op": "aten::mm", "batch": 1, "dtype": "bfloat16", "peak_flop_per_s": 989e12}
    shapes = [(4096, 4096, 4096, 190_000), (8192, 1024, 4096, 120_000), (4096, 11008, 4096, 560_000)]
    products = [
        product | {"event_id": i, "step": 3, "m": m, "n": n, "k": k, "dur_ns": ns, "work_flop": 2.0 * m * n * k}
        for i, (m, n, k, ns) in enumerate(shapes)
    ]
    used = {"rank": 0, "covered_ratio": 0.93, "dtype": "bfloat16", "peak_flop_per_s": 989e12, "peak_source": "H100 SXM, dense bfloat16"}
    return {
        "kernel_totals": kernel_totals.SCHEMA.build(_columns(rows)),
        "gemms": gemms.SCHEMA.build(_columns(products)),
        "mfu": mfu.SCHEMA.build(_columns([used | {"step": s, "dur_ns": 58_000 * US, "mfu_ratio": 0.41, "reason": ""} for s in STEPS])),
        "profiler_cost": profiler_cost.SCHEMA.build(_columns([{"rank": 0, "kind": "stacks", "count": 90_210, "dur_ns": None}])),
        "window_time": window_time.SCHEMA.build(_columns([{"rank": r, "part": "compute", "dur_ns": 1} for r in RANKS])),
        "quality": INGESTED["quality"].empty(),
    }  # fmt: skip


def _finding(rule: str, symptom: str, severity: str, lost_ns: int, total_ns: int, **words: Any) -> Finding:
    fixed = {"lost_kind": "bound", "lost_bytes": 0, "ranks": RANKS, "hosts": (), "steps": STEPS, "confidence_ratio": 0.5}
    return Finding(rule=rule, symptom=symptom, severity=severity, lost_ns=lost_ns, lost_ratio=lost_ns / total_ns, **(fixed | words))


def _findings(parts: dict[str, int], total: int, name: str) -> list[Finding]:
    return [
        _finding(
            "unhidden-gradients", "comm_saturation", "critical", parts["dp_comm"], total,
            title="Gradient reduction is not hidden under the backward pass",
            summary="6 reduce_scatter a step run after the backward pass has no compute left: 38.0 % of them is hidden.",
            why="The reduction of a bucket can start when its last gradient is ready; launched late, nothing is left to hide it under.",
            fix="Megatron-LM: --overlap-grad-reduce. FSDP2: smaller units with fully_shard per layer, and prefetch the next one.",
            evidence={"exposed_ns": parts["dp_comm"], "hidden_ratio": 0.38, "size_bytes": 64 << 20, "calls_count": 6, "module": name},
        ),
        _finding(
            "launch-bound", "low_speedup", "warning", parts["launch"], total,
            title="The host launches kernels late",
            summary="1,120 gaps a step before kernels that the host issued late.",
            why="The GPU finishes small kernels faster than Python can issue the next ones.",
            fix="Compile the model (torch.compile, mode='reduce-overhead' uses CUDA graphs) or fuse the optimizer (fused=True).",
            evidence={"gap_ns": parts["launch"], "kernels_count": 1120, "kernel": ELEMENTWISE}, confidence_ratio=0.8,
        ),
        _finding(
            "pageable-copy", "low_speedup", "info", parts["copy"], total,
            title="Copies from pageable memory",
            summary="8.00 MiB a step are copied from memory that is not pinned.",
            why="A pageable copy is staged by the driver and blocks the host.",
            fix="DataLoader(pin_memory=True), and .to(device, non_blocking=True).",
            evidence={"size_bytes": 8 << 20, "dur_ns": parts["copy"]}, lost_kind="simulated", confidence_ratio=0.9,
        ),
    ]  # fmt: skip


def _symptoms(parts: dict[str, int], total: int) -> list[Symptom]:
    found = [("comm_saturation", parts["dp_comm"]), ("low_speedup", parts["launch"])]
    unknown = {
        "drifting_throughput": "a training log, or hook records, of some thousand steps settle it",
        "moe_drop": "router counts per step (hook records) settle it; this trace holds no routing",
        "oom_despite_headroom": "a memory snapshot of the rank that ran out settles it",
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
        Outcome("fragmentation", "oom_despite_headroom", "skipped", "needs a memory snapshot (torch.cuda.memory._dump_snapshot)"),
    ]


if __name__ == "__main__":
    GOLDEN.write_text(example().to_json() + "\n", encoding="utf-8")
