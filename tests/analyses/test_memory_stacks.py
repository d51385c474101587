"""What call stacks suggest: frames as frameworks leave them, and the line a user can act on."""

from __future__ import annotations

import pytest

from diagnose.analyses._memory_stacks import CLASSES, meaning

TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
FORWARD = f"{TORCH}/nn/modules/module.py:1751 _call_impl"
TRAIN = "/home/me/train.py:42 train_step"

STACKS = {
    f"{TORCH}/optim/adamw.py:110 _init_group\n{TORCH}/optim/optimizer.py:490 wrapper\n{TRAIN}": "optimizer",
    f"{TORCH}/nn/functional.py:2900 linear\n{FORWARD}\n{TRAIN}": "forward",
    f"{TORCH}/autograd/graph.py:824 _engine_run_backward\n{TORCH}/_tensor.py:648 backward\n{TRAIN}": "backward",
    f"{TORCH}/utils/checkpoint.py:1122 unpack_hook\n{TORCH}/autograd/graph.py:1 _engine_run_backward": "recompute",
    f"{TORCH}/distributed/fsdp/_fully_shard/_fsdp_collectives.py:180 foreach_all_gather\n{FORWARD}": "comm",
    f"{TORCH}/nn/modules/linear.py:106 __init__\n{TRAIN}": "init",
    f"{TORCH}/nn/modules/module.py:930 _apply\n{TORCH}/nn/modules/module.py:1340 to\n{TRAIN}": "init",
    "megatron/core/distributed/param_and_grad_buffer.py:300 __init__": "comm",
    "megatron/core/optimizer/distrib_optimizer.py:90 step": "optimizer",
    "train.py:1 weights": "parameters",
    "train.py:10 layer_act": "activations",
    "train.py:3 master_weights": "optimizer_word",
    "train.py:3 x": "none",
    f"??:0 torch::unwind::unwind()\n??:0 torch::autograd::AccumulateGrad::apply\n{TRAIN}": "gradients",
}


@pytest.mark.parametrize(("frames", "expected"), STACKS.items())
def test_class_of_a_stack(frames: str, expected: str) -> None:
    assert CLASSES[meaning(frames).kind] == expected


def test_the_line_of_the_user() -> None:
    assert meaning(f"{FORWARD}\n{TRAIN}").where == "train.py:42 train_step"
    assert (
        meaning("D:\\dev\\x\\model.py:54 forward\nD:\\v\\Lib\\site-packages\\torch\\nn\\m.py:1 f").where
        == "model.py:54 forward"
    )
    assert meaning(FORWARD).where == "module.py:1751 _call_impl", "better a library than nothing"


def test_the_loss_is_known() -> None:
    assert meaning("train.py:12 compute_loss_logits").loss
    assert meaning(f"{TORCH}/nn/functional.py:3100 cross_entropy\n{TRAIN}").loss
    assert not meaning(f"{FORWARD}\n{TRAIN}").loss
