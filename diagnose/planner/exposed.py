"""What compute of the same layer cannot hide of tensor and context parallel traffic, and what a recompute sends again.

Seconds of one layer and micro-batch. Traffic itself: planner.traffic. A framework hides what its code starts early
enough; the code that was read stands at each figure.
"""

from __future__ import annotations

from diagnose.formulas.links import Fabric
from diagnose.formulas.matmul import stream_s
from diagnose.planner.devices import find_device
from diagnose.planner.job import Job
from diagnose.planner.layers import EARLY_STOP, LayerTime
from diagnose.planner.traffic import Groups, context_parallel_s

FORWARD_OVERLAP = ("torchtitan",)
"""Frameworks whose chunked tensor parallelism pays off in passes that run forward only: PyTorch's announcement of
asynchronous TP (2024) measured 20 to 29 % in the forward pass and 8 % of the step, which is the forward pass alone."""


def exposed_tensor_s(job: Job, once: float, behind: float) -> float:
    """Exposed tensor parallel traffic of a layer, `once` a pass; `behind`: products of a pass that can cover it."""
    framework, degree = job.search.framework, job.layout.tp
    again = 0.0  # recomputed products gather their input again
    if "full" in job.train.recompute:
        again = 0.75 if framework in EARLY_STOP else 1.0  # of two gathers and two reductions the last one is left out
    elif "every_other_product" in job.train.recompute:  # the results of reductions are kept
        again = 0.5
    if not job.layout.overlap_tp:
        return (2 + again) * once
    passes = 1 + again if framework in FORWARD_OVERLAP else 2 + again
    hidden = passes * once
    exposed = hidden / degree + max(0.0, hidden * (1 - 1 / degree) - passes * behind)
    return exposed + (2 + again - passes) * once


def exposed_ring_s(job: Job, time: LayerTime, fabric: Fabric, groups: Groups) -> float:
    """Ring attention: blocks travel while the previous block is attended to; what attention cannot cover is exposed.

    Once forward, and again where attention is recomputed. Backward keys and values come again and their gradients
    leave: two rings.
    """
    ring, cp = context_parallel_s(job, fabric, groups), job.layout.cp
    if not ring:
        return 0.0
    forward = 2 if "full" in job.train.recompute else 1
    if job.search.framework in GATHERED_KEYS:
        return _gathered_ring_s(job, time, ring, forward)
    ahead = max(ring / cp, ring - time.forward.attention_s)
    return forward * ahead + max(2 * ring / cp, 2 * ring - time.backward.attention_s)


GATHERED_KEYS = ("torchtitan",)
"""Frameworks whose context parallelism is PyTorch's: one all-gather that only the own block covers, fp32 results."""
MERGE_BYTES, MERGE_BACK_BYTES = 32, 50
"""Element-wise traffic per element, round and pass of PyTorch's ring (`_SDPAMerger`, fp32): cast, difference, product,
difference forward; casts, sums and concatenations of three gradients backward (distributed/tensor/experimental)."""


def _gathered_ring_s(job: Job, time: LayerTime, ring: float, forward: int) -> float:
    """PyTorch's context parallelism: blocks are gathered at once, gradients travel in fp32, rounds are merged."""
    device, cp, model = find_device(job.cluster.gpu), job.layout.cp, job.model
    assert device is not None
    ahead = max(0.0, ring - time.forward.attention_s / cp)
    back = max(0.0, ring - time.backward.attention_s / cp) + max(2 * ring / cp, 2 * ring - time.backward.attention_s)
    elements = job.train.micro_batch * model.seq_len / cp * (cp - 1) * model.heads / job.layout.tp * model.head_dim
    merge = stream_s((forward * MERGE_BYTES + MERGE_BACK_BYTES) * elements, device.hbm_bytes_per_s)
    return forward * ahead + back + merge
