"""thin-tensor-parallel: exposed communication of the tensor-parallel group."""

from __future__ import annotations

from typing import Any

from diagnose.schema import Tables
from tests.rules.build import MS, call, finding, outcome, quiet, spans, step, tables, turns_exactly_at


def job(
    exposed_ns: int = 20 * MS, node_count: int | None = 1, gemms: list[dict[str, Any]] | None = None, **more: Any
) -> Tables:
    more = {"dim": "tp", "group": "tp0", **more}
    return tables(
        spans=spans(step(compute_ns=100 * MS - exposed_ns, comm_ns=exposed_ns)),
        collectives=[call("all_reduce", exposed_ns // 2, **more)] * 2,
        groups=[{"group": "tp0", "size": 8, "dim": more["dim"], "node_count": node_count}],
        gemms=gemms or [],
    )


def fires() -> Tables:
    return job(gemms=[{"rank": 0, "step": 1, "m": 4096, "n": 512, "k": 8192}])


def test_fires_with_the_thin_side() -> None:
    found = finding("thin-tensor-parallel", fires())
    assert (found.lost_ns, found.evidence["calls_count"], found.evidence["thinnest_count"]) == (20 * MS, 2, 512)
    assert "at most 512" in found.summary


def test_shapes_are_not_needed() -> None:
    assert finding("thin-tensor-parallel", job()).summary.endswith("8 ranks")


def test_quiet_exactly_at_the_default_share() -> None:
    quiet("thin-tensor-parallel", job(15 * MS))
    finding("thin-tensor-parallel", job(15 * MS + 2))


def test_thresholds() -> None:
    turns_exactly_at("thin-tensor-parallel", fires(), min_share_ratio=0.2)


def test_a_group_across_nodes_is_another_fault() -> None:
    quiet("thin-tensor-parallel", job(node_count=2))
    finding("thin-tensor-parallel", job(node_count=None))


def test_data_parallel_traffic_is_none_of_its_business() -> None:
    quiet("thin-tensor-parallel", job(dim="dp"))


def test_no_answer_where_groups_are_unnamed() -> None:
    assert outcome("thin-tensor-parallel", job(dim="other")).status == "skipped"
    quiet("thin-tensor-parallel", job(4 * MS, dim="other"))
