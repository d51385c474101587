"""Pipeline timelines in tables: what each column becomes, what is left out, which tables are refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from diagnose import ingest

ROWS = {
    "dp_rank": [1, 1, 1],
    "stage": [2, 2, 2],
    "rank": [5, 5, 5],
    "step": [40, 40, 40],
    "optype": ["forward-compute", "forward-send", "gc"],
    "start_ts": [0.5, 0.75, 1.0],
    "duration": [0.25, 0.125, 0.0],
    "seq_id": [3, 0, 0],
    "mc": [1, -1, -1],
    "mb_id": [3, -1, 0],
}


def written(folder: Path, name: str = "trace.parquet", **changed: list[object]) -> Path:
    """A table of three operations, some columns replaced."""
    table = pa.table({**ROWS, **changed})
    if name.endswith(".csv"):
        pyarrow.csv.write_csv(table, folder / name)
    else:
        pyarrow.parquet.write_table(table, folder / name)
    return folder / name


def read(path: Path) -> dict[str, pa.Table]:
    return ingest.read(ingest.Source(str(path)))


@pytest.mark.parametrize("name", ["trace.parquet", "trace.csv"])
def test_columns(tmp_path: Path, name: str) -> None:
    """Seconds become ns, -1 becomes unknown, and a micro-batch is kept only where one is computed."""
    rows = read(written(tmp_path, name))["microbatches"].drop_columns(["file", "source"]).to_pylist()

    same = {"rank": 5, "step": 40, "stage": 2, "replica": 1}
    assert rows == [
        {**same, "chunk": 1, "microbatch": 3, "seq": 3, "phase": "forward", "ts_ns": 500_000_000,
         "dur_ns": 250_000_000},
        {**same, "chunk": None, "microbatch": None, "seq": 0, "phase": "send_forward", "ts_ns": 750_000_000,
         "dur_ns": 125_000_000},
        {**same, "chunk": None, "microbatch": None, "seq": 0, "phase": "gc", "ts_ns": 1_000_000_000, "dur_ns": 0},
    ]  # fmt: skip


def test_unusable_rows_are_counted(tmp_path: Path) -> None:
    """A row without times and one with a negative duration go, an unknown operation stays as `other`; all is said."""
    given = written(tmp_path, start_ts=[0.5, float("nan"), 1.0], optype=["forward-compute", "gc", "warm-up"])
    negative = written(tmp_path, "other.parquet", duration=[0.25, -0.5, 0.0])
    found, short = read(given), read(negative)

    assert found["microbatches"]["phase"].to_pylist() == ["forward", "other"]
    assert found["files"]["status"].to_pylist() == ["repaired"]
    assert {(row["problem"], row["count"]) for row in found["quality"].to_pylist()} == {
        ("unparsed_value", 1),
        ("unknown_category", 1),
    }
    assert short["microbatches"].num_rows == 2
    assert short["quality"]["problem"].to_pylist() == ["negative_duration"]


@pytest.mark.parametrize("broken", ["other_columns", "cut", "text_for_numbers", "no_rows"])
def test_other_tables_are_refused(tmp_path: Path, broken: str) -> None:
    """One line says what the table is instead; nothing is guessed from it."""
    path = tmp_path / "t.parquet"
    if broken == "other_columns":
        pyarrow.parquet.write_table(pa.table({"step": [1], "loss": [0.5]}), path)
    elif broken == "cut":
        path.write_bytes(written(tmp_path).read_bytes()[:-20])
    elif broken == "text_for_numbers":
        written(tmp_path, "t.parquet", stage=["a", "b", "c"])
    else:
        written(tmp_path, "t.parquet", start_ts=[None, None, None])
    found = read(path)

    assert found["files"]["status"].to_pylist() == ["unusable"]
    assert "microbatches" not in found
    assert "expected" in found["files"]["detail"][0].as_py()


def test_sizes(tmp_path: Path) -> None:
    """The YAML beside a timeline gives the layout and the world size."""
    path = tmp_path / "meta.yaml"
    path.write_text("trial_name: ST\ndp_size: 2\npp_size: 4\ntp_size: 1\nvpp_size: 1\nworld_size: 8\n")
    found = read(path)

    given = dict(zip(found["settings"]["key"].to_pylist(), found["settings"]["value"].to_pylist(), strict=True))
    assert given["layout.dp"] == "2" and given["layout.pp"] == "4" and given["trial_name"] == "ST"
    assert found["files"]["world_size"].to_pylist() == [8]


def test_without_ranks_stages_and_replicas_tell_workers_apart(tmp_path: Path) -> None:
    table = pa.table({k: v for k, v in {**ROWS, "stage": [0, 1, 1], "dp_rank": [0, 0, 1]}.items() if k != "rank"})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    found = read(tmp_path / "t.parquet")

    assert found["microbatches"]["rank"].to_pylist() == [0, 2, 3]
    assert ("rank_inferred", 3) in {(row["problem"], row["count"]) for row in found["quality"].to_pylist()}
