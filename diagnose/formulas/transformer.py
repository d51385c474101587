"""Parameters and model FLOPs of a decoder-only transformer: dense, grouped-query, latent attention, mixture of experts.

A matrix of K x N costs 2*K*N per token forward and twice that backward; causal attention needs half of 4*s*a*d_h.
Embedding look-ups cost nothing; the output head does. Sources: Megatron-LM theoretical_memory_usage.py and
num_floating_point_operations; Korthikanti et al. 2022 eq. 7 and 8; Narayanan et al. 2021 eq. 2 and 3.
"""

from __future__ import annotations


def attention_parameters(hidden: int, heads: int, kv_heads: int, head_dim: int) -> int:
    """Query, key, value and output projections of one layer."""
    return 2 * hidden * head_dim * (heads + kv_heads)


def latent_attention_parameters(
    hidden: int, heads: int, head_dim: int, q_lora: int, kv_lora: int, rope_dim: int
) -> int:
    """Multi-head latent attention (DeepSeek): low-rank query and key/value, rotary part apart, norms included."""
    query = q_lora * (hidden + heads * (head_dim + rope_dim) + 1) if q_lora else hidden * heads * (head_dim + rope_dim)
    return query + kv_lora * (hidden + 2 * heads * head_dim + 1) + hidden * rope_dim + heads * head_dim * hidden


def mlp_parameters(hidden: int, ffn: int, gated: bool) -> int:
    """Two matrices, three when gated (SwiGLU)."""
    return (3 if gated else 2) * hidden * ffn


def attention_flop_per_token(seq_len: int, heads: int, head_dim: int, causal: bool) -> float:
    """Forward scores and weighted values of one layer: 4*s*a*d_h, half of it when only the causal half is computed."""
    return 4.0 * seq_len * heads * head_dim * (0.5 if causal else 1.0)


def megatron_model_flop(batch: int, layers: int, seq_len: int, hidden: int, vocab: int) -> float:
    """Model FLOPs of one step of a GPT with f = 4h, forward and backward, attention not halved (Korthikanti eq. 7)."""
    return 72.0 * batch * layers * seq_len * hidden**2 * (1 + seq_len / (6 * hidden) + vocab / (12 * hidden * layers))


def megatron_recomputed_flop(batch: int, layers: int, seq_len: int, hidden: int, vocab: int) -> float:
    """Hardware FLOPs of one step with full recompute (Narayanan eq. 3): 4/3 of the model FLOPs but for the head."""
    return 96.0 * batch * layers * seq_len * hidden**2 * (1 + seq_len / (6 * hidden) + vocab / (16 * layers * hidden))
