"""Ingested tables of mixtures of experts: what routers were recorded to do, call by call and expert by expert.

A *router call* sends each of its tokens to `topk` experts. Counts can be taken before tokens are dropped for lack of
capacity or after, and records often do not say which: then they stand in `tokens_count`, and the derived table
`router_load` settles it. A job without a capacity factor drops nothing (dropless), which is a fact, not a zero.
"""

from __future__ import annotations

from diagnose.schema.tables import BOOL, FLOAT, INT32, INT64, LABEL, TableSchema, table

MOE: dict[str, TableSchema] = {
    "router_calls": table(
        "record of one router: one step and layer, of one rank or of all",
        ("file", INT32, "index in files"),
        ("record", INT64, "number of the record in its file; the key of `router`"),
        ("rank", INT32, "global rank whose tokens were routed; null: unknown, or all ranks together"),
        ("step", INT64, "step number as recorded"),
        ("segment", INT32, "stretch between restarts, from 0; null where a file has no order"),
        ("layer", INT32, "layer as recorded; null: the only one, or all together"),
        ("phase", LABEL, "forward | recompute | eval, where recorded"),
        ("scope", LABEL, "rank: of this rank's tokens | all: of all ranks' together; null: the record does not say"),
        ("tokens_entered_count", INT64, "tokens that entered the router"),
        ("topk", INT32, "experts per token"),
        ("experts_count", INT32, "experts of the layer, where recorded beside the counts"),
        ("ep_size", INT32, "expert-parallel degree"),
        ("capacity_factor", FLOAT, "room per expert over an even share; null: none, or not recorded"),
        ("dropless", BOOL, "true: the record says that there is no capacity; null: it does not say"),
        ("capacity_count", INT64, "room per expert in tokens, as recorded"),
        ("dropped_count", INT64, "assignments dropped, as recorded"),
        ("line", INT64, "where it stands in the file, from 1"),
    ),
    "router": table(
        "expert in a router call, with the assignments recorded for it",
        ("file", INT32, "index in files"),
        ("record", INT64, "row of router_calls with this file and record"),
        ("rank", INT32, "as in router_calls"),
        ("expert", INT32, "expert number over all ranks, from 0"),
        ("tokens_count", INT64, "assignments, where the record does not say whether before or after a drop"),
        ("routed_count", INT64, "assignments before any drop"),
        ("kept_count", INT64, "assignments that the expert worked on"),
    ),
}

SETTING_NAMES = {
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
"""Setting as frameworks print it -> key behind `moe.`. Sources: Megatron-LM arguments.py, torchtitan MoEArgs."""
