"""Graph launches."""

from diagnose.analyses.graphs import graphs
from tests.analyses.rows import events, kernels


def rows_of(*work):
    """Rows of (launch id, start, end, in a graph)."""
    host = events([{"kind": "kernel", "name": "k", "ts_ns": a, "end": b, "launch_id": n} for n, a, b, _ in work])
    table = graphs(kernels([{"ts_ns": a, "end": b, "graph": graph} for _, a, b, graph in work]), host)
    columns = ("launch_id", "ts_ns", "dur_ns", "kernels_count", "gap_ns", "launch_gap_ns")
    return [tuple(row[c] for c in columns) for row in table.to_pylist()]


def test_kernels_of_one_launch_are_one_row():
    assert rows_of((1, 0, 10, False), (5, 30, 40, True), (5, 45, 60, True), (5, 50, 58, True), (6, 60, 70, True)) == [
        (5, 30, 30, 3, 5, 20),
        (6, 60, 10, 1, 0, 0),
    ]


def test_nothing_before_is_unknown_and_other_work_fills_gaps_outside_only():
    assert rows_of((5, 30, 40, True), (1, 40, 50, False), (5, 50, 60, True)) == [(5, 30, 30, 2, 10, None)]


def test_work_that_still_runs_leaves_no_gap():
    assert rows_of((1, 0, 100, False), (5, 30, 40, True))[0][-1] == 0


def test_no_graphs():
    assert rows_of((1, 0, 10, False)) == []
    assert rows_of() == []
