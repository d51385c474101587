"""The output head on the last stage: its product, the loss over the vocabulary, and what both hold at their peak.

A vocabulary of 128k is as heavy as several layers, and an fp32 copy of its logits is often the largest tensor of a run.
The loss is counted as element-wise traffic per logit and as bytes alive per logit; labels and the sums over the
vocabulary weigh nothing. Method: the tensors of each implementation, read in its source, one read or write each.
"""

from __future__ import annotations

from typing import NamedTuple

from diagnose.formulas.matmul import stream_s
from diagnose.planner.devices import Device
from diagnose.planner.job import Job
from diagnose.planner.layers import Phase, product_passes_s


class Loss(NamedTuple):
    """Bytes per logit of one loss implementation."""

    traffic: int
    """Read and written, forward and backward, beyond the product's own output."""
    peak: int
    """Alive at once."""


LOSSES = {
    "fused": Loss(8, 4),
    "torch": Loss(36, 12),
    "parallel": Loss(52, 10),
}
"""`fused`: one kernel each way on 16-bit logits (flash-attn, Liger, Transformer Engine, torch.compile): logits read,
read again, gradient written; both alive. `torch`: cross_entropy(logits.float()) under autograd: cast (6), log-softmax
(8), its gradient (4 written, 12), cast back (6); result, its gradient and the one behind it are alive in fp32
(torchtitan frees the 16-bit logits before). `parallel`: Megatron's vocab_parallel_cross_entropy and nanotron's
sharded_cross_entropy in fp32: cast (6), maximum (4), difference (8), exponential (8), sum (4), quotient (8), gradient
scaled (8), cast back (6); 16-bit logits and two fp32 tensors are alive."""
USUAL_LOSS = {"megatron": "parallel", "nanotron": "parallel"}


def loss_of(job: Job) -> Loss:
    """The loss the job names, or the one its framework takes by default."""
    return LOSSES[job.train.loss or USUAL_LOSS.get(job.search.framework, "torch")]


def head_time(job: Job, device: Device) -> Phase:
    """Output projection and loss of one micro-batch on the last stage: forward and backward."""
    model, layout = job.model, job.layout
    tokens = job.train.micro_batch * model.seq_len // layout.cp
    vocab = -(-model.vocab // layout.tp)
    ahead, back = product_passes_s((tokens, vocab, model.hidden), device, 16, 1)
    return Phase(ahead + back, 0.0, stream_s(loss_of(job).traffic * tokens * vocab, device.hbm_bytes_per_s))


def head_bytes(job: Job) -> float:
    """Alive on the last stage at the loss: input and output of the last norm, and the logits with what goes with
    them."""
    tokens = job.train.micro_batch * job.model.seq_len / job.layout.cp
    return tokens * (4 * job.model.hidden + loss_of(job).peak * job.model.vocab) / job.layout.tp
