"""What the Megatron-Bridge repository states about the runs of its performance pages: kernels, graphs, dispatchers.

Read in scripts/performance/configs of the releases; none is taken from a measured column.
"""

from __future__ import annotations

import re
from typing import Any

from benchmarks.validation_cells import count


def bridge(raw: dict[str, str]) -> dict[str, Any] | None:
    """Recipes: cuDNN attention, distributed optimizer, fused loss, CUDA graphs of everything from release 26.06 on."""
    trainable = 0.002 if "LoRA" in raw["note"] else 1.0
    precision = raw["precision"].upper()
    bits = "nvfp4" if "NVFP4" in precision else "bf16" if precision == "BF16" else "fp8"
    facts: dict[str, Any] = {
        "layout": {"overlap_tp": not raw["n_experts"]},
        "train": {
            "cuda_graphs": raw["note"].split(" ")[0] >= "26.06",
            "precision": bits,
            "grad_dtype": "bf16",
            "trainable_ratio": trainable,
            "attention_kernel": "cudnn",
            "loss": "fused",
        },
        "cluster": {"gpus_per_node": 8 if raw["gpu"] in ("H100", "B200", "B300") else 4},
        "model": {},
    }
    if raw["n_experts"]:
        facts["model"] = experts(raw)
        facts["train"] |= bridge_experts(raw)
        facts["layout"]["overlap_ep"] = bridge_overlap(raw)
    if "tokendrop" in raw["model"]:
        facts["train"] |= {"routing": "capacity"}
    return facts


def bridge_experts(raw: dict[str, str]) -> dict[str, Any]:
    """scripts/performance/configs/qwen*: Blackwell recipes before 26.06 capture attention, router and preprocessing
    (transformer_engine), but for Qwen3-235B on B200 and B300, which like H100 takes plain all-to-all and no graphs."""
    large, name = "235B" in raw["model"], raw["gpu"]
    plain = name == "H100" or (large and name in ("B200", "B300"))
    release = raw["note"].split(" ")[0]
    captured = not plain and "25.11" <= release < "26.06"
    found: dict[str, Any] = {"cuda_graphs": True, "graph_scope": "dense"} if captured else {}
    return found | ({"dispatcher": "alltoall"} if plain and large else {})


def bridge_overlap(raw: dict[str, str]) -> bool:
    """moe_a2a_overlap of the same files: Qwen3-235B on H100 in all releases, on B200 in 25.11 and on B300 in 26.02;
    Qwen3-30B on H100 until it took 16-way expert parallelism."""
    name, release = raw["gpu"], raw["note"].split(" ")[0]
    if not raw["model"].startswith("Qwen3") or release < "25.11":
        return False
    if name == "H100":
        return "235B" in raw["model"] or raw["pp"] != "1"
    return "235B" in raw["model"] and ((name == "B200" and release == "25.11") or (name == "B300" and raw["vp"] == "4"))


def experts(raw: dict[str, str]) -> dict[str, Any]:
    model = {"experts": count(raw["n_experts"]), "topk": count(raw["topk"]), "expert_ffn": count(raw["moe_ffn"])}
    name = raw["model"]
    if name.startswith("DeepSeekV3"):
        mla = {"attention": "mla", "kv_heads": 128, "head_dim": 128, "q_lora": 1536, "kv_lora": 512, "rope_dim": 64}
        return model | mla | {"dense_layers": 3, "shared_ffn": 2048}
    head = {"Qwen3": 128, "GPT": 64}
    return model | {"head_dim": head.get(re.split(r"[_ ]", name)[0], 128), "ffn": count(raw["moe_ffn"])}
