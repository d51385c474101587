"""Published measurements as jobs: a row of a validation table -> Job, with the facts its source states about the run.

What a table leaves out comes from the source it names (cluster links, framework, kernel generation), never from its
measured columns. Rows that do not reconcile (degrees against GPUs, no layer count) are left out and counted.
"""

from __future__ import annotations

import csv
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose.errors import DiagnoseError
from diagnose.planner import Job, predict

ROOT = Path(os.environ.get("DIAGNOSE_VALIDATION", Path(__file__).parents[2] / "shared" / "validation"))
GIB, GB = 2**30, 1e9


@dataclass(frozen=True)
class Row:
    """One usable row: its job, what was measured (seconds, bytes), and the key its anchor is chosen within."""

    table: str
    number: int
    job: Job
    key: tuple[str, ...]
    step_s: float | None
    memory_bytes: float | None
    oom: bool
    raw: dict[str, str]


def table(name: str) -> list[dict[str, str]]:
    """Rows of one CSV as text."""
    with (ROOT / f"{name}.csv").open(newline="") as handle:
        return list(csv.DictReader(handle))


def number(text: str | None) -> float | None:
    """The first number in a cell, None where it has none."""
    found = re.search(r"-?\d+(?:\.\d+)?", text or "")
    return float(found.group()) if found else None


def count(text: str | None, default: int = 1) -> int:
    found = number(text)
    return default if found is None else int(found)


def rows(name: str) -> tuple[list[Row], int]:
    """Usable rows of a table, and how many were left out."""
    found = [row for row in (read(name, raw) for raw in table(name)) if row is not None]
    return found, len(table(name)) - len(found)


def read(name: str, raw: dict[str, str]) -> Row | None:
    """One row, or None where it does not describe a run that can be modelled."""
    try:
        description = describe(name, raw)
        job = Job.from_dict(description) if description else None
    except DiagnoseError:
        return None
    if job is None:
        return None
    return Row(
        table=name,
        number=int(raw["row"]),
        job=job,
        key=key_of(name, raw),
        step_s=step_seconds(name, raw, job),
        memory_bytes=memory_bytes(raw),
        oom=raw["result"].startswith("OOM"),
        raw=raw,
    )


def key_of(name: str, raw: dict[str, str]) -> tuple[str, ...]:
    """The anchor's group: GPU and precision; for BLOOM the era, for mixtures of experts release and family too."""
    key = (raw["gpu"], number_format(raw))
    if name == "bloom176b_jeanzay":
        return (*key, re.search(r"era=([^;]*)", raw["note"]).group(1))  # type: ignore[union-attr]
    if name == "megatron_bridge_perf" and raw["n_experts"]:
        return (*key, raw["note"].split(" ")[0], family(raw["model"]))
    return key


def number_format(raw: dict[str, str]) -> str:
    """The precision without what is not a precision (compile, asynchronous TP); fp8 recipes stay apart."""
    return re.sub(
        r"[+/](compile|AsyncTP|fp8 all-gather|DEFAULT|PURE|1F1B| )+|, fp32 grad accum", "", raw["precision"]
    ).strip()


def family(model: str) -> str:
    return re.split(r"[_ ]", model)[0].lower()


def memory_bytes(raw: dict[str, str]) -> float | None:
    value = number(raw["mem"])
    return None if value is None else value * (GIB if "GiB" in raw["mem_unit"] else GB)


def step_seconds(name: str, raw: dict[str, str], job: Job) -> float | None:
    """Measured seconds of a step; MFU or tokens/s where the source prints only those."""
    if seconds := number(raw["step_s"]):
        return seconds
    if rate := number(raw["tok_s_gpu"]):
        return job.tokens / rate / job.layout.world_size
    if name == "nanotron_ultrascale" and (mfu := number(raw["mfu_pct"])):
        return nanotron_flop(job) / (mfu / 100 * 989.5e12 * job.layout.world_size)
    return None


def nanotron_flop(job: Job) -> float:
    """nanotron's model FLOPs: block products and head, attention in full (get_flops in nanotron/models/llama.py)."""
    model = job.model
    block = 2 * (4 * model.hidden**2 + 3 * model.hidden * model.ffn) + 4 * model.seq_len * model.hidden
    return 3.0 * job.tokens * (model.layers * block + 2 * model.hidden * model.vocab)


def describe(name: str, raw: dict[str, str]) -> dict[str, Any] | None:
    """The tables of a job.toml for a row."""
    if not raw["hidden"] or not number(raw["gpus"]) or not raw["heads"] or not number(raw["tp"]):
        return None
    facts = FACTS[name](raw)
    layers = count(raw["layers"], 0) or facts.pop("layers", 0)
    if not layers:
        return None
    hidden, heads = count(raw["hidden"]), count(raw["heads"])
    model = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": count(raw["kv_heads"], heads),
        "ffn": count(raw["ffn"], 4 * hidden),
        "vocab": count(raw["vocab"]),
        "seq_len": count(raw["seq"]),
    }
    train = {"global_batch": count(raw["gbs"]), "zero": zero(raw["zero"]), "recompute": recompute(raw["recompute"])}
    layout = {
        key: count(raw[column])
        for key, column in (("tp", "tp"), ("pp", "pp"), ("vpp", "vp"), ("cp", "cp"), ("ep", "ep"))
    }
    layout["sp"] = raw["sp"] != "off"
    job = {
        "model": model | facts.get("model", {}),
        "train": train | facts.get("train", {}),
        "layout": layout | facts.get("layout", {}),
        "cluster": {"gpus": count(raw["gpus"]), "gpus_per_node": count(raw["gpus_per_node"], 8), "gpu": raw["gpu"]}
        | facts.get("cluster", {}),
        "search": facts.get("search", {}),
    }
    lay = job["layout"]
    dp = job["cluster"]["gpus"] / (lay["tp"] * lay["pp"] * lay["cp"])
    if facts.get("tuned"):
        return tuned(job)
    if "micro_batch" not in job["train"]:
        if not (number(raw["mbs"]) and dp >= 1):
            return None
        job["train"]["micro_batch"] = count(raw["mbs"])
    return job


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
    """Composer FSDP; Triton flash attention, the first algorithm; RoCE 1600 Gb/s a node on A100, 3200 on H100."""
    precision = "fp8" if "fp8" in raw["precision"] else "bf16"
    return {
        "model": {"gated": False, "tied": True},
        "train": {
            "precision": precision,
            "grad_dtype": "bf16",
            "attention_kernel": "flash1",
            "fusion": "norms",
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
    """Megatron-LM of 2021 / 2022 on DGX A100, 8 x 200 Gb/s: score matrices in memory, dropout, no gradient overlap."""
    vpp = count(raw["vp"])
    if "run_table_1" in raw["vp"]:  # two to four layers a chunk: examples/academic_paper_scripts/sc21/run_table_1.sh
        vpp = {2: 2, 4: 2, 8: 2, 16: 2, 35: 1, 64: 1}.get(count(raw["pp"]), 1)
    return {
        "model": {"gated": False, "tied": True},
        "train": {"precision": "fp16", "grad_dtype": "fp32", "attention_kernel": "unfused", "dropout": True},
        "layout": {"overlap_grad_reduce": False, "vpp": vpp},
        "cluster": {"inter_bytes_per_s": 25 * GB},
        "search": {"framework": "deepspeed" if "ZeRO-3" in raw["zero"] else "megatron"},
    }


def torchtitan(raw: dict[str, str]) -> dict[str, Any] | None:
    """FSDP2 on 8 x 400 Gb/s; memory is the caching allocator's, so no context; local batch is split into
    micro-batches."""
    text = raw["precision"] + raw["note"]
    stages = count(raw["pp"])  # pipeline micro-batches default to one per stage of the schedule (torchtitan config)
    chunks = 2 if raw["vp"].startswith(">1") else 1
    micro = max(1, count(re.sub(r"^LBS ", "", raw["mbs"])) // (stages * chunks)) if stages > 1 else count(raw["mbs"])
    gbs = count(raw["gbs"]) or micro * count(raw["gpus"])
    return {
        "train": {
            "precision": "fp8"
            if "fp8" in text.lower().replace("bf16/fp8", "fp8") or "float8" in text.lower()
            else "bf16",
            "micro_batch": micro,
            "global_batch": gbs,
            "zero": 3,
            "grad_dtype": "fp32",
            "fusion": "all" if "compile" in text else "none",
            "attention_kernel": "flash2",
            "recompute": "full" if raw["recompute"].startswith("full") else ["every_other_product"],
        },
        "layout": {
            "overlap_tp": "async" in text.lower() and "vanilla" not in text,
            "vpp": chunks,
        },
        "cluster": {"inter_bytes_per_s": 50 * GB},
        "search": {"framework": "torchtitan"},
    }


def bridge(raw: dict[str, str]) -> dict[str, Any] | None:
    """Megatron-Bridge recipes: cuDNN attention, distributed optimizer, CUDA graphs from release 26.06 on."""
    trainable = 0.002 if "LoRA" in raw["note"] else 1.0
    precision = raw["precision"].upper()
    bits = "nvfp4" if "NVFP4" in precision else "bf16" if precision == "BF16" else "fp8"
    graphs = raw["note"].split(" ")[0] >= "26.06"
    facts: dict[str, Any] = {
        "layout": {"overlap_tp": not raw["n_experts"]},
        "train": {
            "cuda_graphs": graphs,
            "precision": bits,
            "grad_dtype": "bf16",
            "trainable_ratio": trainable,
            "attention_kernel": "cudnn",
        },
        "cluster": {"gpus_per_node": 8 if raw["gpu"] in ("H100", "B200", "B300") else 4},
        "model": {},
    }
    if raw["n_experts"]:
        facts["model"] = experts(raw)
    if "tokendrop" in raw["model"]:
        facts["train"] |= {"routing": "capacity"}
    return facts


def experts(raw: dict[str, str]) -> dict[str, Any]:
    model = {"experts": count(raw["n_experts"]), "topk": count(raw["topk"]), "expert_ffn": count(raw["moe_ffn"])}
    name = raw["model"]
    if name.startswith("DeepSeekV3"):
        mla = {"attention": "mla", "kv_heads": 128, "head_dim": 128, "q_lora": 1536, "kv_lora": 512, "rope_dim": 64}
        return model | mla | {"dense_layers": 3, "shared_ffn": 2048}
    head = {"Qwen3": 128, "GPT": 64}
    return model | {"head_dim": head.get(re.split(r"[_ ]", name)[0], 128), "ffn": count(raw["moe_ffn"])}


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


def flop_per_gpu(row: Row) -> float:
    """Model FLOPs per GPU and step: what orders the rows when the anchor is chosen, and the naive baseline's only
    input."""
    from diagnose.planner.prediction import model_flop

    value = model_flop(row.job, causal=False) / row.job.layout.world_size
    assert math.isfinite(value)
    return value
