"""`job.toml`: facts about the job that its recordings do not carry, as `settings` rows keyed `section.key`.

A value is its JSON text (lists, booleans, numbers), a string is itself. An unknown section or key is kept, and said: it
is a spelling mistake or meant for a newer version. What the values mean, and whether they agree with each other, is not
judged here.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from typing import Any

from diagnose.errors import InputError
from diagnose.ingest import Options, Source, quality
from diagnose.schema import INGESTED, Tables

KEYS: dict[str, tuple[str, ...]] = {
    "model": (
        "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "seq_len", "gated", "tied", "experts",
        "topk", "expert_ffn", "shared_ffn", "dense_layers", "capacity_factor", "attention", "q_lora", "kv_lora",
        "rope_dim",
    ),
    "train": (
        "micro_batch", "global_batch", "precision", "grad_dtype", "optimizer", "zero", "shard_group", "recompute",
        "offload_ratio", "trainable_ratio", "dispatch_dtype", "combine_dtype", "routing", "attention_kernel", "fusion",
        "loss", "dispatcher", "gather_dtype", "cuda_graphs", "graph_scope", "dropout",
    ),
    "layout": (
        "dp", "tp", "pp", "ep", "cp", "etp", "vpp", "sp", "stage_layers", "schedule", "rank_order",
        "overlap_grad_reduce", "overlap_tp", "overlap_ep",
    ),
    "cluster": (
        "nodes", "gpus", "gpus_per_node", "gpu", "gpu_memory_bytes", "fast_domain", "intra_bytes_per_s",
        "inter_bytes_per_s", "intra_latency_ns", "inter_latency_ns", "racks",
    ),
    "search": ("gpus", "max_gpus", "fixed_global_batch", "framework"),
}  # fmt: skip
"""Every key of every section. `search` also takes `allowed_<dimension>`."""

_HEADER = re.compile(rb"^\s*\[\s*(model|train|layout|cluster|search)\s*\]\s*(#.*)?$", re.MULTILINE)
_ASSIGNMENT = re.compile(rb"^\s*[A-Za-z_][\w.]*\s*=\s*\S", re.MULTILINE)


def sniff(head: bytes, name: str) -> bool:
    """Whether the text has a section of job.toml, or is TOML by name and looks like it."""
    if b"\0" in head or head.lstrip()[:1] in (b"{", b"<"):
        return False
    return bool(_HEADER.search(head)) or (name.lower().endswith(".toml") and bool(_ASSIGNMENT.search(head)))


def read(source: Source, options: Options) -> Tables:
    """`settings` of the file. InputError where it is not TOML, with the line."""
    try:
        given = tomllib.loads(b"".join(source.chunks()).decode("utf-8", "replace"))
    except tomllib.TOMLDecodeError as error:
        raise InputError(source.label, f"invalid TOML ({error})", "a job.toml", "correct that line") from error
    pairs = list(_pairs(given))
    unknown = [key for key, _ in pairs if not _is_known(key)]
    notes = []
    if unknown:
        said = ", ".join(f"{key}{_hint(key)}" for key in unknown)
        notes = [
            {"problem": "unknown_setting", "path": source.label, "count": len(unknown), "detail": f"not used: {said}"}
        ]
    files = {
        "file": [0],
        "path": [source.label],
        "kind": ["job"],
        "events_count": [len(pairs)],
        "status": ["ok"],
        "detail": [""],
    }
    rows = {
        "key": [key for key, _ in pairs],
        "value": [value if isinstance(value, str) else json.dumps(value, default=str) for _, value in pairs],
        "source": [source.label] * len(pairs),
    }
    return {
        "files": INGESTED["files"].build(files),
        "settings": INGESTED["settings"].build(rows),
        "quality": quality(notes),
    }


def _pairs(given: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in given.items():
        name = f"{prefix}{key}"
        pairs += _pairs(value, f"{name}.") if isinstance(value, dict) and value else [(name, value)]
    return pairs


def _is_known(key: str) -> bool:
    section, _, name = key.partition(".")
    return name in KEYS.get(section, ()) or (section == "search" and name.startswith("allowed_"))


def _hint(key: str) -> str:
    known = [f"{section}.{name}" for section, names in KEYS.items() for name in names]
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.75)
    return f" (meant {close[0]}?)" if close else ""
