"""Joining parts: ids stay joined, ranks are settled, duplicates go, runs are told apart."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from diagnose import schema
from diagnose.ingest import merge, quality, unusable
from diagnose.schema import INGESTED, Tables
from diagnose.selection import of_one_run


def build(table: str, /, **columns: Any) -> pa.Table:
    return INGESTED[table].build(columns)


def part(
    path: str = "t.json", rank: int | None = None, *, world: int | None = None, gpu: str | None = None, shift: int = 0,
    names: tuple[str, ...] = ("mm", "add"), source: str | None = "distributedInfo",
) -> Tables:  # fmt: skip
    """A trace of a few events, one of which has arguments, as an ingester gives it: ranks and files left null."""
    count = len(names)
    return {
        "files": build(
            "files", file=[0], path=[path], kind=["kineto"], rank=[rank],
            rank_source=[source if rank is not None else None],
            world_size=[world], gpu=[gpu], events_count=[count], start_ns=[shift], end_ns=[shift + 10 * count],
            status=["ok"], detail=[""],
        ),
        "events": build(
            "events", event_id=list(range(count)), kind=["op"] * count, name=list(names),
            ts_ns=[shift + 10 * i for i in range(count)], dur_ns=[5] * count,
        ),
        "op_args": build("op_args", event_id=[count - 1], sequence=[7]),
        "threads": build("threads", process=[1], thread=[1], name=[f"main of {path}"]),
        "quality": quality([]),
    }  # fmt: skip


def rows(tables: Tables, name: str, *columns: str) -> list[tuple[Any, ...]]:
    return list(zip(*(tables[name][column].to_pylist() for column in columns), strict=True))


def problems(tables: Tables) -> list[str]:
    return tables["quality"]["problem"].to_pylist()


def test_ids_stay_joined_and_labels_share_one_dictionary() -> None:
    joined = merge(
        [part("a", 0, names=("mm", "add")), part("b", 1, names=("add", "nccl", "mm")), part("c", 2, names=("x",))]
    )
    for name, table in joined.items():
        schema.check(name, table, INGESTED[name])
    assert joined["events"]["event_id"].to_pylist() == list(range(6))
    assert rows(joined, "events", "file", "rank", "name") == [
        (0, 0, "mm"), (0, 0, "add"), (1, 1, "add"), (1, 1, "nccl"), (1, 1, "mm"), (2, 2, "x"),
    ]  # fmt: skip
    assert joined["op_args"]["event_id"].to_pylist() == [1, 4, 5]
    assert rows(joined, "threads", "rank", "name") == [(0, "main of a"), (1, "main of b"), (2, "main of c")]
    dictionaries = [chunk.dictionary for chunk in joined["events"]["name"].chunks]
    assert all(d.equals(dictionaries[0]) for d in dictionaries) and len(set(dictionaries[0].to_pylist())) == 4
    assert joined["files"]["run"].to_pylist() == [0, 0, 0]
    assert joined["quality"].num_rows == 0


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=6))
def test_every_row_finds_its_event_and_file(shape: list[tuple[int, bool]]) -> None:
    parts = [
        part(f"f{i}", i if known else None, names=tuple(f"n{i}.{k}" for k in range(count + 1)), shift=i * 1000)
        for i, (count, known) in enumerate(shape)
    ]
    joined = merge(parts)
    path_of = dict(rows(joined, "files", "file", "path"))
    rank_of = dict(rows(joined, "files", "path", "rank"))
    name_of = dict(rows(joined, "events", "event_id", "name"))
    assert len(name_of) == joined["events"].num_rows == sum(count + 1 for count, _ in shape)
    for file, rank, name in rows(joined, "events", "file", "rank", "name"):
        assert path_of[file] == "f" + name[1:].split(".")[0] and rank == rank_of[path_of[file]]
    assert [name_of[i] for i in joined["op_args"]["event_id"].to_pylist()] == [
        f"n{i}.{c}" for i, (c, _) in enumerate(shape)
    ]
    unknown = [rank for rank in rank_of.values() if rank < 0]
    assert len(set(unknown)) == len(unknown) == sum(not known for _, known in shape)


def test_one_part_is_not_copied() -> None:
    given = part("a", 0, names=("mm", "add", "relu"))
    joined = merge([given])
    for column in ("ts_ns", "dur_ns", "event_id"):
        before = given["events"][column].chunk(0).buffers()[1]
        assert joined["events"][column].chunk(0).buffers()[1].address == before.address


def test_a_constant_column_is_small_however_long() -> None:
    from diagnose.ingest._merge import constant

    for length in (0, 1, 2**20, 2**20 + 1, 5_000_000):
        column = constant(3, length, pa.int32())
        assert len(column) == length and (not length or pc.min_max(column).as_py() == {"min": 3, "max": 3})
        assert len({chunk.buffers()[1].address for chunk in column.chunks}) <= 1
    assert constant(None, 3, pa.int32()).null_count == 3


def test_unknown_ranks_are_distinct_negatives_and_said() -> None:
    joined = merge([part("a"), part("b", shift=5), part("c", 0)])
    assert joined["files"]["rank"].to_pylist() == [-1, -2, 0]
    assert joined["files"]["rank_source"].to_pylist() == ["unknown", "unknown", "distributedInfo"]
    assert problems(joined) == ["rank_unknown", "rank_unknown"]


def test_settings_have_no_rank_to_be_unknown() -> None:
    setting: Tables = {
        "files": build("files", file=[0], path=["env.txt"], kind=["settings"], status=["ok"], events_count=[1]),
        "settings": build("settings", key=["A"], value=["1"], source=["env.txt"]),
        "quality": quality([]),
    }
    joined = merge([part("a", 3), setting])
    assert joined["files"]["rank"].to_pylist() == [3, None]
    assert joined["settings"]["rank"].to_pylist() == [None] and problems(joined) == []


def test_same_rank_and_content_is_one() -> None:
    joined = merge([part("a.json", 0), part("a.json.gz", 0), part("b", 1)])
    assert rows(joined, "files", "file", "path") == [(0, "a.json"), (1, "b")]
    assert joined["events"].num_rows == 4 and joined["events"]["file"].to_pylist() == [0, 0, 1, 1]
    assert rows(joined, "quality", "problem", "path", "detail") == [
        ("duplicate_file", "a.json.gz", "same content as a.json; left out")
    ]


def test_same_content_under_two_ranks_stays_two() -> None:
    joined = merge([part("rank0", 0), part("rank1", 1)])
    assert joined["files"]["rank"].to_pylist() == [0, 1] and problems(joined) == []


def test_same_rank_other_content_is_another_run_and_both_are_named() -> None:
    joined = merge([part("a", 0), part("b", 0, names=("mm", "sub"))])
    assert joined["files"]["run"].to_pylist() == [0, 1] and joined["events"].num_rows == 4
    assert problems(joined) == ["duplicate_rank", "several_runs"]
    assert joined["quality"]["path"][0].as_py() == "b" and "a is rank 0, too" in joined["quality"]["detail"][0].as_py()


def test_other_world_size_or_gpu_explains_a_second_claim() -> None:
    for difference in ({"world": 16}, {"gpu": "B200"}):
        first = {"world": 8, "gpu": "H100"}
        joined = merge([part("a", 0, **first), part("b", 0, shift=9, **{**first, **difference})])
        assert joined["files"]["run"].to_pylist() == [0, 1]
        assert problems(joined) == ["several_runs"]


def test_other_world_size_is_another_run_even_for_another_rank() -> None:
    joined = merge([part("a", 0, world=8), part("b", 5, world=16), part("c", 1), part("d", 6, world=16)])
    assert joined["files"]["run"].to_pylist() == [0, 1, 0, 1]


def test_a_mixed_cluster_is_one_run() -> None:
    joined = merge([part("a", 0, world=8, gpu="H100"), part("b", 1, world=8, gpu="A100")])
    assert joined["files"]["run"].to_pylist() == [0, 0] and problems(joined) == []


def test_traces_a_day_apart_are_two_runs_unless_their_times_date_nothing() -> None:
    date, day = 1_700_000_000 * 10**9, 86_400 * 10**9
    for shift, runs in ((day, [0, 1]), (day - 1, [0, 0]), (-day, [0, 1])):
        joined = merge([part("a", 0, shift=date), part("b", 1, shift=date + shift)])
        assert joined["files"]["run"].to_pylist() == runs
    assert merge([part("a", 0, shift=date), part("b", 1, shift=5)])["files"]["run"].to_pylist() == [0, 0]


def test_two_windows_of_all_ranks_are_two_runs_by_folder() -> None:
    first = [part(f"iteration_4/rank{r}", r, shift=r) for r in range(2)]
    second = [part(f"iteration_8/rank{r}", r, shift=900 + r) for r in range(3)]
    joined = merge(first + second)
    assert joined["files"]["run"].to_pylist() == [0, 0, 1, 1, 1]


def test_a_rank_that_one_of_two_recordings_lacks_goes_to_the_nearest_in_time() -> None:
    """Two jobs, or two captures of one, in one folder: what is missing in the first is not filled from the second."""
    date, later = 1_760_000_000 * 10**9, 1_760_000_005 * 10**9
    first = [part(f"a{rank}", rank, shift=date + rank) for rank in (0, 1, 3)]
    second = [part(f"b{rank}", rank, shift=later + rank) for rank in (0, 1, 2, 3)]
    for parts, runs in (
        ([*first, *second], [0, 0, 0, 1, 1, 1, 1]),
        ([second[2], *first, *second[:2], second[3]], [1, 0, 0, 0, 1, 1, 1]),
        ([first[0], *second], [0, 1, 1, 1, 1]),
    ):
        joined = merge(list(parts))
        assert joined["files"]["run"].to_pylist() == runs
        assert set(problems(joined)) == {"duplicate_rank", "several_runs"}


def test_numbered_folders_are_ranks_only_when_time_says_so() -> None:
    together = [part(f"run/{i}/trace.json", shift=i) for i in range(3)]
    assert merge(together)["files"]["rank"].to_pylist() == [0, 1, 2]
    after_each_other = [part(f"run/{i}/trace.json", shift=i * 1000) for i in range(3)]
    assert merge(after_each_other)["files"]["rank"].to_pylist() == [-1, -2, -3]
    with_a_gap = [part(f"run/{i}/trace.json", shift=i) for i in (0, 2)]
    assert merge(with_a_gap)["files"]["rank"].to_pylist() == [-1, -2]
    of_a_larger_job = [part(f"run/{i}/trace.json", world=8, shift=i) for i in range(3)]
    assert merge(of_a_larger_job)["files"]["rank"].to_pylist() == [-1, -2, -3]


def two_documents(ranks: list[int | None]) -> Tables:
    """One source with two traces in it: the second knows no rank where `ranks` says so."""
    placeholder = [rank if rank is not None else -1 - file for file, rank in enumerate(ranks)]
    return {
        "files": build(
            "files", file=[0, 1], path=["all.json"] * 2, kind=["kineto"] * 2, rank=ranks, events_count=[2, 1],
            start_ns=[0, 50], end_ns=[20, 60], status=["ok"] * 2,
        ),
        "events": build(
            "events", event_id=[0, 1, 2], file=[0, 0, 1], kind=["op"] * 3, name=["mm", "add", "late"],
            ts_ns=[0, 10, 50], dur_ns=[5] * 3,
        ),
        "op_args": build("op_args", event_id=[1, 2], sequence=[7, 8]),
        "threads": build("threads", rank=placeholder, process=[1, 2], thread=[1, 2], name=["x", "y"]),
        "quality": quality([]),
    }  # fmt: skip


def test_several_documents_in_one_source() -> None:
    joined = merge([part("first", 4), two_documents([1, None])])
    assert joined["files"]["rank"].to_pylist() == [4, 1, -1]
    assert rows(joined, "events", "event_id", "file", "rank", "name")[2:] == [
        (2, 1, 1, "mm"),
        (3, 1, 1, "add"),
        (4, 2, -1, "late"),
    ]
    assert joined["op_args"]["event_id"].to_pylist() == [1, 3, 4]
    assert joined["threads"]["rank"].to_pylist() == [4, 1, -1]


def test_one_document_of_a_source_is_a_duplicate() -> None:
    joined = merge([part("a", 1), two_documents([1, None]), part("c", 3)])
    assert rows(joined, "files", "file", "path", "rank") == [(0, "a", 1), (1, "all.json", -1), (2, "c", 3)]
    assert rows(joined, "events", "file", "name") == [(0, "mm"), (0, "add"), (1, "late"), (2, "mm"), (2, "add")]
    names = dict(rows(joined, "events", "event_id", "name"))
    assert [names[i] for i in joined["op_args"]["event_id"].to_pylist()] == ["add", "late", "add"]
    assert problems(joined).count("duplicate_file") == 1


def test_unusable_inputs_are_rows_and_claim_nothing() -> None:
    joined = merge([unusable("x", "found nothing"), part("a", 0), unusable("y", "found html", "unknown_format")])
    assert rows(joined, "files", "path", "status", "rank") == [
        ("x", "unusable", None),
        ("a", "ok", 0),
        ("y", "unusable", None),
    ]
    assert problems(joined) == ["unusable", "unknown_format"]
    assert joined["events"]["file"].to_pylist() == [1, 1]


def test_nothing_at_all() -> None:
    joined = merge([])
    assert joined["files"].num_rows == 0 and joined["quality"].num_rows == 0 and set(joined) == {"files", "quality"}


def test_several_runs_are_counted_once() -> None:
    only = of_one_run(merge([part("a", 0), part("b", 0, names=("mm", "sub")), part("c", 0, names=("mm", "div"))]))
    rows_ = [row for row in only["quality"].to_pylist() if row["problem"] == "several_runs"]
    assert [row["count"] for row in rows_] == [3]
    assert rows_[0]["detail"].startswith("only run 0 is analysed: a; no joint verdict")


def test_a_run_is_named_by_a_file_that_could_be_read() -> None:
    given = [unusable("a", "found nothing"), part("b", 0), part("c", 0, names=("mm", "sub"))]
    rows_ = [row for row in of_one_run(merge(given))["quality"].to_pylist() if row["problem"] == "several_runs"]
    assert rows_[0]["detail"].startswith("only run 0 is analysed: b; no joint verdict")
