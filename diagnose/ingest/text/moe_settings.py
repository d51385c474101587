"""Settings of mixtures of experts that frameworks print at the start, as `settings` keyed `moe.<name>`.

Megatron-LM prints all its arguments (`moe_aux_loss_coeff ..... 0.001`); wrappers print them as `key = value` or `key:
value`, DeepSpeed and others as parts of their configuration. Values are text as printed; `None` means that the feature
is off (a capacity factor of None drops nothing). What a setting means to the job is judged in `moe_setup`.
"""

from __future__ import annotations

import re
from typing import Any

from diagnose.ingest.text._lines import Lines
from diagnose.schema import INGESTED, Tables

NAMES = {
    "moe_expert_capacity_factor": "capacity_factor", "expert_capacity_factor": "capacity_factor",
    "moe_pad_expert_input_to_capacity": "pad_to_capacity", "moe_token_drop_policy": "drop_policy",
    "moe_router_topk": "topk", "moe_router_load_balancing_type": "balancing",
    "moe_aux_loss_coeff": "aux_loss_coeff", "moe_z_loss_coeff": "z_loss_coeff",
    "moe_router_force_load_balancing": "force_balance", "debug_force_load_balance": "force_balance",
    "moe_router_enable_expert_bias": "expert_bias", "moe_router_bias_update_rate": "bias_update_rate",
    "moe_token_dispatcher_type": "dispatcher", "moe_enable_deepep": "deepep",
    "moe_flex_dispatcher_backend": "dispatcher_backend", "moe_router_num_groups": "router_groups",
    "moe_router_group_topk": "router_group_topk", "moe_router_dtype": "router_dtype",
    "moe_per_layer_logging": "per_layer_logging", "moe_layer_freq": "layer_freq",
    "moe_shared_expert_overlap": "shared_expert_overlap", "overlap_moe_expert_parallel_comm": "overlap_dispatch",
    "load_balance_coeff": "bias_update_rate", "num_experts": "experts", "moe_drop_tokens": "drop_tokens",
}  # fmt: skip
"""Printed name -> key behind `moe.`. Sources: Megatron-LM arguments.py, transformer_config.py, torchtitan MoEArgs."""

MARK = rf"(?:^|[\s\['\"])(?:{'|'.join(NAMES)})['\"\]]?(?: \.{{3,}} | ?[=:] ?)"
_PAIR = re.compile(
    rf"(?:^|[\s\['\"])({'|'.join(NAMES)})['\"\]]?(?: \.{{3,}} | ?[=:] ?)(\[[^\]]*\]|['\"]?[\w.+-]+['\"]?)"
)


class Reader:
    """The last printed value of every setting."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def feed(self, lines: Lines) -> int:
        """Read lines with settings; how many there were. Notes on ignored keys are no settings."""
        known = 0
        for _, text in lines.rows():
            if "gnored" in text:
                continue
            for name, value in _PAIR.findall(text):
                self.found[f"moe.{NAMES[name]}"] = value.strip("'\"")
                known += 1
        return known

    def tables(self, path: str) -> Tables:
        """`settings` rows."""
        rows: dict[str, Any] = {"key": list(self.found), "value": list(self.found.values())}
        return {"settings": INGESTED["settings"].build(rows | {"source": [path] * len(self.found)})}
