"""Work formulas against direct counting and PyTorch's own counter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.formulas.flops import attention_flop, conv_flop, conv_positions, gemm_flop


def test_gemm():
    assert gemm_flop(2, 3, 4) == 48
    assert gemm_flop(2, 3, 4, batch=5) == 240


@given(st.integers(5, 12), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), st.integers(1, 2))
def test_conv_positions_count_the_windows_that_fit(size, kernel, stride, padding, dilation):
    reach = dilation * (kernel - 1)
    starts = range(-padding, size + padding - reach, stride)

    assert conv_positions([size], [kernel], [stride], [padding], [dilation]) == (len(starts),)


def test_conv():
    # 2 images, 3 -> 8 channels, 3x3 kernel, 4x4 places
    assert conv_flop(2, [8, 3, 3, 3], [4, 4]) == 2 * 2 * 8 * 3 * 9 * 16


@given(st.integers(1, 7), st.integers(1, 7))
def test_causal_attention_counts_visible_pairs(queries, keys):
    visible = int(np.tril(np.ones((queries, keys))).sum())

    assert attention_flop(1, queries, keys, 1, 0, causal=True, backward=False) == 2 * visible
    assert attention_flop(1, queries, keys, 1, 0, causal=False, backward=False) == 2 * queries * keys


@pytest.mark.parametrize("backward", [False, True])
def test_attention_equals_pytorchs_counter(backward):
    counter = pytest.importorskip("torch.utils.flop_counter")
    query, key, value = (2, 4, 32, 16), (2, 4, 48, 16), (2, 4, 48, 8)
    expected = (
        counter.sdpa_backward_flop_count((2, 4, 32, 8), query, key, value)
        if backward
        else counter.sdpa_flop_count(query, key, value)
    )

    assert attention_flop(8, 32, 48, 16, 8, causal=False, backward=backward) == expected


def test_conv_equals_pytorchs_counter():
    counter = pytest.importorskip("torch.utils.flop_counter")

    assert conv_flop(2, [8, 3, 3, 3], [16, 16]) == counter.conv_flop_count([2, 3, 16, 16], [8, 3, 3, 3], [2, 8, 16, 16])
