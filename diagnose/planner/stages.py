"""Which stage holds which layers, and how many parameters: the most loaded stage sets both time and memory.

The first stage has the input embedding, the last one the output head. A layer count that does not divide is spread as
frameworks do: where layers + 2 divide, embedding and head take a slot each; otherwise the first stages are full.
"""

from __future__ import annotations

from typing import NamedTuple

from diagnose.formulas.transformer import attention_parameters, latent_attention_parameters, mlp_parameters
from diagnose.planner.job import Job, Model


class StageParameters(NamedTuple):
    """Parameters on one rank of a stage before data parallel sharding: dense part, and experts (sharded over edp)."""

    dense: float
    experts: float


def layers_per_stage(job: Job) -> tuple[int, ...]:
    """Layers on each pipeline stage, first to last; their sum is the model's layers.

    >>> spread(78, 12), spread(70, 12)
    ((7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 1), (5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5))
    """
    if job.layout.stage_layers:
        return job.layout.stage_layers
    if job.search.framework == "nanotron" and job.layout.pp > 1:
        return by_cost(
            job.model.layers, job.layout.pp, job.model.vocab * job.model.hidden / dense_layer(job.model, False)
        )
    return spread(job.model.layers, job.layout.pp, job.layout.vpp)


def by_cost(layers: int, stages: int, head: float) -> tuple[int, ...]:
    """Layers of each stage when blocks are cut by cost and the head weighs `head` layers (nanotron's pipeline builder).

    >>> by_cost(16, 2, 4.0)
    (10, 6)
    """
    total, counts, done = layers + head, [], 0
    for stage in range(1, stages + 1):
        upto = min(layers, round(total * stage / stages)) if stage < stages else layers
        counts.append(upto - done)
        done = upto
    return tuple(counts)


def spread(layers: int, stages: int, chunks: int = 1) -> tuple[int, ...]:
    """Default layers of each stage; see the module."""
    if layers % stages == 0 or stages == 1:
        return (layers // stages,) * stages
    if (layers + 2) % (stages * chunks) == 0:
        full = (layers + 2) // stages
        return (full - 1, *(full,) * (stages - 2), full - 1)
    full = -(-layers // stages)
    counts, left = [], layers
    for stage in range(stages):  # as many full stages as leave every later one at least one layer
        take = max(0, min(full, left - (stages - stage - 1)))
        counts.append(take)
        left -= take
    return tuple(counts)


def attention_of(model: Model) -> int:
    """Parameters of one attention block."""
    if model.attention == "mla":
        return latent_attention_parameters(
            model.hidden, model.heads, model.head_dim, model.q_lora, model.kv_lora, model.rope_dim
        )
    return attention_parameters(model.hidden, model.heads, model.kv_heads, model.head_dim)


def experts_of(model: Model) -> int:
    """Parameters of all experts of one layer."""
    return model.experts * mlp_parameters(model.hidden, model.expert_ffn, model.gated)


def dense_layer(model: Model, moe: bool) -> int:
    """Parameters of one layer without its routed experts: attention, norms, and the MLP or shared expert and router."""
    norms = 2 * model.hidden
    if moe:
        rest = mlp_parameters(model.hidden, model.shared_ffn, model.gated) + model.hidden * model.experts
    else:
        rest = mlp_parameters(model.hidden, model.ffn, model.gated)
    return attention_of(model) + rest + norms


def parameter_count(model: Model) -> int:
    """All parameters of the model."""
    moe = model.moe_layers
    layers = (model.layers - moe) * dense_layer(model, False) + moe * (dense_layer(model, True) + experts_of(model))
    return layers + model.vocab * model.hidden * (1 if model.tied else 2) + model.hidden


def active_parameter_count(model: Model) -> int:
    """Parameters that one token meets: top-k experts instead of all."""
    idle = (model.experts - model.topk) * mlp_parameters(model.hidden, model.expert_ffn, model.gated)
    return parameter_count(model) - model.moe_layers * idle


def stage_parameters(job: Job, stage: int) -> StageParameters:
    """Parameters one rank of `stage` holds: divided by TP (norms are not, but weigh nothing), experts by EP and ETP."""
    model, layout = job.model, job.layout
    counts = layers_per_stage(job)
    before = sum(counts[:stage])
    dense = max(0, min(counts[stage], model.dense_layers - before)) if model.experts else counts[stage]
    moe = counts[stage] - dense
    held = dense * dense_layer(model, False) + moe * dense_layer(model, True)
    ends = (stage == 0) + (stage == layout.pp - 1)
    if layout.pp == 1 and model.tied:
        ends = 1
    held += ends * model.vocab * model.hidden
    return StageParameters(held / layout.tp, moe * experts_of(model) / (layout.ep * layout.etp))
