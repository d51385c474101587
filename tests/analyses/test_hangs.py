"""Who hung a job: the wait's end is blamed, whoever only waits is not; real dumps with known faults."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from diagnose import ingest
from diagnose.analyses.hangs import hangs
from diagnose.schema import INGESTED, Tables
from tests.analyses import rows

TP, DP = "tp", "dp"


class Job:
    """Recorders of a job, call by call."""

    def __init__(self, **groups: list[int]) -> None:
        self.groups = groups
        self.calls: list[dict[str, Any]] = []

    def call(
        self, group: str, seq: int, ranks: list[int], done: list[int] | None = None, op: str = "all_reduce"
    ) -> Job:
        for rank in ranks:
            state = "completed" if done is not None and rank in done else "scheduled"
            self.calls.append(
                {"rank": rank, "group": group, "seq": seq, "op": op, "state": state, "ts_ns": 1000 * seq + rank,
                 "source": "flight_recorder"}
            )  # fmt: skip
        return self

    def recv(self, group: str, rank: int, peer: int) -> Job:
        self.calls.append(
            {
                "rank": rank,
                "group": group,
                "op": "recv",
                "peer": peer,
                "state": "scheduled",
                "source": "flight_recorder",
            }
        )
        return self

    def found(self, **renamed: int) -> list[dict[str, Any]]:
        members = [
            {"rank": rank, "group": name, "size": len(ranks), "ranks": ranks, "source": "flight_recorder"}
            for name, ranks in self.groups.items()
            for rank in ranks
        ]
        random.Random(1).shuffle(self.calls)
        table = hangs(rows.build("calls", self.calls), rows.build("members", members), INGESTED["enqueued"].empty())
        return table.to_pylist()

    def blamed(self) -> dict[int, str]:
        return {row["rank"]: row["role"] for row in self.found() if row["culprit"]}


def test_the_rank_that_never_called_is_blamed() -> None:
    job = Job(dp=[0, 1, 2, 3]).call(DP, 1, [0, 1, 2, 3], [0, 1, 2, 3]).call(DP, 2, [0, 1, 3])
    assert job.blamed() == {2: "never_enqueued"}
    (row,) = [r for r in job.found() if r["culprit"]]
    assert (row["seq"], row["op"], row["enqueued_seq"], row["peers_seq"]) == (2, "all_reduce", 1, 2)
    assert row["waiting_ranks"] == [0, 1, 3]
    assert row["unfinished_count"] == 0


def test_a_rank_that_waits_elsewhere_is_not_blamed() -> None:
    job = Job(tp=[0, 1], dp=[1, 3]).call(TP, 1, [0, 1], [0, 1]).call(DP, 1, [1, 3], [1, 3])
    job.call(TP, 2, [0]).call(DP, 2, [1])  # 0 waits for 1, which waits for 3
    assert job.blamed() == {3: "never_enqueued"}
    assert {r["rank"] for r in job.found() if r["role"] == "waited"} == {0, 1}


def test_a_rank_that_waits_to_receive_is_not_blamed() -> None:
    job = Job(tp=[0, 1], pp=[1, 2], dp=[2, 3])
    for name, ranks in job.groups.items():
        if name != "pp":
            job.call(name, 1, ranks, ranks)
    job.call(TP, 2, [0]).recv("pp", 1, 2).call(DP, 2, [3])  # 0 -> 1 -> 2 <- 3
    assert job.blamed() == {2: "never_enqueued"}


def test_ranks_that_wait_for_each_other_are_all_named() -> None:
    job = Job(tp=[0, 1], dp=[0, 1]).call(TP, 1, [0, 1], [0, 1]).call(DP, 1, [0, 1], [0, 1])
    job.call(TP, 2, [0]).call(DP, 2, [1])
    assert job.blamed() == {0: "never_enqueued", 1: "never_enqueued"}


def test_a_rank_that_stops_completing_is_blamed() -> None:
    job = Job(dp=[0, 1, 2]).call(DP, 1, [0, 1, 2], [0, 1, 2]).call(DP, 2, [0, 1, 2], [0, 1]).call(DP, 3, [0, 1, 2])
    assert job.blamed() == {2: "stuck_completing"}


def test_a_broadcast_root_may_finish_first() -> None:
    job = Job(dp=[0, 1]).call(DP, 1, [0, 1], [0, 1]).call(DP, 2, [0, 1], [0], op="broadcast")
    assert job.blamed() == {}


def test_all_entered_blames_nobody() -> None:
    job = Job(dp=[0, 1]).call(DP, 1, [0, 1], [0, 1]).call(DP, 2, [0, 1])
    assert [r["role"] for r in job.found()] == ["entered", "entered"]
    assert job.blamed() == {}


def test_nothing_unfinished_is_no_hang() -> None:
    assert Job(dp=[0, 1]).call(DP, 1, [0, 1], [0, 1]).found() == []


def test_the_rank_without_a_dump_is_suspected_only_where_nobody_else_is() -> None:
    everybody = [0, 1, 2, 3]
    job = Job(dp=everybody).call(DP, 2, [0, 1, 2])
    assert job.blamed() == {3: "no_dump"}
    assert Job(dp=everybody).call(DP, 2, [0]).blamed() == {}, "most dumps were not handed in"


def test_another_operation_at_the_same_number() -> None:
    job = Job(dp=[0, 1, 2]).call(DP, 3, [0, 1, 2], [0, 1, 2])
    job.call(DP, 4, [0, 2]).call(DP, 4, [1], op="all_gather")
    assert job.blamed() == {1: "mismatched"}


def test_a_ring_buffer_that_lost_part_of_a_coalesced_call_is_no_mismatch() -> None:
    job = Job(dp=[0, 1]).call(DP, 3, [0, 1], [0, 1], op="all_gather").call(DP, 3, [1], [1], op="coalesced")
    job.call(DP, 4, [0, 1], [0, 1]).call(DP, 5, [0, 1])
    assert job.blamed() == {}


def dumps(folder: Path) -> Tables:
    sources, _ = ingest.expand([str(folder)])
    return ingest.merge([ingest.read(source) for source in sources])


def of(folder: Path) -> list[dict[str, Any]]:
    found = dumps(folder)
    return hangs(found["calls"], found["members"], found["enqueued"]).to_pylist()


@pytest.mark.parametrize("fault, roles", [
    ("gpu_error_1st", {12: {"never_enqueued"}, 14: {"stuck_completing"}}),
    ("lock_gil_1st", {9: {"never_enqueued"}, 14: {"never_enqueued"}}),
])  # fmt: skip
def test_public_dumps_with_injected_faults(fault: str, roles: dict[int, set[str]], corpus: Path) -> None:
    found = of(corpus / "nvrx/tests/attribution/unit/fr_traces" / fault)
    assert {r: {row["role"] for row in found if row["rank"] == r and row["culprit"]} for r in roles} == roles
    assert {row["rank"] for row in found if row["culprit"]} == set(roles)
    tensor = {r["group"]: r for r in found if r["culprit"] and r["description"] == "TENSOR_MODEL_PARALLEL_GROUP"}
    if fault == "gpu_error_1st":
        assert (tensor["41"]["enqueued_seq"], tensor["41"]["peers_seq"], tensor["41"]["rank"]) == (42817, 42826, 12)
        assert (tensor["42"]["completed_seq"], tensor["42"]["peers_seq"], tensor["42"]["rank"]) == (42805, 42818, 14)
    else:
        assert all(row["unfinished_count"] == 0 for row in found if row["culprit"])
