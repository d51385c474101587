"""Which collectives are gradient reductions, and how far that is known."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.analyses import collectives
from diagnose.analyses.reductions import SCALARS_BYTES, SCHEMA, reductions

MIB = 1024 * 1024


def found(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    names = {key for row in rows for key in row}
    return reductions(collectives.SCHEMA.build({name: [row.get(name) for row in rows] for name in names})).to_pylist()


def call(**more: Any) -> dict[str, Any]:
    return {"rank": 0, "op": "all_reduce", "dim": "dp", "group": "g", "size_bytes": MIB, "exposed_ns": 9, **more}


def test_empty_stays_empty() -> None:
    result = reductions(collectives.SCHEMA.empty())

    assert (result.num_rows, result.schema) == (0, SCHEMA.arrow)


@pytest.mark.parametrize(
    ("more", "evidence"),
    [
        ({}, "dimension"),
        ({"op": "reduce_scatter"}, "dimension"),
        ({"size_bytes": None}, "dimension"),
        ({"phase": "optimizer"}, "dimension"),
        ({"dim": "other", "phase": "backward"}, "phase"),
        ({"dim": "other"}, "assumed"),
        ({"dim": "other", "group": None}, "assumed"),
    ],
)
def test_a_gradient_reduction_and_how_it_is_known(more: dict[str, Any], evidence: str) -> None:
    (row,) = found(call(**more))

    assert (row["evidence"], row["exposed_ns"]) == (evidence, 9)


@pytest.mark.parametrize(
    "more",
    [
        {"op": "all_gather"},
        {"op": None},
        {"dim": "tp"},
        {"dim": "ep"},
        {"dim": None},
        {"phase": "forward"},
        {"size_bytes": SCALARS_BYTES},
    ],
)
def test_what_is_none(more: dict[str, Any]) -> None:
    assert found(call(**more)) == []


def test_one_byte_more_than_scalars_is_a_gradient() -> None:
    assert len(found(call(size_bytes=SCALARS_BYTES + 1))) == 1


def test_an_unnamed_group_that_reduces_in_the_forward_pass_is_tensor_parallel() -> None:
    forward, backward = (call(dim="other", group="0", phase=phase) for phase in ("forward", "backward"))

    assert found(forward, backward) == []
    assert len(found(call(dim="other", group="1", phase="forward"), backward)) == 1
    assert len(found(call(phase="forward"), call(phase="backward"))) == 1, "a named group is what its name says"


def test_a_scalar_in_the_forward_pass_says_nothing_about_the_group() -> None:
    loss = call(dim="other", group="0", phase="forward", size_bytes=4)

    assert len(found(loss, call(dim="other", group="0", phase="backward"))) == 1


def test_waiting_is_left_out_where_calls_are_matched() -> None:
    assert found(call(transfer_ns=4))[0]["exposed_ns"] == 4
    assert found(call(transfer_ns=40))[0]["exposed_ns"] == 9
