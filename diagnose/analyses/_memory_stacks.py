"""What a call stack says about the memory it allocated, and the line of it that a user can act on.

A stack tells who asked, not what for: the part it suggests has a confidence, and life time decides between a gradient
and a temporary of backward. Order of evidence: communication, recomputation, optimizer, backward, construction,
forward; then words in the names of user functions, at a low confidence.
Source: frames of PyTorch, FSDP2, DeepSpeed, Megatron-LM, transformers as they appear in snapshots.
"""

from __future__ import annotations

import re
from typing import NamedTuple

CLASSES = ("none", "comm", "recompute", "optimizer", "backward", "init", "forward", "parameters", "gradients",
           "optimizer_word", "activations")  # fmt: skip


class Meaning(NamedTuple):
    """What a stack suggests: index in CLASSES, confidence 0 to 1, and its innermost line of user code."""

    kind: int
    confidence_ratio: float
    where: str
    loss: bool
    """Whether it is the loss or the output layer: no checkpointing of layers reaches it."""


_EVIDENCE = (
    ("comm", 0.9, r"foreach_all_gather|all_gather_copy_in|AllGather|_fsdp_collectives\.py|foreach_reduce\b|"
     r"reduce_scatter|all_gather_into_tensor|symm_mem|SymmetricMemory|deep_ep|all_to_all|_functional_collectives|"
     r"distributed_c10d\.py|ProcessGroup|_unsharded_flat_param|_alloc_storage|flat_param\.py.*unshard|ncclMemAlloc"),
    ("comm", 0.6, r"param_and_grad_buffer\.py|c10d::Reducer|\bReducer\b"),
    ("recompute", 0.85, r"recompute_fn|unpack_hook|checkpoint\.py:\d+ (backward|_checkpoint_without_reentrant)"),
    ("optimizer", 0.9, r"torch[/\\]optim[/\\]|_init_group|exp_avg|apex[/\\]optimizers|bitsandbytes[/\\]optim|"
     r"deepspeed[/\\]runtime[/\\]zero|megatron[/\\](core[/\\])?optimizer|(^|[/\\])(adamw?|sgd|lion|muon)\.py:|"
     r"_use_grad_for_differentiable|optimizer\.py:\d+ (_use_grad|wrapper|step)\b"),
    ("gradients", 0.9, r"AccumulateGrad"),
    ("backward", 0.8, r"_engine_run_backward|torch[/\\]autograd[/\\]__init__\.py|torch[/\\]_tensor\.py:\d+ backward|"
     r"autograd::Engine|\.py:\d+ backward$"),
    ("init", 0.85, r"torch[/\\]nn[/\\](modules|parameter).*:\d+ (__init__|_apply|convert|to|cuda|to_empty|__new__)$|"
     r"_init_sharded_param|reset_parameters|init_weight|load_state_dict|from_pretrained|nn[/\\]init\.py|to_empty$"),
    ("forward", 0.85, r"_call_impl|_wrapped_call_impl|:\d+ forward$|torch[/\\]nn[/\\]functional\.py"),
)  # fmt: skip
_WORDS = (
    ("optimizer_word", 0.6, r"optim|adam|exp_avg|momentum|master_(param|weight)"),
    ("gradients", 0.6, r"(^|_)grads?(_|$)|gradient"),
    ("comm", 0.6, r"all_?gather|all_?reduce|reduce_?scatter|nccl|bucket|dispatch|combine|comm(_|$)"),
    ("activations", 0.6, r"(^|_)act(s|ivations?)?(_|$)|logits?|loss|attention|attn|hidden|forward|block_(in|out)put"),
    ("parameters", 0.6, r"weights?|param(eter)?s?|embedding|build_model|init_model|^w$"),
)
_LOSS = re.compile(r"logits?|(^|_)loss|cross_entropy|nll_loss|log_softmax|lm_head|output_layer", re.IGNORECASE)
_LIBRARY = re.compile(
    r"site-packages|dist-packages|[/\\]lib[/\\]python\d|^torch[/\\]|[/\\]torch[/\\]|<frozen|<string>|<built-in|"
    r"\.(cpp|h|cc|cu|so)(\.\d+)?:|^\?\?:|^:\d+ |\bc10::|\bat::|\btorch::",
    re.IGNORECASE,
)
_LINE = re.compile(r"^(?P<file>.*):(?P<line>\d+) ?(?P<name>.*)$")


def meaning(frames: str) -> Meaning:
    """What the frames (`file:line name` a line, innermost first) suggest."""
    lines = frames.splitlines()
    user = [line for line in lines if not _LIBRARY.search(line)]
    where = _short(user[0] if user else next((x for x in lines if not x.startswith(("??", ":"))), lines[0]))
    names = [m["name"] for line in lines if (m := _LINE.match(line))]
    own = [m["name"] for line in user if (m := _LINE.match(line))]
    loss = bool(_LOSS.search(own[0] if own else "")) or any(map(_LOSS.search, names[:2]))
    for kind, confidence, pattern in _EVIDENCE:
        if re.search(pattern, frames, re.MULTILINE):
            return Meaning(CLASSES.index(kind), confidence, where, loss)
    for name in own:
        for kind, confidence, pattern in _WORDS:
            if re.search(pattern, name, re.IGNORECASE):
                return Meaning(CLASSES.index(kind), confidence, where, loss)
    return Meaning(0, 0.0, where, loss)


def _short(line: str) -> str:
    """`train.py:88 total_loss` of a frame with its whole path."""
    match = _LINE.match(line)
    if match is None:
        return line[:120]
    file = re.split(r"[/\\]", match["file"])[-1] or "?"
    return f"{file}:{match['line']} {match['name']}".strip()[:120]
