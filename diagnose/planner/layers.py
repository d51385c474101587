"""Device time of one transformer layer for one micro-batch on one GPU: matrix products, attention, element-wise
kernels.

Forward and backward are kept apart, and what a recompute runs again is a part of the forward. It does not include
communication, waiting or the host. Method: every product of the layer at its own shape (formulas.matmul), attention at
the published rate of its kernel generation, element-wise kernels at their memory traffic.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from diagnose.formulas.matmul import GAP_S, matmul_s, stream_s
from diagnose.formulas.transformer import attention_flop_per_token
from diagnose.planner.devices import Device, find_device
from diagnose.planner.gradients import gradient_bytes
from diagnose.planner.host import kernels_count
from diagnose.planner.job import Job, Model
from diagnose.planner.products import attention_products, dense_mlp, expert_products, mlp_shapes
from diagnose.planner.reading import PRECISIONS
from diagnose.planner.traffic import REPEATED_KEYS

ATTENTION_SHARE = {
    "flash1": {80: 0.33, 90: 0.19, 100: 0.15},
    "flash2": {80: 0.60, 90: 0.35, 100: 0.25},
    "flash3": {80: 0.60, 90: 0.60, 100: 0.40},
    "cudnn": {80: 0.60, 90: 0.60, 100: 0.55},
}
"""Forward and backward rate / 16-bit peak at long sequences. FlashAttention-2 paper (A100: version 1 25 to 40 %,
version 2 up to 64 %), FlashAttention-3 paper (H100: version 2 35 %, version 3 up to 75 % forward), FlashAttention-4
(B200: cuDNN)."""
SHORT_SEQUENCE = 512
"""Sequence length at which flash attention reaches half its rate (FlashAttention-2, figure 4)."""
BACKWARD_ATTENTION = 2.5
"""Backward / forward: five products instead of two, the scores are computed again."""


class Phase(NamedTuple):
    """Seconds of one pass by kind of work."""

    matmul_s: float
    attention_s: float
    elementwise_s: float

    def scaled(self, factors: Phase) -> float:
        """Total seconds, each kind times its calibration factor."""
        return sum(seconds * factor for seconds, factor in zip(self, factors, strict=True))


class LayerTime(NamedTuple):
    """One layer and micro-batch. `again` is what recompute runs a second time, `kernels_count` what the host
    launches."""

    forward: Phase
    backward: Phase
    again: Phase
    kernels_count: float
    mlp_forward_s: float
    """Products of the MLP or the experts, a part of `forward`."""


def layer_time(job: Job, moe: bool) -> LayerTime:
    """One layer of this job; a mixture-of-experts layer where `moe`."""
    train, layout = job.train, job.layout
    accumulate = gradient_bytes(job)
    recipe = Recipe(
        train.micro_batch,
        train.precision,
        train.recompute,
        train.attention_kernel,
        train.fusion,
        train.dropout,
        job.search.framework in EARLY_STOP,
        accumulate * train.trainable_ratio,
        train.routing == "capacity",
        train.dispatcher == "alltoall",
        job.search.framework in REPEATED_KEYS and job.model.kv_heads < job.model.heads,
    )
    return _layer_time(
        job.model, recipe, job.cluster.gpu, (layout.tp, layout.cp, layout.ep, layout.etp), layout.sp, moe
    )


class Recipe(NamedTuple):
    """The part of the recipe that the time of a layer depends on: the key of the cache of a search."""

    micro_batch: int
    precision: str
    recompute: tuple[str, ...]
    attention_kernel: str
    fusion: str
    dropout: bool
    early_stop: bool
    accumulate_bytes: float
    """Traffic per parameter and micro-batch of adding a gradient to the sum of the step."""
    fixed_capacity: bool
    sorts_twice: bool
    """Plain all-to-all permutes before and sorts by local expert after the exchange, and back (Megatron Core
    token_dispatcher.py, sort_chunks_by_idxs); dispatchers that know experts write rows where they belong."""
    repeats_keys: bool
    """Keys and values are copied to every query head before attention."""


@lru_cache(maxsize=65536)
def _layer_time(
    model: Model, recipe: Recipe, gpu: str, split: tuple[int, int, int, int], sp: bool, moe: bool
) -> LayerTime:
    """`split` = (tp, cp, ep, etp)."""
    device = find_device(gpu)
    assert device is not None, gpu
    tp, cp, _, _ = split
    tokens = max(1, recipe.micro_batch * model.seq_len // cp)
    bits = PRECISIONS[recipe.precision]
    blocks = [(False, attention_products(model, tokens, tp))]
    blocks += [
        (True, part) for part in (expert_products(model, tokens, split) if moe else [dense_mlp(model, tokens, tp)])
    ]
    if moe and model.shared_ffn:
        blocks.append((True, (1, mlp_shapes(tokens, model.hidden, model.shared_ffn // tp, model.gated))))
    forward = backward = mlp_forward = 0.0
    for is_mlp, (count, shapes) in blocks:
        for shape in shapes:
            ahead, back = product_passes_s(shape, device, bits, count)
            forward, backward = forward + ahead, backward + back
            mlp_forward += ahead if is_mlp else 0.0
    last = product_passes_s(blocks[-1][1][1][-1], device, bits, blocks[-1][1][0])[0]
    attend, attend_back = _attention(model, recipe, device, tokens, tp)
    stream = stream_s(_forward_bytes(model, split, (tokens, sp, bits, recipe), moe), device.hbm_bytes_per_s)
    ahead_phase = Phase(forward, attend, stream)
    again = _again(recipe, ahead_phase, mlp_forward, last)
    held = sum(count * n * k for _, (count, shapes) in blocks for _, n, k in shapes)
    adding = stream_s(recipe.accumulate_bytes * held, device.hbm_bytes_per_s)
    return LayerTime(
        ahead_phase,
        Phase(backward, attend_back, 2 * stream + adding),
        again,
        kernels_count(moe, recipe.fixed_capacity, "full" in recipe.recompute),
        mlp_forward,
    )


EARLY_STOP = ("fsdp", "torchtitan")
"""Frameworks whose full recompute is torch.utils.checkpoint(use_reentrant=False)."""


SUSTAINED_RATIO = 0.85
"""Products in training against the best product found alone: power limits and shapes (planner fallback: MAMF x
0.85)."""


def product_s(shape: tuple[int, int, int], gpu: str, bits: int, count: int) -> float | None:
    """Kernel seconds of `count` products (m, n, k) run together, as a plan has them; None for an unknown GPU."""
    device = find_device(gpu)
    return product_passes_s(shape, device, bits, count)[0] - GAP_S if device else None


def product_passes_s(shape: tuple[int, int, int], device: Device, bits: int, count: int) -> tuple[float, float]:
    """Forward, and backward (input and weight gradient: the same product with its dimensions exchanged)."""
    m, n, k = shape
    rate, width = SUSTAINED_RATIO * device.matmul_flop_per_s(bits), max(bits, 8) / 8
    rate *= (
        1.01 if device.generation >= 90 else 1.06
    )  # MAMF holds its own prologue and store, at inner 13,000 and 5,000
    ahead, of_input, of_weight = (
        matmul_s(dims, rate, device.sms, device.hbm_bytes_per_s, width, count, overlapped_store=device.generation >= 90)
        for dims in ((m, n, k), (m, k, n), (k, n, m))
    )
    return ahead, of_input + of_weight


def _attention(model: Model, recipe: Recipe, device: Device, tokens: int, tp: int) -> tuple[float, float]:
    """Forward and backward of scores, soft-max and weighted values."""
    kernel = recipe.attention_kernel or default_kernel(model, device)
    heads, wide = model.heads / tp, model.head_dim + model.rope_dim / 2
    if kernel == "unfused" or model.attention == "full":
        return _unfused_attention(model, recipe, device, tokens, heads)
    flop = tokens * heads * attention_flop_per_token(model.seq_len, 1, 1, causal=True) * wide
    shares = ATTENTION_SHARE[kernel]
    share = shares[max([g for g in shares if g <= device.generation], default=80)]
    share *= model.seq_len / (model.seq_len + SHORT_SEQUENCE) * (0.9 if model.head_dim <= 64 else 1.0)
    ahead = flop / (share * device.clock_ratio * device.peak_flop_per_s)
    return ahead, BACKWARD_ATTENTION * ahead


def default_kernel(model: Model, device: Device) -> str:
    """The kernel that a current framework would take on this device."""
    return "flash2" if device.generation < 90 else "cudnn"


def _unfused_attention(model: Model, recipe: Recipe, device: Device, tokens: int, heads: float) -> tuple[float, float]:
    """Score matrices in device memory: two batched products, soft-max (and dropout) as element-wise kernels."""
    length, wide = model.seq_len, model.head_dim
    sequences = max(1, round(tokens / length * heads))
    rate = device.mamf_flop_per_s if wide % 8 == 0 else device.vector_flop_per_s * 0.9
    shapes = ((length, length, wide), (length, wide, length))
    products = sum(matmul_s(shape, rate, device.sms, device.hbm_bytes_per_s, 2.0, sequences) for shape in shapes)
    cells = tokens * length * heads
    softmax = stream_s(cells * (9 if recipe.dropout else 4), device.hbm_bytes_per_s)
    return products + softmax, 2 * products + stream_s(cells * (11 if recipe.dropout else 6), device.hbm_bytes_per_s)


def _forward_bytes(
    model: Model, split: tuple[int, int, int, int], how: tuple[int, bool, int, Recipe], moe: bool
) -> float:
    """Element-wise traffic of one forward: norms, residuals, activation, rotary embedding, dropout, 8-bit casts."""
    (tokens, sp, bits, recipe), tp = how, split[0]
    hidden, width = model.hidden, model.heads * model.head_dim
    ffn = model.topk * model.expert_ffn / split[3] * tp + model.shared_ffn if moe else model.ffn
    replicated = (8 + 12 + (2 if recipe.dropout else 0)) * hidden / (tp if sp else 1)
    activation = (6 if model.gated else 4) * ffn / tp
    rotary = 4 * (width + model.kv_heads * model.head_dim) / tp if model.gated else 0.0
    casts = 4 * (2 * hidden + width / tp + ffn / tp) if bits <= 8 else 0.0
    repeat = 4 * (width + model.kv_heads * model.head_dim) / tp if recipe.repeats_keys else 0.0
    permute = (16 if recipe.sorts_twice else 8) * model.topk * hidden if moe else 0.0
    eager = 4 * ffn / tp if model.gated and recipe.fusion != "all" else 0.0  # activation and product apart
    if recipe.fusion == "none" and model.gated:  # RMSNorm and rotary in fp32, operator by operator
        eager += 64 * hidden / (tp if sp else 1) + 4 * rotary
    return tokens * (replicated + activation + eager + rotary + repeat + casts + permute)


def _again(recipe: Recipe, forward: Phase, mlp_forward: float, last: float) -> Phase:
    """What recompute adds to the backward pass: the whole forward, or that of the named modules.

    PyTorch's non-reentrant checkpoint stops early: the last product's output is saved by nobody, so it is not run
    again.
    """
    if "full" in recipe.recompute:
        return forward._replace(matmul_s=forward.matmul_s - (last if recipe.early_stop else 0.0))
    modules, light = set(recipe.recompute), forward.elementwise_s / 4
    if "every_other_product" in modules:  # torchtitan's selective checkpoint by operator
        return Phase(forward.matmul_s / 2 - last / 2, 0.0, forward.elementwise_s)
    attend = forward.attention_s if modules & {"selective", "core_attn"} else 0.0
    products = mlp_forward if modules & {"mlp", "moe"} else 0.0
    return Phase(products, attend, light * len(modules - {"selective", "core_attn"}))
