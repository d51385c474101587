"""Work of operators from recorded arguments; what torch itself counts is the reference where it can be."""

import json

import pytest

from diagnose.analyses._shapes import KNOWN, parse, work_of


def call(dims, scalars=None, kind="c10::BFloat16"):
    types = [kind if shape else "" for shape in dims]
    return parse(json.dumps(dims), json.dumps(types), json.dumps(scalars or []))


@pytest.mark.parametrize(
    ("operator", "dims", "sizes"),
    [
        ("aten::mm", [[4, 8], [8, 16]], (4, 16, 8, 1)),
        ("aten::addmm", [[16], [4, 8], [8, 16], [], []], (4, 16, 8, 1)),
        ("aten::bmm", [[3, 4, 8], [3, 8, 16]], (4, 16, 8, 3)),
        ("aten::baddbmm", [[3, 4, 16], [3, 4, 8], [3, 8, 16], [], []], (4, 16, 8, 3)),
        ("aten::_scaled_mm", [[4, 8], [8, 16], [], []], (4, 16, 8, 1)),
        ("aten::matmul", [[2, 4, 8], [8, 16]], (8, 16, 8, 1)),
        ("aten::linear", [[2, 4, 8], [16, 8], [16]], (8, 16, 8, 1)),
    ],
)
def test_products(operator, dims, sizes):
    work = work_of(operator, call(dims))

    assert (work.m, work.n, work.k, work.batch) == sizes
    assert work.flop == 2 * sizes[0] * sizes[1] * sizes[2] * sizes[3]
    assert work.dtype == "bfloat16"


@pytest.mark.parametrize(
    ("operator", "dims"),
    [
        ("aten::mm", [[4, 8], [9, 16]]),  # inner sizes differ
        ("aten::mm", [[4, 8]]),
        ("aten::mm", [[0, 8], [8, 16]]),
        ("aten::mm", [[4, 8], []]),
        ("aten::bmm", [[3, 4, 8], [2, 8, 16]]),
        ("aten::matmul", [[2, 1, 4, 8], [2, 3, 8, 16]]),  # broadcast: left to the product inside
        ("aten::linear", [[[4, 8], [4, 8]], [16, 8]]),  # a list of tensors
    ],
)
def test_odd_shapes_are_unknown(operator, dims):
    assert work_of(operator, call(dims)) is None


def test_unknown_type_keeps_the_work():
    work = work_of("aten::mm", call([[4, 8], [8, 16]], kind="c10::Float4"))

    assert (work.flop, work.dtype) == (1024, None)


def test_arguments_that_are_not_there():
    assert parse(None, None, None) is None
    assert parse("[]", "[]", "[]") is None
    assert parse('{"a": 1}', "[]", "[]") is None
    assert parse("[[4, 8], [8,", "[]", "[]") is None


CONV = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
IMAGE, WEIGHT = [2, 3, 8, 8], [16, 3, 3, 3]


def test_convolution():
    one = 2 * 2 * 16 * 3 * 9 * 4 * 4

    assert work_of("aten::convolution", call([IMAGE, WEIGHT, [16], [], [], [], [], [], []], CONV)).flop == one
    miopen = ["", "", "", "[1, 1]", "[2, 2]", "[1, 1]", "1", "False", "False"]
    assert work_of("aten::miopen_convolution", call([IMAGE, WEIGHT, []], miopen)).flop == one
    cudnn = ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "1", "False", "False", "True"]
    assert work_of("aten::cudnn_convolution", call([IMAGE, WEIGHT], cudnn)).flop == one


def test_transposed_convolution_counts_input_places():
    scalars = [*CONV[:6], "True", "[0, 0]", "1"]

    assert work_of("aten::convolution", call([[2, 16, 4, 4], WEIGHT], scalars)).flop == 2 * 2 * 16 * 3 * 9 * 16


def test_convolution_without_scalars_is_unknown():
    assert work_of("aten::convolution", call([IMAGE, WEIGHT])) is None
    assert work_of("aten::conv2d", call([IMAGE, WEIGHT], ["", "", "", "[1, 1]", "same", "[1, 1]", "1"])) is None


@pytest.mark.parametrize(("mask", "halves"), [("[True, True, False]", 2), ("[False, True, True]", 1)])
def test_convolution_backward(mask, halves):
    dims = [[2, 16, 4, 4], IMAGE, WEIGHT]
    scalars = ["", "", "", "[16]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", mask]

    assert work_of("aten::convolution_backward", call(dims, scalars)).flop == halves * 2 * 2 * 16 * 27 * 16
    assert work_of("aten::convolution_backward", call(dims)) is None


HEADS = [2, 4, 32, 16]  # batch, heads, sequence, size


def test_attention():
    full = ["", "", "", "", "0.", "False"]
    causal = [*full[:5], "True"]
    pairs = 32 * 33 // 2

    assert work_of("aten::scaled_dot_product_attention", call([HEADS] * 3, full)).flop == 4 * 8 * 32 * 32 * 16
    assert work_of("aten::scaled_dot_product_attention", call([HEADS] * 3, causal)).flop == 4 * 8 * pairs * 16
    assert work_of("aten::scaled_dot_product_attention", call([HEADS] * 3)) is None


def test_attention_with_heads_after_the_sequence():
    dims = [[2, 32, 4, 16]] * 3 + [[]] * 6
    scalars = ["", "", "", "", "", "32", "32", "0.", "False"]

    assert work_of("aten::_flash_attention_forward", call(dims, scalars)).flop == 4 * 8 * 32 * 32 * 16


def test_a_ragged_batch_is_unknown():
    dims = [[2, 32, 4, 16]] * 3 + [[3], [3]] + [[]] * 4
    scalars = ["", "", "", "", "", "32", "32", "0.", "False"]

    assert work_of("aten::_flash_attention_forward", call(dims, scalars)) is None


def test_backward_of_fused_attention_is_five_products():
    scalars = ["", "", "", "", "", "", "", "", "32", "32", "0.", "False"]
    dims = [HEADS] * 5 + [[2, 4, 32]] + [[]] * 6

    found = work_of("aten::_scaled_dot_product_flash_attention_backward", call(dims, scalars))

    assert found.flop == 10 * 8 * 32 * 32 * 16


@pytest.mark.parametrize("operator", sorted(KNOWN))
def test_no_operator_fails_on_too_few_arguments(operator):
    assert work_of(operator, call([[4, 8]])) is None


@pytest.mark.parametrize(
    ("operator", "places"),
    [
        ("addmm", {"mat1": 1, "mat2": 2}),
        ("baddbmm", {"batch1": 1, "batch2": 2}),
        ("_addmm_activation", {"mat1": 1, "mat2": 2}),
        ("_scaled_mm", {"self": 0, "mat2": 1}),
        ("convolution", {"weight": 1, "stride": 3, "padding": 4, "dilation": 5, "transposed": 6}),
        ("_convolution", {"weight": 1, "stride": 3, "padding": 4, "dilation": 5, "transposed": 6}),
        ("conv2d", {"weight": 1, "stride": 3, "padding": 4, "dilation": 5}),
        ("cudnn_convolution", {"weight": 1, "padding": 2, "stride": 3, "dilation": 4}),
        ("miopen_convolution", {"weight": 1, "padding": 3, "stride": 4, "dilation": 5}),
        ("convolution_backward", {"grad_output": 0, "input": 1, "weight": 2, "transposed": 7, "output_mask": 10}),
        ("scaled_dot_product_attention", {"query": 0, "is_causal": 5}),
        ("_scaled_dot_product_flash_attention", {"query": 0, "is_causal": 4}),
        ("_scaled_dot_product_efficient_attention", {"query": 0, "is_causal": 6}),
        ("_scaled_dot_product_cudnn_attention", {"query": 0, "is_causal": 6}),
        ("_flash_attention_forward", {"query": 0, "cum_seq_q": 3, "is_causal": 8}),
        ("_efficient_attention_forward", {"query": 0, "cu_seqlens_q": 4, "custom_mask_type": 9}),
        ("_scaled_dot_product_flash_attention_backward", {"query": 1, "cum_seq_q": 6, "is_causal": 11}),
        ("_scaled_dot_product_efficient_attention_backward", {"query": 1, "is_causal": 11}),
        ("_scaled_dot_product_cudnn_attention_backward", {"query": 1, "cum_seq_q": 9, "is_causal": 14}),
        ("_flash_attention_backward", {"query": 1, "cum_seq_q": 6, "is_causal": 11}),
        ("_efficient_attention_backward", {"query": 1, "cu_seqlens_q": 6, "custom_mask_type": 14}),
    ],
)
def test_argument_places_are_pytorchs(operator, places):
    torch = pytest.importorskip("torch")
    overload = getattr(torch.ops.aten, operator).default
    names = [argument.name for argument in overload._schema.arguments]

    assert {name: names.index(name) for name in places} == places
