"""Links as the log says them, benchmarks beside, and groups over ranks; what is unknown is said in words."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import pyarrow as pa
import pytest

from diagnose.analyses import groups as analysis
from diagnose.analyses import links as offences
from diagnose.report import groups, links
from diagnose.report._blocks import Figure, Grid
from diagnose.schema import INGESTED
from tests import ask
from tests.report.example import example


def _built(schema: Any, *rows: dict[str, Any]) -> pa.Table:
    return schema.build({c: [r.get(c) for r in rows] for c in schema.arrow.names})


def _titles(section: Any) -> dict[str, Grid]:
    return {b.title: b for b in section.blocks if isinstance(b, Grid)}


def _figure(section: Any) -> Figure:
    (figure,) = [b for b in section.blocks if isinstance(b, Figure)]
    go.Figure(figure.spec)
    return figure


@pytest.fixture(scope="module")
def sockets() -> Any:
    return ask.run(ask.CASES / "E01")


def test_a_socket_is_named_with_hosts_and_cause(sockets: Any) -> None:
    section = links.section(sockets, sockets.tables)
    assert section is not None and section.lead == "TCP sockets between hosts."
    grids = _titles(section)
    (row,) = grids["What is wrong with the links"].rows
    assert row[0] == "TCP sockets between hosts" and row[1].shown == "node-a, node-b"
    assert row[3].shown.startswith("Failed to open libibverbs") and row[4] == "4 of 4"
    channels = grids["Channels by host"].rows
    assert [(r[0].shown, r[1].shown, r[2].shown, r[3].shown, r[4]) for r in channels] == [
        ("node-a", "ranks 0-1", "NET", "Socket", "no"), ("node-b", "ranks 2-3", "NET", "Socket", "no")
    ]  # fmt: skip
    (comm,) = grids["Communicators"].rows
    assert comm[:4] == ["1", "4", "2", "4"] and comm[4] == "yes"


def test_without_a_log_nothing_is_claimed_about_links() -> None:
    silent = {"links": _built(offences.SCHEMA, {"kind": "not_recorded", "hosts": [], "ranks": []})}
    assert links.section(example(), silent) is None
    forced = {"kind": "forced_algorithm", "hosts": [], "ranks": [], "cause": "NCCL_ALGO=Tree", "value": "TREE"}
    section = links.section(example(), {"links": _built(offences.SCHEMA, forced)})
    assert section is not None
    assert section.lead.startswith("Algorithm forced by the environment. Which links the job took is unknown: give")


def test_direct_access_that_the_log_does_not_tell_is_unknown() -> None:
    rows = [
        {"host": "a", "transport": "NET", "detail": "IB", "rank": 0},
        {"host": "a", "transport": "NET", "detail": "IB", "rank": 0, "gpudirect": True},
        {"host": "a", "transport": "P2P", "detail": "CUMEM", "rank": 0},
    ]
    section = links.section(example(), {"transports": _built(INGESTED["transports"], *rows)})
    assert section is not None and section.lead.startswith("The log shows no socket")
    seen = {(r[2].shown, r[4]) for r in _titles(section)["Channels by host"].rows}
    assert seen == {("NET", "unknown"), ("NET", "yes"), ("P2P", "no network")}


def test_a_communicator_that_only_started_is_marked() -> None:
    rows = [
        {"comm": "c", "comm_rank": r, "size": 3, "state": "complete" if r else "started", "host": "a"} for r in range(2)
    ]
    section = links.section(example(), {"communicators": _built(INGESTED["communicators"], *rows)})
    assert section is not None
    (row,) = _titles(section)["Communicators"].rows
    assert row[-2].tone == "warning" and row[3 - 1] == "1" and row[1] == "3"


def test_benchmarks_show_the_middle_of_each_size_and_the_largest() -> None:
    one = {"op": "all_reduce", "group_size": 8, "source": "nccl_tests"}
    rows = [
        one | {"size_bytes": s, "busbw_bytes_per_s": b}
        for s, b in ((8, 1e8), (1 << 30, 2e11), (1 << 30, 3e11), (1 << 30, 4e11))
    ]
    section = links.section(example(), {"bandwidths": _built(INGESTED["bandwidths"], *rows)})
    assert section is not None and "Which links the job took is unknown" in section.lead
    assert _figure(section).spec["data"][0]["x"] == [8, 1 << 30]
    (row,) = _titles(section)["Measured at the largest message"].rows
    assert row[0] == "nccl-tests" and row[3] == "1.00 GiB"
    assert row[4:] == ["300 GB/s", "400 GB/s", "3"]


def _groups(*rows: dict[str, Any]) -> dict[str, pa.Table]:
    return {"groups": _built(analysis.SCHEMA, *rows)}


def _tables() -> dict[str, pa.Table]:
    tp = [
        {"group": f"t{i}", "description": "tp", "size": 2, "ranks": [2 * i, 2 * i + 1], "dim": "tp",
         "dim_source": "description", "node_count": 1, "fewest_node_count": 1} for i in range(4)
    ]  # fmt: skip
    rest = {"group": "w", "description": "default_pg", "size": 8, "ranks": list(range(8)), "dim": "other",
            "dim_source": "unknown", "node_count": 2, "fewest_node_count": 2}  # fmt: skip
    dp = {"group": "d", "description": "dp", "size": 2, "ranks": [0, 4], "dim": "dp", "dim_source": "job",
          "node_count": 2, "fewest_node_count": 1}  # fmt: skip
    return _groups(*tp, rest, dp)


def test_groups_say_dimension_source_and_nodes_in_words() -> None:
    settings = _built(INGESTED["settings"], {"key": "cluster.gpus_per_node", "value": "4"})
    section = groups.section(example(), _tables() | {"settings": settings})
    assert section is not None
    assert section.lead == "6 groups; the dimension of 1 is unknown. 1 of them on more nodes than needed."
    rows = _titles(section)["Process groups and the nodes they span"].rows
    assert [(r[0], r[3]) for r in rows] == [("data", "1"), ("tensor", "4"), ("unknown", "1")]
    assert rows[2][1] == "unknown: neither description, layout nor traffic tells"
    figure = _figure(section)
    assert [s["x0"] for s in figure.spec["layout"]["shapes"]] == [3.5]
    bars = [(y, b, x) for t in figure.spec["data"] for y, b, x in zip(t["y"], t["base"], t["x"], strict=True)]
    assert sorted(bars) == [
        (0, -0.5, 1), (0, 3.5, 1), (1, -0.5, 2), (1, 1.5, 2), (1, 3.5, 2), (1, 5.5, 2), (2, -0.5, 8)
    ]  # fmt: skip
    neighbours = {t["base"][0]: t["marker"]["opacity"] for t in figure.spec["data"] if t["y"][0] == 1}
    assert neighbours[-0.5] != neighbours[1.5]


def test_unknown_nodes_and_ranks_are_said_to_be() -> None:
    bare = {"group": "g<b>", "size": 4, "dim": "other", "dim_source": "unknown"}
    section = groups.section(example(), _groups(bare))
    assert section is not None and "Which nodes they span is unknown: give job.toml" in section.lead
    assert not [b for b in section.blocks if isinstance(b, Figure)]
    with_ranks = groups.section(example(), _groups(bare | {"ranks": [0, 1, 2, 3]}))
    figure = _figure(with_ranks)
    assert "Borders of nodes are unknown" in figure.note and "<b>" not in str(figure.spec["data"])
    assert "<b>" not in str(figure.spec["layout"]["yaxis"])


def test_no_groups_no_section() -> None:
    assert groups.section(example(), {}) is None
    alone = {"group": "g", "size": 1, "ranks": [0], "dim": "other", "dim_source": "unknown"}
    assert groups.section(example(), _groups(alone)) is None
