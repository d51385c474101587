"""What the sources of the validation tables state about their runs beyond the columns: links, kernels, framework.

Every fact is from the source a table names, or a default of the software it ran; none is taken from a measured column.
"""

from __future__ import annotations

import re
from typing import Any

from benchmarks.validation_bridge import bridge, experts
from benchmarks.validation_cells import count, number, overlaps
from diagnose.planner import Job, predict

GB = 1e9


def zero(text: str) -> int:
    if "dist-opt" in text:
        return 1
    if text.startswith("FSDP("):
        return 3
    found = re.search(r"(?:ZeRO-|FSDP-)(\d)", text)
    return int(found.group(1)) if found else 0


def recompute(text: str) -> list[str] | str:
    if text.startswith("full"):
        return "full"
    return ["selective"] if text.startswith("selective") else "none"


def mosaic(raw: dict[str, str]) -> dict[str, Any]:
    """Composer FSDP; Triton flash attention, the first algorithm; RoCE 1600 Gb/s a node on A100, 3200 on H100.

    Composer's mixed precision DEFAULT reduces gradients in fp32, PURE in bf16. llm-foundry's loss_fn is
    fused_crossentropy (flash-attn).
    """
    precision = "fp8" if "fp8" in raw["precision"] else "bf16"
    return {
        "model": {"gated": False, "tied": True},
        "train": {
            "precision": precision,
            "grad_dtype": "fp32" if "DEFAULT" in raw["precision"] else "bf16",
            "attention_kernel": "flash1",
            "fusion": "norms",
            "loss": "fused",
        },
        "cluster": {"inter_bytes_per_s": (50 if raw["gpu"].startswith("H100") else 25) * GB},
        "search": {"framework": "fsdp"},
    }


def bloom(raw: dict[str, str]) -> dict[str, Any]:
    """Megatron-DeepSpeed on Jean Zay: 4 Omni-Path 100 Gb/s links a node of 8, no overlap, no sequence parallel."""
    pp, hidden = count(raw["pp"]), count(raw["hidden"])
    estimate = ((number(raw["params_b"]) or 0) / 200 * 80) if hidden == 14400 else 0
    bf16 = "bf16" in raw["precision"]
    return {
        "layers": max(pp, round(estimate / pp) * pp),
        "model": {"gated": False, "tied": True},
        "train": {
            "precision": "bf16" if bf16 else "fp16",
            "grad_dtype": "fp32" if "bf16-optimizer" in raw["note"] else "fp16",
            "attention_kernel": "unfused",
            "dropout": True,
        },
        "layout": {"overlap_grad_reduce": False},
        "cluster": {"inter_bytes_per_s": 4 * 12.5 * GB / 8},
        "search": {"framework": "deepspeed"},
    }


def selene(raw: dict[str, str]) -> dict[str, Any]:
    """Megatron-LM of 2021 / 2022 on DGX A100, 8 x 200 Gb/s: score matrices in memory, dropout, no gradient overlap.

    DeepSpeed reduces in fp16, Megatron in fp32.
    """
    vpp, deepspeed = count(raw["vp"]), "ZeRO-3" in raw["zero"]
    if "run_table_1" in raw["vp"]:  # two to four layers a chunk: examples/academic_paper_scripts/sc21/run_table_1.sh
        vpp = {2: 2, 4: 2, 8: 2, 16: 2, 35: 1, 64: 1}.get(count(raw["pp"]), 1)
    return {
        "model": {"gated": False, "tied": True},
        "train": {
            "precision": "fp16",
            "grad_dtype": "fp16" if deepspeed else "fp32",
            "attention_kernel": "unfused",
            "dropout": True,
        },
        "layout": {"overlap_grad_reduce": False, "vpp": vpp},
        "cluster": {"inter_bytes_per_s": 25 * GB},
        "search": {"framework": "deepspeed" if deepspeed else "megatron"},
    }


def torchtitan(raw: dict[str, str]) -> dict[str, Any] | None:
    """FSDP2 on 8 x 400 Gb/s; memory is the caching allocator's, so no context; local batch is split into
    micro-batches. The loss was not compiled in 2024 (train.py: "compiling loss function causes CUDA errors"). Tensor
    parallel inputs are gathered in 8 bits unless scales are row-wise (infra/parallelize.py)."""
    text = raw["precision"] + raw["note"]
    stages = count(raw["pp"])  # pipeline micro-batches default to one per stage of the schedule (torchtitan config)
    chunks = 2 if raw["vp"].startswith(">1") else 1
    micro = max(1, count(re.sub(r"^LBS ", "", raw["mbs"])) // (stages * chunks)) if stages > 1 else count(raw["mbs"])
    gbs = count(raw["gbs"]) or micro * count(raw["gpus"])
    scaled = "fp8" in text.lower() or "float8" in text.lower()
    return {
        "train": {
            "precision": "fp8" if scaled else "bf16",
            "micro_batch": micro,
            "global_batch": gbs,
            "zero": 3,
            "grad_dtype": "fp32",
            "fusion": "all" if "compile" in text else "none",
            "loss": "fused" if "compile" in text and "2024" not in raw["source"] else "torch",
            "attention_kernel": "flash2",
            "recompute": "full" if raw["recompute"].startswith("full") else ["every_other_product"],
            "gather_dtype": "fp8" if scaled and "rowwise" not in text else "bf16",
        },
        "layout": {
            "overlap_tp": "async" in text.lower() and "vanilla" not in text,
            "vpp": chunks,
        },
        "cluster": {"inter_bytes_per_s": 50 * GB},
        "search": {"framework": "torchtitan"},
    }


def readme(raw: dict[str, str]) -> dict[str, Any] | None:
    """Megatron-Core r0.8 on Eos, 8 x 400 Gb/s: transformer engine, gradients and TP overlapped.

    Micro-batch and chunks are not printed; a published benchmark is tuned, so the pair the model finds fastest is
    taken.
    """
    if not raw["gpu"].startswith("H100") or not number(raw["step_s"]):
        return {}
    return {
        "model": {"gated": False},
        "train": {"grad_dtype": "fp32", "attention_kernel": "cudnn"},
        "layout": {"overlap_tp": True},
        "cluster": {"inter_bytes_per_s": 50 * GB},
        "tuned": True,
    }


def tuned(job: dict[str, Any]) -> dict[str, Any]:
    """The description with the micro-batch and chunk count of the fastest prediction that fits."""
    layout, gbs, layers = job["layout"], job["train"]["global_batch"], job["model"]["layers"]
    dp = job["cluster"]["gpus"] // (layout["tp"] * layout["pp"] * layout["cp"])
    best: tuple[float, dict[str, Any]] | None = None
    for micro in (m for m in (1, 2, 4) if gbs % (dp * m) == 0):
        for chunks in (v for v in range(1, layers // layout["pp"] + 1) if layers % (layout["pp"] * v) == 0):
            if chunks > 1 and (layout["pp"] == 1 or gbs // dp // micro % layout["pp"]):
                continue
            trial = job | {
                "train": job["train"] | {"micro_batch": micro},
                "layout": layout | {"vpp": chunks},
            }
            found = predict(Job.from_dict(trial))
            if found.fits is not False and (best is None or found.step_s < best[0]):
                best = found.step_s, trial
    assert best is not None, job
    return best[1]


def nanotron(raw: dict[str, str]) -> dict[str, Any]:
    """nanotron on 8-GPU H100 nodes with 3200 Gb/s EFA: second-generation flash attention.

    scripts/scaling_benchmarks.py: tied embeddings below an FFN of 10,000, fp32 accumulation. ZeRO-0
    is PyTorch's DDP, whose hooks overlap the all-reduce; ZeRO-1 reduces after the backward pass. Its asynchronous
    TP runs only the local chunk while the others travel, so TP counts as exposed.
    """
    return {
        "model": {"tied": count(raw["ffn"]) < 10_000},
        "train": {"grad_dtype": "fp32", "attention_kernel": "flash2", "fusion": "norms"},
        "layout": {"overlap_grad_reduce": zero(raw["zero"]) == 0},
        "cluster": {"inter_bytes_per_s": 50 * GB},
        "search": {"framework": "nanotron"},
    }


def llama3(raw: dict[str, str]) -> dict[str, Any]:
    """Llama 3 405B on RoCE 400 Gb/s a GPU: interleaved (two layers a chunk here), FSDP that gathers weights once."""
    return {
        "train": {"grad_dtype": "fp32", "attention_kernel": "cudnn", "zero": 2},
        "layout": {"vpp": 4},
        "cluster": {"inter_bytes_per_s": 50 * GB},
    }


def generic(raw: dict[str, str]) -> dict[str, Any]:
    """A table this file does not know: what its own columns say about software and precision."""
    text = " ".join((raw["zero"], raw["model"], raw["note"], raw["source"], raw["precision"])).lower()
    old = raw["gpu"].startswith("V100") or "fp16" in raw["precision"].lower()
    bits = "nvfp4" if "fp4" in text else "fp8" if "fp8" in raw["precision"].lower() else "fp16" if old else "bf16"
    framework = "torchtitan" if "fsdp" in text else "deepspeed" if "deepspeed" in text else "megatron"
    return {
        "model": {"gated": count(raw["ffn"], 0) != 4 * count(raw["hidden"]) and not old}
        | (experts(raw) if raw["n_experts"] else {}),
        "train": {
            "precision": bits,
            "attention_kernel": "unfused" if old else "",
            "dropout": old,
            "dispatcher": "alltoall" if "alltoall" in text else "",
        },
        "layout": {"overlap_grad_reduce": not old, "overlap_ep": overlaps(raw["note"])},
        "search": {"framework": framework},
    }


FACTS = {
    "llama3_table4": llama3,
    "mosaicml_llmfoundry": mosaic,
    "bloom176b_jeanzay": bloom,
    "narayanan2021_table1": selene,
    "narayanan2021_table2": selene,
    "korthikanti2022_table5_time": selene,
    "torchtitan": torchtitan,
    "megatron_bridge_perf": bridge,
    "megatron_lm_readme": readme,
    "nanotron_ultrascale": nanotron,
}
