"""Names of real kernels and what they are. `kernel_names.tsv`: class, category, name; labelled by hand.

Sources: public traces of PyTorch 1.8 to 2.9 on V100, A100, H100, MI210, MI250 and MI300X; NCCL, RCCL, MSCCL, oneCCL,
HCCL, NVSHMEM, DeepEP, vLLM, sglang, aiter, FlashInfer, TensorRT-LLM and Transformer Engine source; names that only
contain what communication is called.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.analyses._classify import copy_category, is_comm_name, label_of_name, user_patterns
from tests.analyses import rows

NAMES = [line.split("\t") for line in (Path(__file__).parent / "kernel_names.tsv").read_text().splitlines()]


@pytest.mark.parametrize(("kind", "category", "name"), NAMES, ids=[name[:60] for _, _, name in NAMES])
def test_real_names(kind, category, name):
    assert label_of_name(name) == (kind, category)


def test_the_table_is_long_enough_to_mean_something():
    assert len({name for _, _, name in NAMES}) == len(NAMES) >= 100
    assert sum(kind == "comm" for kind, _, _ in NAMES) >= 50


@pytest.mark.parametrize("name", [name for kind, _, name in NAMES if kind == "comm"])
def test_communication_is_a_word_not_a_piece_of_one(name):
    """What begins with a communication kernel's name is one; the same letters inside a longer word are not."""
    stem = name.removeprefix("void ").split("(")[0].split("<")[0].split("::")[-1]
    assert not is_comm_name(f"void mylib::xx{stem}xx_gemm<float>(float*)")


def test_types_of_a_communication_library_among_the_arguments_prove_nothing():
    assert not is_comm_name("void fused_norm<float>(float*, ncclDevKernelArgsStorage<4096ul>)")
    assert not is_comm_name("void fused_norm<deep_ep::Config>(float*)")


@pytest.mark.parametrize(("name", "is_set", "category"), [
    ("Memcpy HtoD (Pageable -> Device)", False, "memcpy_h2d"), ("Memcpy PtoP (Device -> Device)", False, "memcpy_p2p"),
    ("MemcpyDeviceToHost", False, "memcpy_d2h"), ("CopyHostToDevice", False, "memcpy_h2d"), ("Memcpy", False, "memcpy"),
    ("Memset (Device)", True, "memset"), ("unknown", True, "memset"),
])  # fmt: skip
def test_copies(name, is_set, category):
    assert copy_category(name, is_set) == category


def test_a_broken_pattern_of_the_user_is_taken_literally():
    patterns = user_patterns(rows.build("settings", [{"key": "classify.comm", "value": "ring_ar("}]))
    assert label_of_name("my ring_ar(float)", patterns).kind == "comm"
    assert label_of_name("my ring_ar", patterns).kind == "unclassified"
