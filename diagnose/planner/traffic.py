"""Communication of one step by parallel dimension: what is sent, how often, over which links, and what stays exposed.

Volumes are those of planner tables of the frameworks (Narayanan et al. 2021 section 3.2 for TP, Rajbhandari et al. 2020
for ZeRO, DeepSeek-V3 section 3.3.3 for the four all-to-all of a mixture-of-experts layer). Links: formulas.links.
Exposed is what compute of the same micro-batch cannot hide; it does not include waiting for late ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.formulas.links import NET_HOP_S, Fabric, Placement, collective_s, place, send_s
from diagnose.planner.devices import find_device
from diagnose.planner.job import Job

WIDTH_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True)
class Groups:
    """Where the ranks of each dimension sit (order tp-cp-ep-dp-pp, the first dimension on neighbouring GPUs)."""

    tp: Placement
    cp: Placement
    dp: Placement
    ep: Placement
    edp: Placement
    pp_crosses: bool


def fabric_of(job: Job) -> Fabric:
    """The links of the job's cluster."""
    cluster, device = job.cluster, find_device(job.cluster.gpu)
    return Fabric(
        cluster.intra_bytes_per_s,
        cluster.inter_bytes_per_s,
        cluster.fast_domain,
        device.generation if device else 0,
        cluster.inter_latency_ns * 1e-9 or NET_HOP_S,
    )


def groups_of(job: Job) -> Groups:
    """Placement of every group; with pp first in `rank_order` the pipeline neighbours share a node instead of dp."""
    layout, domain = job.layout, job.cluster.fast_domain
    inner = layout.tp * layout.cp
    pp_inside = layout.rank_order.index("pp") < layout.rank_order.index("dp") if "pp" in layout.rank_order else False
    pp_stride = inner * (1 if pp_inside else layout.dp)
    return Groups(
        tp=place(layout.tp, 1, domain),
        cp=place(layout.cp, layout.tp, domain),
        dp=place(layout.dp * layout.cp, layout.tp * (layout.pp if pp_inside else 1), domain),
        ep=place(layout.ep, layout.etp, domain),
        edp=place(layout.edp, layout.etp * layout.ep, domain),
        pp_crosses=pp_stride * 2 > domain,
    )


def tensor_parallel_s(job: Job, fabric: Fabric, groups: Groups, moe: bool) -> float:
    """One direction of one layer: an all-reduce per block, or reduce-scatter + all-gather (the same bytes) with SP.

    Where activations are cast before they are gathered (`gather_dtype` = fp8: torchtitan with tensor-wise scales,
    PrepareFloat8ModuleInput), a gather carries half; what is reduced stays 16-bit.
    """
    tokens = job.train.micro_batch * job.model.seq_len / job.layout.cp
    size = 2.0 * tokens * job.model.hidden
    blocks = 1 if moe and job.layout.etp == 1 else 2
    if not job.layout.sp:
        return blocks * collective_s("all_reduce", size, groups.tp, fabric)
    gathered = tokens * job.model.hidden * WIDTH_BYTES[job.train.gather_dtype]
    scatter = collective_s("reduce_scatter", size, groups.tp, fabric)
    return blocks * (scatter + collective_s("all_gather", gathered, groups.tp, fabric))


def context_parallel_s(job: Job, fabric: Fabric, groups: Groups) -> float:
    """Keys and values of all other ranks, once, 16-bit. torchtitan's models repeat them to every query head first
    (`repeat_kv` before attention), so a ring of theirs carries heads / kv_heads times as much."""
    model, cp = job.model, job.layout.cp
    if cp == 1:
        return 0.0
    heads = model.heads if job.search.framework in REPEATED_KEYS else model.kv_heads
    size = 2.0 * job.train.micro_batch * model.seq_len * 2 * max(1, heads // job.layout.tp) * model.head_dim
    return collective_s("all_gather", size, groups.cp, fabric)


REPEATED_KEYS = ("torchtitan",)
"""Frameworks that hand context parallelism keys and values with one copy for each query head (torchtitan
models/llama/model.py)."""


def expert_parallel_s(job: Job, fabric: Fabric, groups: Groups) -> float:
    """Dispatch and combine, forward and backward: four all-to-all of tokens * top-k * hidden."""
    model, layout, train = job.model, job.layout, job.train
    tokens = train.micro_batch * model.seq_len / layout.cp / (layout.tp if layout.tp > layout.etp else 1)
    factor = model.capacity_factor if train.routing == "capacity" and model.capacity_factor else 1.0
    copies = model.topk if train.dispatcher == "alltoall" else _copies(model.topk, groups.ep)
    size = tokens * copies * model.hidden * factor
    there = collective_s("all_to_all", size * WIDTH_BYTES[train.dispatch_dtype], groups.ep, fabric)
    back = collective_s("all_to_all", size * WIDTH_BYTES[train.combine_dtype], groups.ep, fabric)
    return 2 * (there + back)


def _copies(topk: int, place: Placement) -> float:
    """Copies of a token to send, in units that make all_to_all's far share right: one per node that holds a chosen
    expert.

    DeepEP-like dispatchers send a token once to each node and spread it there (DeepSeek-V3 section 3.2.2); with routing
    spread evenly over k nodes, k * (1 - (1 - 1/k)^topk) nodes hold at least one of its experts.
    """
    nodes = place.domains
    return topk if nodes == 1 else nodes * (1 - (1 - 1 / nodes) ** topk)


def pipeline_s(job: Job, fabric: Fabric, groups: Groups) -> float:
    """One activation over one stage boundary; each TP rank sends its share (scatter / gather, Narayanan section
    4.1)."""
    if job.layout.pp == 1:
        return 0.0
    tokens = job.train.micro_batch * job.model.seq_len / job.layout.cp
    return send_s(2.0 * tokens * job.model.hidden / job.layout.tp, groups.pp_crosses, fabric)
