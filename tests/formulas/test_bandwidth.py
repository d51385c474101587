"""Bus bandwidth factors of nccl-tests."""

import pytest

from diagnose.formulas.bandwidth import busbw_factor


@pytest.mark.parametrize(
    ("op", "ranks", "factor"),
    [
        ("all_reduce", 8, 1.75),
        ("all_reduce", 2, 1.0),
        ("all_gather", 8, 0.875),
        ("reduce_scatter", 4, 0.75),
        ("all_to_all", 16, 0.9375),
        ("broadcast", 8, 1.0),
        ("send", None, 1.0),
        ("all_reduce", 1, 0.0),
        ("all_reduce", None, None),
        ("gather", 8, None),
        ("unknown", 8, None),
    ],
)
def test_factors(op, ranks, factor):
    assert busbw_factor(op, ranks) == factor
