"""Lines that training frameworks print per step: how each is known, where its step stands, and what its pairs are.

Patterns are RE2, searched anywhere in a line, because launchers print their own text in front. `pair` has two groups,
key and value, and finds all pairs of `body`. Order matters: NeMo's lines look like Megatron's too. Sources: as in
`diagnose.formulas.metrics`; Megatron-LM core 0.4 to 0.16, Megatron-DeepSpeed, Primus, DeepSpeed 0.5 to 0.17,
torchtitan 0.1 to 0.2, nanotron, NeMo 2, Composer 0.17, transformers 4 and 5, modded-nanogpt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf|NaN|Infinity)"
BARS = "key: value | key: value"
"""Not a pattern: pairs are split at bars and colons, which is faster than to find them."""


class Format(NamedTuple):
    """One family of lines."""

    name: str
    literal: str
    """Plain text that all of them hold: looked for first, because it is fast."""
    mark: str
    step: str
    """One group: the step number; empty where the line has none."""
    body: str
    """One group: the text that holds the pairs; not needed where pairs are told by bars."""
    pair: str
    renamed: Mapping[str, tuple[str, float]] = {}
    """Keys whose meaning only this framework fixes -> canonical name and factor."""
    exclusive: bool = False
    """Its lines are no other format's."""
    prefix: str = ""
    """Put in front of names that no list knows."""
    unit: str = ""
    """Unit of values that are printed without one."""
    follows: bool = False
    """Its lines have no step: they belong to the step line above them."""


MEMORY_MIB = {
    "allocated": ("memory_allocated_bytes", 2.0**20),
    "max allocated": ("peak_memory_allocated_bytes", 2.0**20),
    "reserved": ("memory_reserved_bytes", 2.0**20),
    "max reserved": ("peak_memory_reserved_bytes", 2.0**20),
    "total device memory used": ("device_memory_used_bytes", 2.0**20),
}
COMPOSER_GB = {
    "memory/allocated_mem": ("memory_allocated_bytes", 1e9),
    "memory/active_mem": ("active_memory_bytes", 1e9),
    "memory/reserved_mem": ("memory_reserved_bytes", 1e9),
    "memory/peak_allocated_mem": ("peak_memory_allocated_bytes", 1e9),
    "memory/peak_reserved_mem": ("peak_memory_reserved_bytes", 1e9),
}
_LAST = {"hip mem usage/free/total/usage_ratio": ("device_memory_used_bytes", 2.0**30)}

FORMATS = (
    Format("nemo", "Training epoch", r"Training epoch \d+, iteration \d+/\d+",
           r"global_step: (\d+)", "", BARS, exclusive=True),
    Format("megatron", "iteration", r"\biteration\s+\d+/\s*\d+ \|", r"\biteration\s+(\d+)/",
           "", BARS, _LAST, exclusive=True),
    Format("nanotron", "iteration: ", r"\biteration: \d+ / \d+ \|", r"\biteration: (\d+) / ",
           "", BARS, exclusive=True),
    Format("megatron_memory", "memory (MB)", r"\(after \d+ iterations\) memory \(MB\)|memory \(MB\) after \d+ iter",
           r"after (\d+) iter", "", BARS, MEMORY_MIB, exclusive=True),
    Format("torchtitan", "step:", r"(?:^|[^\w])step:\s+\d+\s.*loss:", r"\bstep:\s+(\d+)", r"\bstep:\s+\d+(.*)",
           rf"([a-z_]+):\s*({NUMBER}[A-Za-z%]*)",
           {"memory": ("peak_memory_reserved_bytes", 2.0**30), "mfu": ("mfu_ratio", 0.01)}),
    Format("deepspeed", "SamplesPerSec=", r"SamplesPerSec=", r"(?:global_step=|\d+/)(\d+), ",
           r"(?:global_step=|\d+/)\d+, (.*)", rf"(\w+)=({NUMBER}[A-Z]*)", {"SamplesPerSec": ("samples_per_s", 1.0)}),
    Format("deepspeed_step", "skipped=", r"step=\d+, skipped=\d+", r"\bstep=(\d+), ", r"\bstep=\d+, (.*)",
           rf"(\w+)=\[?({NUMBER})"),
    Format("modded_nanogpt", "train_time:", r"\bstep:\d+/\d+ .*train_time:", r"\bstep:(\d+)/", r"\bstep:\d+/\d+(.*)",
           rf"([a-z_]+):({NUMBER}m?s?)",
           {"train_time": ("elapsed_time_ns", 1e6), "step_avg": ("mean_step_time_ns", 1e6)}),
    Format("progress", "/", r"\d+/\d+ \[\d[\d:]*<[^\]]*(?:it/s|s/it|ba/s|s/ba|batch/s)", r"\b(\d+)/\d+ \[",
           r"\[\d[\d:]*<[^,\]]*, ([^\]]*)\]?", rf"(?:([\w ]+)=)?({NUMBER}[a-z/]*)"),
    Format("dictionary", "{'", r"\{'(?:loss|eval_loss|train_runtime|grad_norm)': ", "", r"\{(.*?)\}",
           rf"'([^']+)': '?({NUMBER})"),
    Format("composer", "Train ", r"^\s*(?:\S+\s+)?Train [\w./-]+: ", "", r"Train (.*)",
           rf"([\w./-]+): ({NUMBER})$", COMPOSER_GB),
    Format("plain", "step",
           r"\bstep[ =]\d+(?:/\d+)?\b.*(?:loss|step[-_](?:time|ms)|tokens[-_]per[-_](?:s|gpu|dev|rank))",
           r"\bstep[ =](\d+)",
           r"\bstep[ =]\d+(?:/\d+)?(.*)",
           rf"([A-Za-z][\w-]*)[ :=]+({NUMBER}(?: ?(?:sec|ms|s|[KMGT]i?B))?)(?:[\s,|]|$)"),
    Format("megatron_timers", "..: ", r"[a-z][\w-]+ \.{2,}: \(?\d", "", r"(.*)",
           rf"([a-z][\w-]+) \.{{2,}}: (?:\({NUMBER}, )?({NUMBER})\)?", unit="ms", follows=True),
    Format("timers", "time (ms) | ", r"time \(ms\) \| [\w-]+: ", "", "", BARS, unit="ms", follows=True),
    Format("deepspeed_memory", "Max_MA ", r"\bMA [\d.]+ [KMGT]B\s+Max_MA ", "", r"(.*)",
           rf"((?:Max_)?[MC]A) ({NUMBER} [KMGT]B)", follows=True),
)  # fmt: skip

COMPOSER_HEADER = r"\[batch=(\d+)/\d+\]:?"
RESUMED = r"(?i:resum(?:e|ing) (?:training )?from (?:step|iteration|checkpoint|ckpt|/)|successfully loaded checkpoint)"
ARGUMENTS = {
    "tensor_model_parallel_size": "layout.tp", "pipeline_model_parallel_size": "layout.pp",
    "context_parallel_size": "layout.cp", "expert_model_parallel_size": "layout.ep",
    "expert_tensor_parallel_size": "layout.etp", "data_parallel_size": "layout.dp",
    "virtual_pipeline_model_parallel_size": "layout.vpp", "micro_batch_size": "train.micro_batch",
    "global_batch_size": "train.global_batch", "num_layers": "model.layers", "hidden_size": "model.hidden",
    "num_attention_heads": "model.heads", "ffn_hidden_size": "model.ffn", "seq_length": "model.seq_len",
    "num_experts": "model.experts", "moe_router_topk": "model.topk", "padded_vocab_size": "model.vocab",
    "world_size": "cluster.world_size",
}  # fmt: skip
ARGUMENT = rf"(?:^|[\s\[])({'|'.join(ARGUMENTS)})\]?(?: \.{{3,}} | = |: )(\d+)\s*$"
