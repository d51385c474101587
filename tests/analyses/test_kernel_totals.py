"""The top-kernel list."""

from diagnose.analyses.kernel_totals import kernel_totals
from tests.analyses.rows import kernels


def test_totals_by_name():
    rows = kernel_totals(
        kernels(
            [
                {"name": "b", "ts_ns": 0, "dur_ns": 10, "category": "gemm"},
                {"name": "a", "ts_ns": 0, "dur_ns": 30},
                {"name": "b", "ts_ns": 0, "dur_ns": 20, "category": "gemm"},
                {"name": "b", "ts_ns": 0, "dur_ns": 60, "category": "gemm"},
                {"name": "b", "ts_ns": 0, "dur_ns": 7, "rank": 1, "category": "gemm"},
            ]
        )
    ).to_pylist()

    assert [(r["rank"], r["name"], r["calls_count"], r["dur_ns"], r["median_ns"], r["max_ns"]) for r in rows] == [
        (0, "b", 3, 90, 20, 60), (0, "a", 1, 30, 30, 30), (1, "b", 1, 7, 7, 7),
    ]  # fmt: skip
    assert [r["share_ratio"] for r in rows] == [0.75, 0.25, 1.0]
    assert rows[0]["class"] == "compute"


def test_module_is_where_most_time_went():
    def module(*parts):
        work = [{"ts_ns": 0, "dur_ns": d, "module": m, "source": None} for m, d in parts]
        return kernel_totals(kernels(work)).to_pylist()[0]["module"]

    assert module(("x", 10), ("y", 5), ("y", 6)) == "y"
    assert module(("x", 10), (None, 11)) is None  # most of it has no module: naming x would mislead
    assert module(("x", 12), (None, 11)) == "x"


def test_no_time_has_no_share():
    assert kernel_totals(kernels([{"ts_ns": 0}])).to_pylist()[0]["share_ratio"] is None


def test_empty():
    assert kernel_totals(kernels([])).num_rows == 0
