"""misaligned-groups: a rank order that spreads a group over more nodes than it needs."""

from __future__ import annotations

import pytest

from tests.rules.build import MS, finding, outcome, quiet, turns_exactly_at
from tests.rules.crossing_rows import group, job


def strided(**more):
    return group(**{"dim": "tp", "size": 2, "nodes": 2, "fewest_node_count": 1, **more})


def fires():
    return job("tp", strided())


def test_fires_on_a_strided_group():
    found = finding("misaligned-groups", fires())
    assert found.lost_ns == 10 * MS
    assert "tp groups of 2 ranks span 2 nodes where 1 would do" in found.summary


@pytest.mark.parametrize("made", [group("tp"), strided(node_count=1), strided(dim="dp"), strided(fewest_node_count=2)])
def test_quiet_where_the_nodes_are_needed_or_meant(made):
    quiet("misaligned-groups", job("tp", made))


def test_skipped_where_nodes_are_unknown():
    assert outcome("misaligned-groups", job("tp", strided(node_count=None))).status == "skipped"


def test_exactly_at_the_threshold():
    turns_exactly_at("misaligned-groups", fires(), min_share_ratio=0.1)
