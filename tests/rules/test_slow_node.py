"""slow-node: the host that is in all slow pairs."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import MS, finding, quiet, spans, step, tables, turns_exactly_at


def job(n4: float, others: float = 80.0) -> Tables:
    rows = []
    for i in range(1, 5):
        for j in range(i + 1, 5):
            speed = n4 if 4 in (i, j) else others
            rows.append({"from": f"n{i}", "to": f"n{j}", "busbw_bytes_per_s": speed * 1e9, "same_switch": i + j != 4})
    return tables(spans=spans(step(compute_ns=100 * MS)), pairs=rows)


def fires() -> Tables:
    return job(40.0)


def test_names_the_host_and_clears_the_switches() -> None:
    found = finding("slow-node", fires())
    assert (found.hosts, found.evidence["speed_ratio"]) == (("n4",), 0.5)
    assert "does not explain" in found.summary


def test_thresholds() -> None:
    turns_exactly_at("slow-node", fires(), max_speed_ratio=0.5)


def test_quiet_where_all_are_alike_or_one_pair_is_slow() -> None:
    quiet("slow-node", job(79.0))
    pairs = (("a", "b", 4e10), ("a", "c", 8e10), ("b", "c", 8e10))
    rows = [{"from": a, "to": b, "busbw_bytes_per_s": speed} for a, b, speed in pairs]
    quiet("slow-node", tables(spans=spans(step(compute_ns=MS)), pairs=rows))
