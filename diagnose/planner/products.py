"""The matrix products of one layer on one GPU, as shapes (m, n, k): attention blocks, dense MLP, local experts.

A part is (how many equal products run together, their shapes); a group of experts is one batched product.
"""

from __future__ import annotations

from diagnose.planner.job import Model

Part = tuple[int, list[tuple[int, int, int]]]


def attention_products(model: Model, tokens: int, tp: int) -> Part:
    hidden, width = model.hidden, model.heads * model.head_dim // tp
    if model.attention != "mla":
        kv = max(1, model.kv_heads // tp) * model.head_dim
        return 1, [(tokens, width + 2 * kv, hidden), (tokens, hidden, width)]
    rope = model.rope_dim * model.heads // tp
    query = (
        [(tokens, model.q_lora, hidden), (tokens, width + rope, model.q_lora)]
        if model.q_lora
        else [(tokens, width + rope, hidden)]
    )
    down = (tokens, model.kv_lora + model.rope_dim, hidden)
    return 1, [*query, down, (tokens, 2 * width, model.kv_lora), (tokens, hidden, width)]


def mlp_shapes(tokens: int, hidden: int, ffn: int, gated: bool) -> list[tuple[int, int, int]]:
    ffn = max(1, ffn)
    return [(tokens, ffn * (2 if gated else 1), hidden), (tokens, hidden, ffn)]


def dense_mlp(model: Model, tokens: int, tp: int) -> Part:
    return 1, mlp_shapes(tokens, model.hidden, model.ffn // tp, model.gated)


def expert_products(model: Model, tokens: int, split: tuple[int, int, int, int]) -> list[Part]:
    """Local experts as one grouped product: balanced routing, `tokens` of every rank times top-k over all experts."""
    tp, _, ep, etp = split
    local = max(1, model.experts // ep)
    own = tokens // tp if tp > etp else tokens  # sequence parallel: a rank routes its share of the tokens
    rows = max(1, own * etp * model.topk // local)
    return [(local, mlp_shapes(rows, model.hidden, model.expert_ffn // etp, model.gated))]
