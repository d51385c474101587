"""Work of one operator call from its recorded arguments: products, convolutions, attention.

Only operators whose argument order is known are read; missing or odd shapes give None, never a guess. Shapes of
sequences packed into one tensor (a ragged batch) hide the lengths: None as well.
Source of the argument orders: aten/src/ATen/native/native_functions.yaml of PyTorch 1.8 to 2.13.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from diagnose.formulas.flops import attention_flop, conv_flop, conv_positions, gemm_flop

DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "c10::Float8_e4m3fn": "float8",
    "c10::Float8_e5m2": "float8",
    "c10::Float8_e4m3fnuz": "float8",
    "c10::Float8_e5m2fnuz": "float8",
    "signed char": "int8",
}


class Call(NamedTuple):
    """Recorded arguments of a call, parsed: shape, type and scalar text per argument."""

    dims: list[Any]
    types: list[str]
    scalars: list[str]


class OperatorWork(NamedTuple):
    """FLOP of one call; m, n, k, batch are -1 for what is no single product."""

    flop: float
    dtype: str | None
    m: int = -1
    n: int = -1
    k: int = -1
    batch: int = -1


Rule = Callable[[Call], OperatorWork | None]


def parse(dims: str | None, types: str | None, scalars: str | None) -> Call | None:
    """The call's arguments from their JSON texts; None where shapes are absent, damaged or no list."""
    try:
        texts = [json.loads(text) if text else [] for text in (dims, types, scalars)]
    except ValueError:
        return None
    if not texts[0] or not all(isinstance(text, list) for text in texts):
        return None
    return Call(texts[0], [str(t) for t in texts[1]], [str(s) for s in texts[2]])


def work_of(operator: str, call: Call) -> OperatorWork | None:
    """Work of a call of `operator` (a key of KNOWN); None where its arguments do not tell."""
    return KNOWN[operator](call)


def _tensor(call: Call, index: int, rank: int | None = None) -> list[int] | None:
    """Shape of a tensor argument, None where it is absent, of another rank or has a zero."""
    shape = call.dims[index] if index < len(call.dims) else None
    if not isinstance(shape, list) or not shape or not all(isinstance(size, int) and size > 0 for size in shape):
        return None
    return shape if rank is None or len(shape) == rank else None


def _dtype(call: Call, index: int) -> str | None:
    return DTYPES.get(call.types[index]) if index < len(call.types) else None


def _scalar(call: Call, index: int) -> Any:
    """A scalar argument as Python value (True, 3, [1, 1]); None where it was not recorded."""
    text = call.scalars[index] if index < len(call.scalars) else ""
    try:
        return json.loads(text.replace("True", "true").replace("False", "false")) if text else None
    except ValueError:
        return None


def _product(a: int) -> Rule:
    """Argument `a` times argument `a + 1`, two matrices, or two batches of matrices."""

    def work(call: Call) -> OperatorWork | None:
        left, right = _tensor(call, a), _tensor(call, a + 1)
        if not left or not right or len(left) != len(right) or len(left) not in (2, 3) or left[-1] != right[-2]:
            return None
        batch = left[0] if len(left) == 3 else 1
        if len(left) == 3 and right[0] != batch:
            return None
        m, k, n = left[-2], left[-1], right[-1]
        return OperatorWork(float(gemm_flop(m, n, k, batch)), _dtype(call, a), m, n, k, batch)

    return work


def _matmul(call: Call) -> OperatorWork | None:
    left, right = _tensor(call, 0), _tensor(call, 1)
    if not left or not right or len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        return None
    outer = right[:-2]
    if outer and outer != left[:-2]:
        return None  # broadcast batches: left to the product inside
    batch = prod(outer)
    m = left[-2] if outer else prod(left[:-1])
    return OperatorWork(float(gemm_flop(m, right[-1], left[-1], batch)), _dtype(call, 0), m, right[-1], left[-1], batch)


def _linear(call: Call) -> OperatorWork | None:
    given, weight = _tensor(call, 0), _tensor(call, 1, 2)
    if not given or not weight or given[-1] != weight[1]:
        return None
    m = prod(given[:-1])
    return OperatorWork(float(gemm_flop(m, weight[0], weight[1])), _dtype(call, 0), m, weight[0], weight[1], 1)


def _convolution(stride: int, padding: int, dilation: int, transposed: int | None) -> Rule:
    """Forward convolution of (input, weight, ...) with the positions of its scalar arguments."""

    def work(call: Call) -> OperatorWork | None:
        given, weight = _tensor(call, 0), _tensor(call, 1)
        if not given or not weight or len(given) != len(weight) or len(given) < 3:
            return None
        turned = False if transposed is None else _scalar(call, transposed)
        if turned is None:
            return None
        if turned:
            return OperatorWork(float(conv_flop(given[0], weight, given[2:])), _dtype(call, 0))
        spatial = len(given) - 2
        numbers = [_per_axis(_scalar(call, index), spatial) for index in (stride, padding, dilation)]
        if not all(numbers):
            return None
        positions = conv_positions(given[2:], weight[2:], *numbers)  # type: ignore[arg-type]
        return OperatorWork(float(conv_flop(given[0], weight, positions)), _dtype(call, 0))

    return work


def _per_axis(value: Any, axes: int) -> list[int] | None:
    """[1] or [1, 2] or 1 as one number an axis; None where not recorded or given as a word ("same")."""
    values = [value] if isinstance(value, int) else value
    if not isinstance(values, list) or len(values) not in (1, axes) or not all(isinstance(v, int) for v in values):
        return None
    return values * axes if len(values) == 1 else values


def _convolution_backward(call: Call) -> OperatorWork | None:
    """aten::convolution_backward(grad, input, weight, bias_sizes, ..., transposed 7, ..., output_mask 10)."""
    grad, given, weight = (_tensor(call, index) for index in range(3))
    turned, mask = _scalar(call, 7), _scalar(call, 10)
    if not grad or not given or not weight or turned is None or not isinstance(mask, list) or len(mask) != 3:
        return None
    one = conv_flop(given[0], weight, given[2:] if turned else grad[2:])
    return OperatorWork(float(one * (bool(mask[0]) + bool(mask[1]))), _dtype(call, 1))


def _attention(
    first: int, causal: int, *, heads_axis: int = 1, backward: bool = False, ragged: int | None = None
) -> Rule:
    """Attention whose query, key, value start at argument `first`; `causal` is a scalar's position.

    `heads_axis`: 1 for (batch, heads, sequence, size), 2 for (batch, sequence, heads, size). `ragged`: argument with
    cumulated lengths, which must be absent.
    """

    def work(call: Call) -> OperatorWork | None:
        query, key, value = (_tensor(call, first + i, 4) for i in range(3))
        is_causal = _scalar(call, causal)
        if not query or not key or not value or not isinstance(is_causal, int):
            return None
        if ragged is not None and _tensor(call, ragged):
            return None
        sequence = 3 - heads_axis
        flop = attention_flop(
            query[0] * query[heads_axis], query[sequence], key[sequence], query[3], value[3],
            causal=bool(is_causal), backward=backward,
        )  # fmt: skip
        return OperatorWork(float(flop), _dtype(call, first))

    return work


PRODUCTS: dict[str, Rule] = {
    "aten::mm": _product(0),
    "aten::bmm": _product(0),
    "aten::addmm": _product(1),
    "aten::baddbmm": _product(1),
    "aten::_addmm_activation": _product(1),
    "aten::_scaled_mm": _product(0),
    "aten::_int_mm": _product(0),
    "aten::matmul": _matmul,
    "aten::linear": _linear,
}
"""Operators that are one matrix product (or one batch of equal ones)."""

KNOWN: dict[str, Rule] = {
    **PRODUCTS,
    "aten::convolution": _convolution(3, 4, 5, 6),
    "aten::_convolution": _convolution(3, 4, 5, 6),
    "aten::conv1d": _convolution(3, 4, 5, None),
    "aten::conv2d": _convolution(3, 4, 5, None),
    "aten::conv3d": _convolution(3, 4, 5, None),
    "aten::cudnn_convolution": _convolution(3, 2, 4, None),
    "aten::miopen_convolution": _convolution(4, 3, 5, None),
    "aten::convolution_backward": _convolution_backward,
    "aten::scaled_dot_product_attention": _attention(0, 5),
    "aten::_scaled_dot_product_flash_attention": _attention(0, 4),
    "aten::_scaled_dot_product_efficient_attention": _attention(0, 6),
    "aten::_scaled_dot_product_cudnn_attention": _attention(0, 6),
    "aten::_flash_attention_forward": _attention(0, 8, heads_axis=2, ragged=3),
    "aten::_efficient_attention_forward": _attention(0, 9, heads_axis=2, ragged=4),
    "aten::_scaled_dot_product_flash_attention_backward": _attention(1, 11, backward=True, ragged=6),
    "aten::_scaled_dot_product_efficient_attention_backward": _attention(1, 11, backward=True),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention(1, 14, backward=True, ragged=9),
    "aten::_flash_attention_backward": _attention(1, 11, heads_axis=2, backward=True, ragged=6),
    "aten::_efficient_attention_backward": _attention(1, 14, heads_axis=2, backward=True, ragged=6),
}
"""Every operator whose work is understood."""
