"""Clean pairs: two published runs that differ in one thing, the quantity compared, and whether the model has the sign.

A pair is listed only where both rows reconcile (degrees, GPUs, batch). Kept although it is lost: VPP 5 to 10, which the
schedule's formula says lowers activations and which measured 1.2 GB more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from benchmarks.validation_cells import count, number, overlaps
from benchmarks.validation_rows import table
from diagnose.planner import Job, predict, search

LLAMA_70B = {"layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "vocab": 128256, "seq_len": 4096}
QWEN_30B = {
    **{"layers": 48, "hidden": 2048, "heads": 32, "kv_heads": 4, "head_dim": 128, "ffn": 768, "vocab": 151936},
    **{"seq_len": 4096, "experts": 128, "topk": 8, "expert_ffn": 768},
}
MOONLIGHT = {
    **{"layers": 27, "hidden": 2048, "heads": 16, "head_dim": 128, "attention": "mla", "kv_lora": 512, "rope_dim": 64},
    **{"ffn": 11264, "vocab": 163840, "seq_len": 4096, "experts": 64, "topk": 6, "expert_ffn": 1408},
    **{"shared_ffn": 2816, "dense_layers": 1},
}
"""Public configuration of Moonlight-16B-A3B; the table names the model only."""


class Pair(NamedTuple):
    """Rows of `mbridge_memory_ab`, the one thing that changed, and the column compared (mem or step)."""

    before: int
    after: int
    changed: str
    quantity: str


PAIRS = (
    Pair(17, 14, "recompute core_attn -> mlp", "mem"),
    Pair(17, 14, "recompute core_attn -> mlp", "step"),
    Pair(14, 15, "recompute mlp -> mlp + core_attn", "step"),
    Pair(17, 18, "PP 4 -> 8", "mem"),
    Pair(17, 18, "PP 4 -> 8", "step"),
    Pair(17, 19, "TP 4 -> 8", "mem"),
    Pair(17, 19, "TP 4 -> 8", "step"),
    Pair(17, 20, "VPP 5 -> 10", "mem"),
    Pair(27, 28, "EP overlap off -> on (HybridEP)", "step"),
    Pair(30, 31, "EP overlap off -> on (alltoall)", "step"),
    Pair(1, 2, "recompute nothing -> core_attn", "step"),
    Pair(1, 3, "recompute nothing -> mla_up_proj", "mem"),
    Pair(1, 3, "recompute nothing -> mla_up_proj", "step"),
    Pair(1, 5, "recompute nothing -> moe_act", "mem"),
    Pair(1, 5, "recompute nothing -> moe_act", "step"),
)
LONG_PAIRS = ((18, 19), (20, 21), (22, 23), (24, 25), (26, 27), (28, 29))
"""Rows of `nemo_long_sequence`: the printed layout with CP, and the best one without (found by the search: not
printed). Rows on B200 are left out: their degrees do not multiply to their GPUs."""


def job_of(row: dict[str, str]) -> Job:
    """The job of a row of mbridge_memory_ab."""
    name = row["model"]
    model = LLAMA_70B if name.startswith("LLAMA3") else QWEN_30B if name.startswith("Qwen3") else MOONLIGHT
    modules = row["recompute"].removeprefix("selective:").split("+") if row["recompute"] else ["none"]
    layout = {key: count(row[column]) for key, column in (("tp", "tp"), ("pp", "pp"), ("vpp", "vp"), ("ep", "ep"))}
    return Job.from_dict(
        {
            "model": dict(model),
            "train": {
                "micro_batch": count(row["mbs"]),
                "global_batch": count(row["gbs"]),
                "precision": "fp8" if "FP8" in row["precision"] else "bf16",
                "recompute": modules,
                "dispatcher": "alltoall" if row["note"].startswith("alltoall") else "",
            },
            "layout": layout | {"overlap_ep": overlaps(row["note"])},
            "cluster": {"gpus": count(row["gpus"]), "gpu": row["gpu"]},
        }
    )


def measured(row: dict[str, str], quantity: str) -> float:
    """Bytes or a time: TFLOP/s are turned over where no step is printed (the same model and batch in both rows)."""
    if quantity == "mem":
        return number(row["mem"]) or 0.0
    return number(row["step_s"]) or 1 / (number(row["tflops_gpu"]) or 1)


def modelled(row: dict[str, str], quantity: str) -> float:
    each = predict(job_of(row))
    return each.memory.total if quantity == "mem" else each.step_s


def same_sign(before: tuple[float, float], after: tuple[float, float]) -> bool:
    """(measured, modelled) of both rows: do they move the same way?"""
    return (after[0] - before[0]) * (after[1] - before[1]) > 0


def long_job(row: dict[str, str], context: int, tp: int) -> dict[str, Any]:
    gpus = count(row["gpus"])
    return {
        "model": {
            **{"layers": 32, "hidden": 4096, "heads": 32, "ffn": 11008, "vocab": 32000},
            "seq_len": count(row["seq"]),
        },
        "train": {"micro_batch": 1, "global_batch": count(row["gbs"]), "precision": "fp8", "recompute": "none"},
        "layout": {"tp": tp, "pp": 1, "cp": context, "dp": gpus // tp // context},
        "cluster": {"gpus": gpus, "gpu": row["gpu"]},
    }


def long_pair(rows: dict[int, dict[str, str]], numbers: tuple[int, int]) -> tuple[str, bool]:
    """Does the model, too, prefer the printed layout with CP over the best it finds without?"""
    with_cp, without = rows[numbers[0]], rows[numbers[1]]
    described = long_job(with_cp, count(with_cp["cp"]), count(with_cp["tp"]))
    mine = predict(Job.from_dict(described)).step_s
    described["search"] = {"allowed_cp": [1]}
    found = search(Job.from_dict(described), top=1).candidates
    best = found[0].prediction.step_s if found else float("inf")
    better = (number(with_cp["tflops_gpu"]) or 0) > (number(without["tflops_gpu"]) or 0)
    return f"CP {with_cp['cp']} at {with_cp['seq']} tokens against the best without CP", (mine < best) == better


def pairs() -> list[tuple[str, bool]]:
    """Every pair with its verdict."""
    memory = {int(row["row"]): row for row in table("mbridge_memory_ab")}
    found = []
    for pair in PAIRS:
        before, after = (
            (measured(memory[n], pair.quantity), modelled(memory[n], pair.quantity)) for n in (pair.before, pair.after)
        )
        name = f"{memory[pair.before]['model'][:18]} rows {pair.before}, {pair.after}: {pair.changed} ({pair.quantity})"
        found.append((name, same_sign(before, after)))
    long = {int(row["row"]): row for row in table("nemo_long_sequence")}
    return [*found, *(long_pair(long, numbers) for numbers in LONG_PAIRS)]


def print_pairs() -> None:
    found = pairs()
    right = sum(verdict for _, verdict in found)
    print(f"\nclean pairs: the sign is right in {right} of {len(found)} ({right / len(found):.0%}, bar 90 %)")
    for name, verdict in found:
        print(f"  {'ok  ' if verdict else 'LOST'} {name}")
