"""The run behind the made-up diagnosis: kernels, communication, copies and idle time of two ranks on a grid of 1 us."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.analyses import (
    collectives,
    copies,
    gemms,
    idle,
    kernel_totals,
    kernels,
    mfu,
    profiler_cost,
    step_time,
    steps,
    syncs,
    window_time,
)
from diagnose.schema import INGESTED

US = 1000
BASE_NS = 1_700_000_000_000_000_000
RANKS, STEPS = (0, 1), (3, 4, 5, 6)
GEMM = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1"
    "_execute_segment_k_off_kernel__5x_cublas"
)
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


def tables(*, hostile: bool = False) -> dict[str, pa.Table]:
    """Every table of the run that the report reads."""
    work = [_Rank(rank, hostile) for rank in RANKS]
    found = {
        "kernels": kernels.SCHEMA.build(_columns([k for w in work for k in w.kernels])),
        "collectives": collectives.SCHEMA.build(_columns([c for w in work for c in w.collectives])),
        "idle": idle.SCHEMA.build(_columns([i for w in work for i in w.idle])),
        "steps": steps.SCHEMA.build(_columns([s for w in work for s in w.steps])),
        "step_time": step_time.SCHEMA.build(_columns([p for w in work for p in w.parts])),
        "copies": copies.SCHEMA.build(_columns([c for w in work for c in w.copies])),
        "syncs": syncs.SCHEMA.build(_columns([s for w in work for s in w.syncs])),
    }
    return found | _totals(found)


class _Rank:
    """One rank's run, drawn on a grid of microseconds."""

    def __init__(self, rank: int, hostile: bool) -> None:
        self.rank, self.random, self.names = (
            rank,
            np.random.RandomState(rank),
            HOSTILE if hostile else (GEMM, ELEMENTWISE),
        )
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
        strange = self.random.rand() < 0.01
        name = self.names[0 if big else 1 + self.random.randint(0, len(self.names) - 1)]
        row = self._event(step, start_us, at, dur) | {
            "name": "fused_step_v2" if strange else name,
            "class": "unclassified" if strange else "compute",
            "category": "unclassified" if strange else "gemm" if big else "elementwise",
            "device": self.rank,
            "stream": 7,
            "in_flight": False,
            "graph": False,
            "op": "aten::mm" if big else "aten::add",
            "phase": "forward",
            "module": f"layers.{at // 4000}.mlp",
            "source": "model/transformer.py(212): forward",
            "launch_ns": BASE_NS,
        }
        self.kernels.append(row)
        grid["compute"][at : at + dur] = True

    def _comm(self, step: int, start_us: int, at: int, dur: int, dim: str, op: str, grid: dict[str, Any]) -> None:
        event = self._event(step, start_us, at, dur)
        self.kernels.append(
            event
            | {
                "name": f"ncclDevKernel_{op}",
                "class": "comm",
                "category": op,
                "stream": 13,
                "in_flight": False,
                "graph": False,
            }
        )
        under = int(grid["compute"][at : at + dur].sum())
        attention = self.names[0] if self.names is HOSTILE else "attention"
        size = 64 << 20 if dim == "dp" else 16 << 20
        self.collectives.append(
            event
            | {
                "group": self.names[0] if self.names is HOSTILE else {"dp": "1", "tp": "4"}[dim],
                "dim": dim,
                "op": op,
                "size_bytes": size,
                "dtype": "bfloat16",
                "group_size": 16 if dim == "dp" else 4,
                "stream": 13,
                "hidden_ns": under * US,
                "exposed_ns": (dur - under) * US,
                "algbw_bytes_per_s": size / (dur * 1e-6),
                "busbw_bytes_per_s": 1.5 * size / (dur * 1e-6),
                "bandwidth_bound": "lower",
                "phase": "backward",
                "blocked_by": "launched_late" if under < dur else None,
                "module": f"FSDP::layers.{at // 8000}" if dim == "dp" else attention,
                "evidence": "kernel_args",
            }
        )
        grid[f"{dim}_comm"][at : at + dur] = True

    def _copy(self, step: int, start_us: int, at: int, dur: int, grid: dict[str, Any]) -> None:
        event = self._event(step, start_us, at, dur)
        self.kernels.append(
            event
            | {
                "name": "Memcpy HtoD (Pageable -> Device)",
                "class": "copy",
                "category": "memcpy_h2d",
                "stream": 7,
                "in_flight": False,
            }
        )
        where = {"module": None, "source": "train.py(88): next_batch"}
        self.copies.append(
            event
            | where
            | {
                "direction": "h2d",
                "pageable": True,
                "size_bytes": 8 << 20,
                "exposed_ns": dur * US,
                "host_blocked_ns": dur * US,
            }
        )
        blocked = {"name": "cudaStreamSynchronize", "op": "aten::item", "idle_ns": 40 * US, "module": "loss"}
        self.syncs.append(
            {k: event[k] for k in ("rank", "step", "ts_ns")}
            | blocked
            | {"dur_ns": 900 * US, "source": "train.py(140): log"}
        )
        grid["copy"][at : at + dur] = True

    def _partition(self, step: int, start_us: int, length_us: int, grid: dict[str, Any]) -> None:
        ts_ns = BASE_NS + start_us * US
        mark = {
            "rank": self.rank,
            "step": step,
            "name": f"ProfilerStep#{step}",
            "source": "profiler_step",
            "complete": True,
        }
        self.steps.append(
            mark | {"host_ts_ns": ts_ns, "host_dur_ns": 40_000 * US, "ts_ns": ts_ns, "dur_ns": length_us * US}
        )
        left = np.ones(length_us, bool)
        for part, busy in grid.items():
            self.parts.append({"rank": self.rank, "step": step, "part": part, "dur_ns": int((busy & left).sum()) * US})
            left &= ~busy
        edges = np.flatnonzero(np.diff(np.r_[0, left.astype(int), 0]))
        spent = {"input": 0, "launch": 0, "idle": 0}
        for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            cause = "input" if start < 1500 else "launch" if end - start < 100 else "idle"
            spent[cause] += end - start
            host = {
                "input": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
                "launch": "aten::mul",
                "idle": None,
            }[cause]
            gap = {
                "rank": self.rank,
                "step": step,
                "ts_ns": ts_ns + start * US,
                "dur_ns": (end - start) * US,
                "cause": cause,
                "host": host,
            }
            self.idle.append(
                gap | {"before": self.names[0], "module": "layers.0.attention", "source": "train.py(91): step"}
            )
        self.parts += [{"rank": self.rank, "step": step, "part": p, "dur_ns": us * US} for p, us in spent.items() if us]


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    names = {key for row in rows for key in row}
    return {name: [row.get(name) for row in rows] for name in sorted(names)}


def _totals(found: dict[str, pa.Table]) -> dict[str, pa.Table]:
    by_name: dict[Any, list[int]] = {}
    for row in found["kernels"].to_pylist():
        key = (row["rank"], row["name"], row["class"], row["category"], row["module"], row["source"])
        by_name.setdefault(key, []).append(row["dur_ns"])
    names = ("rank", "name", "class", "category", "module", "source")
    rows = [
        dict(zip(names, key, strict=True))
        | {"calls_count": len(d), "dur_ns": sum(d), "median_ns": sorted(d)[len(d) // 2], "max_ns": max(d)}
        for key, d in by_name.items()
    ]
    product = {"rank": 0, "op": "aten::mm", "batch": 1, "dtype": "bfloat16", "peak_flop_per_s": 989e12}
    shapes = [(4096, 4096, 4096, 190_000), (8192, 1024, 4096, 120_000), (4096, 11008, 4096, 560_000)]
    products = [
        product | {"event_id": i, "step": 3, "m": m, "n": n, "k": k, "dur_ns": ns, "work_flop": 2.0 * m * n * k}
        for i, (m, n, k, ns) in enumerate(shapes)
    ]
    used = {
        "rank": 0,
        "covered_ratio": 0.93,
        "dtype": "bfloat16",
        "peak_flop_per_s": 989e12,
        "peak_source": "H100 SXM, dense bfloat16",
    }
    return {
        "kernel_totals": kernel_totals.SCHEMA.build(_columns(rows)),
        "gemms": gemms.SCHEMA.build(_columns(products)),
        "mfu": mfu.SCHEMA.build(
            _columns([used | {"step": s, "dur_ns": 58_000 * US, "mfu_ratio": 0.41, "reason": ""} for s in STEPS])
        ),
        "profiler_cost": profiler_cost.SCHEMA.build(
            _columns([{"rank": 0, "kind": "stacks", "count": 90_210, "dur_ns": None}])
        ),
        "window_time": window_time.SCHEMA.build(_columns([{"rank": r, "part": "compute", "dur_ns": 1} for r in RANKS])),
        "quality": INGESTED["quality"].empty(),
    }
