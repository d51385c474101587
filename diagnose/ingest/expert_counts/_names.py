"""What the columns of router records are called: names of counts per expert, and of the facts beside them.

Names are compared in lower case with one separator; a layer in a name (`moe/layer_3/tokens_per_expert`) and a number
behind it (`expert_7`) are taken out first. Sources: Megatron-LM and Megatron Core routers, DeepSpeed sharded_moe,
torchtitan and TorchTitan-style `tokens_per_expert`, transformers, tutel, and names users print.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TOKENS, ROUTED, KEPT, PERCENT = "tokens_count", "routed_count", "kept_count", "percent"
KINDS = (TOKENS, ROUTED, KEPT)

_COUNTS = {
    TOKENS: "tokens_per_expert|num_tokens_per_expert|local_tokens_per_expert|global_tokens_per_expert"
    "|expert_counts?|exp_counts?|experts_counts?|expert_loads?|load|counts|expert_tokens|token_counts?"
    "|tokens_per_local_expert|expert_histogram|expert_usage|router_counts?",
    ROUTED: "routed(?:_tokens)?_per_expert|tokens_per_expert_before_(?:drop|capacity)|assigned(?:_tokens)?_per_expert"
    "|routed_counts?|demand_per_expert|raw_tokens_per_expert",
    KEPT: "kept(?:_tokens)?_per_expert|tokens_per_expert_after_(?:drop|capacity)|processed(?:_tokens)?_per_expert"
    "|kept_counts?|recv_per_local_expert|received_per_expert|tokens_recv_per_expert",
    PERCENT: "expert_load_pct|expert_pct|load_pct|expert_load_percent|expert_percent(?:age)?s?|load_percent"
    "|tokens_per_expert_pct|expert_usage_pct",
}  # fmt: skip
_SINGLE = {
    TOKENS: "count|counts|tokens|tokens_count|num_tokens|load|token_count|n_tokens",
    ROUTED: "routed|routed_count|routed_tokens|assigned|assigned_count",
    KEPT: "kept|kept_count|kept_tokens|processed|processed_count",
    PERCENT: "pct|percent|load_pct|share_pct",
}
_FACTS = {
    "layer": "layer|layer_id|layer_idx|layer_index|layer_number|layer_num|moe_layer|layer_name|block|module",
    "expert": "expert|expert_id|expert_idx|expert_index",
    "rank": "rank|global_rank",
    "ep_rank": "ep_rank|expert_parallel_rank|expert_model_parallel_rank",
    "ep_size": "ep_size|ep|ep_world_size|expert_parallel_size|expert_model_parallel_size|num_ep_ranks",
    "phase": "phase|mode|stage",
    "tokens_entered": "tokens|num_tokens|tokens_count|tokens_in|total_tokens|n_tokens|input_tokens|tokens_entered",
    "topk": "top_k|topk|k|moe_router_topk|router_topk|num_experts_per_tok|experts_per_token",
    "experts": "num_experts|n_experts|experts_count|experts|n_routed_experts|num_routed_experts|moe_num_experts",
    "capacity_factor": "capacity_factor|expert_capacity_factor|moe_expert_capacity_factor|cf|train_capacity_factor",
    "capacity": "capacity|expert_capacity|capacity_count|capacity_per_expert|tokens_capacity",
    "dropped": "dropped|dropped_tokens|num_dropped|tokens_dropped|dropped_count|num_dropped_tokens|drops",
}  # fmt: skip
FACTS = tuple(_FACTS)
NESTS = ("moe", "router", "routers", "routing", "layers", "moe_layers", "router_stats")
"""Keys whose value is a list of records, one per layer, or an object of them by layer."""

_LAYER = re.compile(r"(?:^|(?<=[_/.]))(?:layers?|blocks?|h)[_./\[]?(\d+)\]?(?=$|[_/.])[_/.]?")
_NUMBERED = re.compile(r"^(?P<name>.*?expert(?:_load|_count|_tokens|_pct|s)?)[_./\[]?(?P<expert>\d+)\]?$")
_PREFIX = re.compile(r"^(?:(?:train|moe|router|metrics|mlp|ffn|stats|global)[_/.])+")
_GLOBAL = re.compile(r"(?:^|[_/.])global(?:$|[_/.])")
_VAGUE = ("load", "counts")
"""Names that many files use for something else: counts of experts only beside a layer, top-k or number of experts."""


class Meaning(NamedTuple):
    """What one column holds: counts of experts (of `expert`, where one column is one expert), of `layer` if named."""

    kind: str
    layer: int | None = None
    expert: int | None = None
    of_all: bool = False
    """Whether the name says that it is the sum over all ranks."""


def plain(name: str) -> str:
    """The name in lower case, with `_` between words and without what stands in front of it."""
    text = re.sub(r"[\s-]+", "_", name.strip().lower())
    return _PREFIX.sub("", text).strip("_/.")


def counts(name: str) -> Meaning | None:
    """The meaning of a column of counts per expert; None for any other."""
    text = re.sub(r"[\s-]+", "_", name.strip().lower())
    layer, place = None, _LAYER.search(text)
    if place:
        layer, text = int(place[1]), text[: place.start()] + text[place.end() :]
    of_all = bool(_GLOBAL.search(text))
    text = _PREFIX.sub("", text).strip("_/.")
    for kind, pattern in _COUNTS.items():
        if re.fullmatch(pattern, text):
            return Meaning(kind, layer, None, of_all)
    numbered = _NUMBERED.match(text)
    if numbered:
        base = numbered["name"]
        for kind, pattern in _COUNTS.items():
            if re.fullmatch(pattern, base) or (kind == TOKENS and base in ("expert", "experts")):
                return Meaning(kind, layer, int(numbered["expert"]), of_all)
    return None


def single(name: str) -> str | None:
    """The kind of count that a column of a long table (a row per expert) holds; None for any other."""
    text = plain(name)
    return next((kind for kind, pattern in _SINGLE.items() if re.fullmatch(pattern, text)), None)


def fact(wanted: str, names: list[str]) -> str | None:
    """The first of `names` that means the fact `wanted`; the order of the list of names decides."""
    order = _FACTS[wanted].split("|")
    known = [(order.index(plain(name)), name) for name in names if plain(name) in order]
    return min(known)[1] if known else None


def known(wanted: str) -> list[str]:
    """Every name of a fact."""
    return _FACTS[wanted].split("|")


def are_counts(names: list[str]) -> bool:
    """Whether columns of these names hold counts per expert: in lists, one column per expert, or a row per expert."""
    said = any(fact(wanted, names) for wanted in ("layer", "topk", "experts"))
    sure = [name for name in names if said or plain(name) not in _VAGUE]
    found = [meaning for meaning in map(counts, sure) if meaning is not None]
    listed = [m for m in found if m.expert is None]
    numbered = {m.expert for m in found if m.expert is not None}
    return bool(listed) or len(numbered) > 1 or is_long(names)


def is_long(names: list[str]) -> bool:
    """Whether a table of these columns has a row per expert."""
    return fact("expert", names) is not None and any(single(name) is not None for name in names)


def is_about_routing(name: str) -> bool:
    """Whether a column is a count, or a fact about a router call."""
    last = name.rpartition(".")[2]
    return counts(last) is not None or any(plain(last) in pattern.split("|") for pattern in _FACTS.values())
