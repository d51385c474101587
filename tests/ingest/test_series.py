"""Tables of numbers per step: right values, and everything that gave none is counted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnose import schema
from diagnose.ingest import Source, read, series
from diagnose.schema import INGESTED, Tables


def load(tmp_path: Path, text: str | bytes, name: str = "steps.jsonl") -> Tables:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert series.sniff(Source(str(path)).head(), name)
    tables = read(Source(str(path)))
    for table, found in tables.items():
        schema.check(table, found, INGESTED[table])
    return tables


def values(tables: Tables) -> list[tuple[Any, ...]]:
    """Rows by step; the table itself keeps those of one metric together."""
    rows = tables["series"].to_pylist()
    return sorted((tuple(row[c] for c in ("rank", "step", "metric", "value")) for row in rows), key=lambda row: row[1])


def notes(tables: Tables) -> list[tuple[str, int]]:
    return [(row["problem"], row["count"]) for row in tables["quality"].to_pylist()]


def test_json_lines(tmp_path: Path) -> None:
    tables = load(
        tmp_path, '{"step": 0, "rank": 3, "loss": 2.5, "mem": {"peak_gib": 57}}\n{"step": 1, "rank": 3, "loss": "1.5"}'
    )
    assert values(tables) == [(3, 0, "loss", 2.5), (3, 0, "mem.peak_gib", 57.0), (3, 1, "loss", 1.5)]
    assert notes(tables) == [] and tables["files"]["status"].to_pylist() == ["ok"]
    assert tables["files"]["kind"].to_pylist() == ["series"] and tables["files"]["events_count"].to_pylist() == [3]


def test_nan_is_a_value_and_null_is_none(tmp_path: Path) -> None:
    tables = load(tmp_path, '{"step": 1, "loss": NaN, "acc": null}\n{"step": 2, "loss": 1e400, "acc": 0}')
    found = values(tables)
    assert [row[:3] for row in found] == [(None, 1, "loss"), (None, 2, "loss"), (None, 2, "acc")]
    assert math.isnan(found[0][3]) and math.isinf(found[1][3]) and found[2][3] == 0.0


def test_what_is_lost_is_counted(tmp_path: Path) -> None:
    lines = [
        '{"step": 1, "loss": 1, "note": "x", "tok": [1, 2]}', "not json", '{"config": 5}', '{"step": 1.5, "loss": 2}',
        "[1]", "", '{"step": 2, "loss": "N/A"}',
    ]  # fmt: skip
    tables = load(tmp_path, "\n".join(lines))
    assert values(tables) == [(None, 1, "loss", 1.0)]
    assert notes(tables) == [
        ("unreadable_line", 2),
        ("unreadable_line", 2),
        ("unparsed_value", 1),
        ("unparsed_value", 2),
    ]
    assert "note" in tables["quality"]["detail"][3].as_py() and "tok" in tables["quality"]["detail"][3].as_py()
    assert tables["files"]["status"].to_pylist() == ["partial"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "step,loss,lr\n1,2.5,0.1\n2,1.5,\n"),
        ("a.csv", "\n\nStep,loss,lr\r\n1,2.5,0.1\r\n2,1.5,\r\n"),
        ("a.tsv", "Global Step\tloss\tlr\n1\t2.5\t0.1\n2\t1.5\t\n"),
        ("a.txt", "iteration;loss;lr\n1;2.5;0.1\n2;1.5;\n"),
        ("a.csv", "# written by a logger\n# of last year\niter,loss,lr\n1,2.5,0.1\n2,1.5,"),
        ("a.csv", "#iter,loss,lr\n1,2.5,0.1\n2,1.5,"),
        ("a.csv", '"step","loss","lr"\n"1","2.5","0.1"\n"2","1.5",""\n'),
    ],
)
def test_delimited_tables(tmp_path: Path, name: str, text: str) -> None:
    tables = load(tmp_path, text, name)
    assert values(tables) == [(None, 1, "loss", 2.5), (None, 1, "lr", 0.1), (None, 2, "loss", 1.5)]
    assert notes(tables) == []


def test_a_damaged_table(tmp_path: Path) -> None:
    text = b"step,rank,loss,name\n1,0,2.5,a\n2,0,1.5\n3,0,x,\xff\n4,1,0.5,c,d\nfive,1,1,e\n6,1,1,f\n"
    tables = load(tmp_path, text, "a.csv")
    assert values(tables) == [(0, 1, "loss", 2.5), (1, 6, "loss", 1.0)]
    assert notes(tables) == [
        ("unreadable_line", 2),
        ("unreadable_line", 1),
        ("unparsed_value", 1),
        ("unparsed_value", 1),
    ]


def test_a_rank_from_the_name(tmp_path: Path) -> None:
    tables = load(tmp_path, '{"step": 0, "loss": 1}', "rank5.jsonl")
    assert tables["files"]["rank"].to_pylist() == [5] and notes(tables) == [("rank_inferred", 1)]


def test_a_table_without_steps_says_which_columns_it_has(tmp_path: Path) -> None:
    tables = load(tmp_path, "time,util\n1,2\n2,3\n", "smi.csv")
    assert tables["files"]["status"].to_pylist() == ["unusable"]
    assert "time, util" in tables["files"]["detail"][0].as_py() and "step" in tables["files"]["detail"][0].as_py()


@pytest.mark.parametrize(
    "text",
    [
        "", "hello", "Dear all,\nthe loss is 3, the step 4.\n", "1,2\n3,4\n", "KEY=1\nB=2\n",
        '{"schemaVersion": 1, "traceEvents": []}',
        '{"a": {"b": 1}}\n{"a": {"b": 1}}', "{", "[]", "{}", '{"tp": 8, "pp": 2}', "a\rb,c\r1,2",
    ],
)  # fmt: skip
def test_what_is_no_table(text: str) -> None:
    assert not series.sniff(text.encode(), "x.txt")


WANDB = [
    {"_step": n, "_runtime": at, "_timestamp": 1_700_000_000 + at, "train/global_step": 10 * n, "train/loss": 3.0}
    for n, at in enumerate((0.0, 2.5, 5.0))
]  # fmt: skip


def as_csv(rows: list[dict[str, Any]], index: bool) -> str:
    """As pandas writes a history: with its index in front, or not."""
    lines = [["", *rows[0]] if index else list(rows[0])]
    lines += [
        [str(n), *map(str, row.values())] if index else list(map(str, row.values())) for n, row in enumerate(rows)
    ]
    return "".join(",".join(line) + "\n" for line in lines)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("history.jsonl", "".join(json.dumps(row) + "\n" for row in WANDB)),
        ("history.csv", as_csv(WANDB, index=False)), ("history.csv", as_csv(WANDB, index=True)),
    ],
)  # fmt: skip
def test_a_history_of_weights_and_biases(tmp_path: Path, name: str, text: str) -> None:
    tables = load(tmp_path, text, name)

    found = [row[1:] for row in values(tables) if row[2]]
    assert found == [
        (step, metric, value)
        for step, elapsed in ((0, 0.0), (10, 2.5e9), (20, 5e9))
        for metric, value in (("elapsed_time_ns", elapsed), ("train/loss", 3.0))
    ]
    ends = tables["step_ends"].to_pylist()
    assert [(row["step"], row["ts_ns"]) for row in ends][1:] == [
        (10, 1_700_000_002_500_000_000), (20, 1_700_000_005_000_000_000),
    ]  # fmt: skip
    assert all(row["zoned"] for row in ends)


def test_its_own_step_counts_where_there_is_no_other(tmp_path: Path) -> None:
    rows = [{"_step": n, "loss": 1.0} for n in (4, 5)]
    assert [row[1:] for row in values(load(tmp_path, as_csv(rows, index=False), "a.csv"))] == [
        (4, "loss", 1.0), (5, "loss", 1.0),
    ]  # fmt: skip


def test_a_chart_of_weights_and_biases(tmp_path: Path) -> None:
    chart = "Step,big - train/loss,big - train/loss__MIN,big - train/loss__MAX\n1,2.5,2.5,2.5\n2,1.5,1.5,1.5\n"
    assert values(load(tmp_path, chart, "wandb_export.csv")) == [
        (None, 1, "train/loss", 2.5),
        (None, 2, "train/loss", 1.5),
    ]


@pytest.mark.parametrize(
    ("times", "zoned"),
    [
        (("2024-01-15T10:22:33Z", "2024-01-15T10:22:34Z"), True),
        (("2024-01-15 10:22:33", "2024-01-15 10:22:34.5"), False),
    ],
)
def test_times_in_words(tmp_path: Path, times: tuple[str, str], zoned: bool) -> None:
    tables = load(tmp_path, f"time,step,loss\n{times[0]},1,2.5\n{times[1]},2,2.5\n", "a.csv")
    ends = tables["step_ends"].to_pylist()
    assert ends[0]["ts_ns"] == 1705314153000000000 and [row["zoned"] for row in ends] == [zoned, zoned]


def test_a_time_that_is_no_wall_clock_is_a_metric(tmp_path: Path) -> None:
    tables = load(tmp_path, "time,step\n0.5,1\n0.6,2\n", "a.csv")
    assert values(tables) == [(None, 1, "time", 0.5), (None, 2, "time", 0.6)] and "step_ends" not in tables


records = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 7), st.floats(-1e300, 1e300), st.booleans()),
    min_size=1, max_size=30,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(records, st.integers(1, 300))
def test_any_pieces_give_the_same_rows(tmp_path: Path, monkeypatch: Any, given_rows: list[Any], size: int) -> None:
    from diagnose.ingest import _cells

    monkeypatch.setattr(_cells, "_CHUNK_BYTES", size)
    lines = [json.dumps({"step": s, "rank": r, "x": x, **({"y": 1} if y else {})}) for s, r, x, y in given_rows]
    expected = [row for s, r, x, y in given_rows for row in [(r, s, "x", x), *([(r, s, "y", 1.0)] if y else [])]]
    expected.sort(key=str)
    assert sorted(values(load(tmp_path, "\n".join(lines))), key=str) == expected
    table = ["step,rank,x,y", *(f"{s},{r},{x!r},{1 if y else ''}" for s, r, x, y in given_rows)]
    assert sorted(values(load(tmp_path, "\n".join(table), "a.csv")), key=str) == expected


names = st.text("abc", min_size=1, max_size=2).map(lambda name: f"m_{name}")
cells = st.one_of(
    st.integers(-(10**17), 10**17), st.floats(allow_nan=True), st.text("1.e+-nax ", max_size=4), st.none(),
    st.booleans(), st.just([1]), st.fixed_dictionaries({"deep": st.integers(0, 9)}),
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.lists(st.dictionaries(names, cells, max_size=3), min_size=1, max_size=6), st.booleans())
def test_the_fast_reader_gives_what_the_general_one_gives(given_rows: list[dict[str, Any]], alike: bool) -> None:
    from diagnose.ingest import _cells

    shapes = [given_rows[0]] * len(given_rows) if alike else given_rows
    lines = [json.dumps({"step": n, **row}) for n, row in enumerate(shapes)]
    whole = "\n".join(lines).encode()

    fast, general = _cells._alike(whole, len(lines)), _cells._any_json(whole, 0)

    if fast is not None:
        for name, column in fast.items():
            other = general.columns.get(name)
            values, there, words = _cells.numbers(column)
            if other is None:
                assert not there.any() and not words.any()
                continue
            np.testing.assert_array_equal(values, _cells.numbers(other)[0])
            np.testing.assert_array_equal(there, _cells.numbers(other)[1])
            np.testing.assert_array_equal(words, _cells.numbers(other)[2])


def test_lines_alike_take_the_fast_reader() -> None:
    from diagnose.ingest import _cells

    whole = b"\n".join(b'{"step": %d, "x": %d.5, "note": "a"}' % (n, n) for n in range(9))

    assert _cells._alike(whole, 9) is not None
    assert _cells._alike(whole.replace(b"4.5", b"[4]"), 9) is None, "a list"
    assert _cells._alike(whole + b"\n", 10) is None, "an empty line"
    assert _cells._alike(whole.replace(b'"x": 4.5', b'"y": 4.5'), 9) is None, "another key"
