"""Bytes that training keeps on a GPU: per parameter, per layer and micro-batch, and how sharding divides them.

It covers what formulas can: weights, gradients, optimizer state and stored activations. Allocator fragmentation, the
CUDA context and communicators are measured, never derived.
Sources: Rajbhandari et al. 2020 (ZeRO: 16 = 2 + 2 + 12 bytes), Megatron-LM dist_optimizer.md (18 with fp32 main
gradients), DeepSpeed zero/stage*.py estimators, Korthikanti et al.
2022 equations 1 to 6 (activations).
"""

from __future__ import annotations

from dataclasses import dataclass

OPTIMIZER_BYTES = {"adam": 8, "adamw": 8, "adam8bit": 2, "sgd": 4, "muon": 4}
"""Moments per parameter, fp32 unless the name says otherwise; the fp32 master copy comes on top in mixed precision."""


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Bytes per parameter before any sharding over data parallel ranks."""

    parameters: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.parameters + self.gradients + self.optimizer


def state_bytes(precision: str, grad_dtype: str, optimizer: str, accumulator_bytes: float = 0.0) -> StateBytes:
    """Weights, gradients and optimizer per parameter. `accumulator_bytes`: a second gradient copy (DeepSpeed bf16: 4).

    >>> state_bytes("bf16", "bf16", "adam").total, state_bytes("bf16", "fp32", "adam").total
    (16, 18)
    """
    moments = OPTIMIZER_BYTES[optimizer]
    if precision in ("fp32", "tf32"):
        return StateBytes(4, 4, moments)
    grads = 4 if grad_dtype == "fp32" else 2
    return StateBytes(2, grads + accumulator_bytes, moments + 4)


def shard(state: StateBytes, zero: int, ranks: int) -> StateBytes:
    """What one of `ranks` data parallel ranks holds per parameter.

    Stage 1 divides the optimizer, 2 the gradients too, 3 the weights too.

    >>> s = state_bytes("bf16", "bf16", "adam")
    >>> round(7.5 * shard(s, 1, 64).total, 2), round(7.5 * shard(s, 3, 64).total, 2)
    (31.41, 1.88)
    """
    return StateBytes(
        state.parameters / (ranks if zero >= 3 else 1),
        state.gradients / (ranks if zero >= 2 else 1),
        state.optimizer / (ranks if zero >= 1 else 1),
    )


def attention_activation_bytes(
    tokens: float, hidden: float, width: float, kv_width: float, tp: int, sp: bool, scores: float = 0.0
) -> float:
    """Stored by one attention block, 16-bit: its norm's input, projection input, q, k, v, output, and score tensors.

    `width` = heads*head_dim, `kv_width` = kv_heads*head_dim; `scores` = bytes of unfused score tensors of the layer.
    """
    replicated = 2 * 2 * hidden / (tp if sp else 1)
    return tokens * (replicated + 2 * (2 * width + 2 * kv_width) / tp) + scores / tp


def mlp_activation_bytes(tokens: float, hidden: float, ffn: float, gated: bool, tp: int, sp: bool) -> float:
    """Stored by one MLP, 16-bit: norm input, MLP input, and the hidden tensors (2 of f; 3 when gated)."""
    return tokens * (2 * 2 * hidden / (tp if sp else 1) + (6 if gated else 4) * ffn / tp)


def gpt_activation_bytes(
    seq_len: int, batch: int, hidden: int, heads: int, tp: int = 1, sp: bool = False, recompute: str = "none"
) -> float:
    """One layer of a GPT with dropout, GELU and f = 4h (Korthikanti eq. 1, 2, 4, 6; `selective` also fits flash
    attention).

    >>> gpt_activation_bytes(2048, 1, 1024, 16) == 2048 * 1024 * (34 + 5 * 16 * 2048 / 1024)
    True
    """
    base = float(seq_len * batch * hidden)
    if recompute == "full":
        return 2 * base / (tp if sp else 1)
    quadratic = 0.0 if recompute == "selective" else 5 * heads * seq_len / hidden
    return base * (34 + quadratic) / tp if sp else base * (10 + (24 + quadratic) / tp)
