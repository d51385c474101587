"""Router records: every way they are written gives the same rows; what is no count is refused, not guessed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from diagnose.ingest.expert_counts import _names as names
from diagnose.pipeline import read
from tests import ask

COUNTS = {3: [60, 30, 10, 0], 4: [20, 30, 25, 25]}


def rows(path: Path) -> dict[tuple[Any, Any], list[int]]:
    """(step, layer) -> counts in order of experts."""
    tables = read([str(path)])
    calls = {row["record"]: row for row in tables["router_calls"].to_pylist()}
    found: dict[tuple[Any, Any], dict[int, int]] = {}
    for row in tables["router"].to_pylist():
        call = calls[row["record"]]
        value = next(v for v in (row["tokens_count"], row["routed_count"], row["kept_count"]) if v is not None)
        found.setdefault((call["step"], call["layer"]), {})[row["expert"]] = value
    return {key: [counts[e] for e in sorted(counts)] for key, counts in found.items()}


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def jsonl(folder: Path) -> Path:
    return write(folder / "a.jsonl", *({"step": 7, "layer": k, "tokens_per_expert": v} for k, v in COUNTS.items()))


def nested(folder: Path) -> Path:
    inner = [{"layer": k, "counts": v} for k, v in COUNTS.items()]
    return write(folder / "a.jsonl", {"step": 7, "rank": 0, "loss": 2.0, "moe": inner})


def by_layer(folder: Path) -> Path:
    return write(folder / "a.jsonl", {"step": 7, "exp_counts": {f"layers.{k}": v for k, v in COUNTS.items()}})


def named(folder: Path) -> Path:
    return write(folder / "a.jsonl", {"step": 7} | {f"moe/layer_{k}/tokens_per_expert": v for k, v in COUNTS.items()})


def long_csv(folder: Path) -> Path:
    lines = [f"7,{k},{e},{n}" for k, v in COUNTS.items() for e, n in enumerate(v)]
    path = folder / "a.csv"
    path.write_text("step,layer,expert,count\n" + "\n".join(lines) + "\n")
    return path


def wide_csv(folder: Path) -> Path:
    path = folder / "a.csv"
    lines = [f"7,{k}," + ",".join(map(str, v)) for k, v in COUNTS.items()]
    path.write_text("step,layer,expert_0,expert_1,expert_2,expert_3\n" + "\n".join(lines) + "\n")
    return path


def list_csv(folder: Path) -> Path:
    path = folder / "a.csv"
    path.write_text("step,layer,tokens_per_expert\n" + "".join(f'7,{k},"{v}"\n' for k, v in COUNTS.items()))
    return path


def npz(folder: Path) -> Path:
    buffer = io.BytesIO()
    np.savez(buffer, step=np.array([7]), layer=np.array([3, 4]), tokens_per_expert=np.array([list(COUNTS.values())]))
    path = folder / "a.npz"
    path.write_bytes(buffer.getvalue())
    return path


def long_npz(folder: Path) -> Path:
    columns = {"layer": [k for k in COUNTS for _ in range(4)], "expert": [0, 1, 2, 3] * 2}
    columns |= {"count": [n for v in COUNTS.values() for n in v], "step": [7] * 8}
    path = folder / "a.npz"
    np.savez_compressed(path, **{k: np.array(v) for k, v in columns.items()})
    return path


WAYS = (jsonl, nested, by_layer, named, long_csv, wide_csv, list_csv, npz, long_npz)


@pytest.mark.parametrize("way", WAYS, ids=[w.__name__ for w in WAYS])
def test_every_way_gives_the_same_counts(way: Any, tmp_path: Path) -> None:
    assert rows(way(tmp_path)) == {(7, k): v for k, v in COUNTS.items()}


def test_facts_beside_the_counts(tmp_path: Path) -> None:
    record = {"iter": 3, "layer_idx": 1, "num_experts_per_tok": 2, "num_tokens": 50, "capacity_factor": None,
              "kept_per_expert": [50, 40], "routed_per_expert": [60, 40], "dropped": 10, "rank": 5}  # fmt: skip
    tables = read([str(write(tmp_path / "a.jsonl", record))])

    (call,) = tables["router_calls"].to_pylist()
    assert (call["step"], call["layer"], call["topk"], call["tokens_entered_count"]) == (3, 1, 2, 50)
    assert (call["dropless"], call["capacity_factor"], call["dropped_count"], call["rank"]) == (True, None, 10, 5)
    assert tables["router"]["routed_count"].to_pylist() == [60, 40]
    assert tables["router"]["kept_count"].to_pylist() == [50, 40]
    assert tables["router"]["rank"].to_pylist() == [5, 5]


def test_a_missing_capacity_factor_is_not_none(tmp_path: Path) -> None:
    tables = read([str(write(tmp_path / "a.jsonl", {"step": 3, "tokens_per_expert": [1, 2]}))])
    assert tables["router_calls"]["dropless"].to_pylist() == [None]


def test_counts_of_own_experts_start_at_the_ranks_first(tmp_path: Path) -> None:
    record = {"step": 1, "ep_rank": 2, "recv_per_local_expert": [5, 6]}
    assert read([str(write(tmp_path / "a.jsonl", record))])["router"]["expert"].to_pylist() == [4, 5]


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ([0.5, 0.25, 0.25], "no whole numbers"),
        ([-1, 4], "below zero"),
        ([float("nan"), 1], "not finite"),
        (["a", "b"], "no numbers"),
        ({"attention": 1}, "no number of an expert"),
        ([], "neither a list nor an object"),
        ([True, False], "no numbers"),
    ],
)
def test_what_is_no_count_is_refused(counts: Any, reason: str, tmp_path: Path) -> None:
    good = {"step": 1, "layer": 1, "tokens_per_expert": [1, 2]}
    tables = read([str(write(tmp_path / "a.jsonl", good, good | {"tokens_per_expert": counts}))])

    (note,) = [row for row in tables["quality"].to_pylist() if row["problem"] == "refused_router_record"]
    assert note["count"] == 1 and reason in note["detail"] and "line 2" in note["detail"]
    assert tables["router"].num_rows == 2


def test_a_file_with_nothing_but_shares_says_so(tmp_path: Path) -> None:
    tables = read([str(write(tmp_path / "a.jsonl", {"step": 1, "tokens_per_expert": [0.5, 0.5]}))])
    assert tables["files"]["status"].to_pylist() == ["unusable"]
    assert "no whole numbers" in tables["files"]["detail"][0].as_py()


def test_percentages_need_their_total(tmp_path: Path) -> None:
    with_total = {"step": 1, "layer": 1, "expert_load_pct": [75.0, 25.0], "tokens": 200, "top_k": 2}
    without = {"step": 1, "layer": 2, "expert_load_pct": [75.0, 25.0]}
    path = write(tmp_path / "a.jsonl", with_total, without)
    assert rows(path) == {(1, 1): [300, 100]}


def test_numbers_beside_the_counts_stay_series(tmp_path: Path) -> None:
    lines = [{"step": s, "loss": 2.0 + s, "step_ms": 10.0, "tokens": 4, "tokens_per_expert": [3, 1]} for s in range(3)]
    series = read([str(write(tmp_path / "a.jsonl", *lines))])["series"].to_pylist()
    assert {row["metric"] for row in series} == {"loss", "step_ms"}
    assert [row["value"] for row in series if row["metric"] == "loss"] == [2.0, 3.0, 4.0]


def test_a_number_of_the_step_beside_every_layer_counts_once(tmp_path: Path) -> None:
    lines = [
        {"step": s, "layer": n, "step_ms": 10.0 + s, "aux": 0.1 * n, "tokens_per_expert": [3, 1]}
        for s in range(3)
        for n in (1, 2)
    ]
    series = read([str(write(tmp_path / "a.jsonl", *lines))])["series"].to_pylist()
    assert [(row["metric"], row["value"]) for row in series] == [
        ("step_ms", 10.0),
        ("step_ms", 11.0),
        ("step_ms", 12.0),
    ]


def test_ranks_come_from_file_names(tmp_path: Path) -> None:
    for rank in (0, 1):
        write(tmp_path / f"router_rank{rank}.jsonl", {"step": 1, "layer": 0, "tokens_per_expert": [1 + rank, 2]})
    tables = read([str(tmp_path)])
    assert sorted(tables["router_calls"]["rank"].to_pylist()) == [0, 1]


@pytest.mark.parametrize(
    "record",
    [
        {"step": 1, "loss": 2.0},
        {"step": 1, "load": [0.1, 0.2]},
        {"step": 1, "counts": [1, 2, 3]},
        {"step": 1, "experts": 8},
        {"traceEvents": [], "tokens_per_expert": [1]},
    ],
)
def test_other_records_are_left_to_others(record: dict[str, Any], tmp_path: Path) -> None:
    assert "router_calls" not in read([str(write(tmp_path / "a.jsonl", record, record))])


def test_names() -> None:
    assert names.counts("moe/layer_12/tokens_per_expert") == names.Meaning(names.TOKENS, 12)
    assert names.counts("expert_7") == names.Meaning(names.TOKENS, None, 7)
    assert names.counts("global_tokens_per_expert") == names.Meaning(names.TOKENS, None, None, True)
    assert names.counts("loss") is None and names.counts("load_balancing_loss") is None


def test_printed_arguments_are_settings(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "  moe_aux_loss_coeff .............................. 0.001\n"
        "  moe_expert_capacity_factor ...................... None\n"
        "  moe_router_load_balancing_type .................. seq_aux_loss\n"
        "Unknown key ignored: moe_router_force_load_balancing:True\n"
        "known_args[moe_router_topk] = 6\n"
    )
    found = {row["key"]: row["value"] for row in read([str(path)])["settings"].to_pylist()}
    assert found["moe.aux_loss_coeff"] == "0.001" and found["moe.capacity_factor"] == "None"
    assert found["moe.balancing"] == "seq_aux_loss" and found["moe.topk"] == "6"
    assert "moe.force_balance" not in found


def test_golden_values_are_series(tmp_path: Path) -> None:
    path = tmp_path / "golden.json"
    newer = {"start_step": 1, "end_step": 3, "step_interval": 2, "values": {"1": 10.5, "3": "nan"}}
    older = {"start_step": 0, "end_step": 10, "step_interval": 5, "values": [1.0, 2.0]}
    path.write_text(json.dumps({"lm loss": newer, "iteration-time": older}))
    tables = read([str(path)])
    found = [(r["metric"], r["step"], r["value"]) for r in tables["series"].to_pylist()]
    assert found == [("lm loss", 1, 10.5), ("iteration-time", 0, 1.0), ("iteration-time", 5, 2.0)]
    assert tables["quality"]["count"].to_pylist() == [1]


def test_the_corpus(corpus: Path) -> None:
    """Megatron-LM's MoE golden values and a printed MoE run of Primus."""
    golden = sorted((corpus / "megatron-lm").rglob("golden_values*.json"))
    assert len(golden) == 2
    for path in golden:
        series = read([str(path)])["series"]
        assert series["metric"].to_pylist().count("lm loss") == 50
    (log,) = (corpus / "primus" / "ut_out").glob("*deepseek_v2_lite*")
    found = {row["key"]: row["value"] for row in read([str(log)])["settings"].to_pylist()}
    assert found["moe.balancing"] == "seq_aux_loss" and found["moe.force_balance"] == "True"
    assert (found["moe.experts"], found["moe.topk"], found["moe.capacity_factor"]) == ("64", "6", "None")


def test_parquet(tmp_path: Path) -> None:
    table = pa.table({"step": [7, 7], "layer": list(COUNTS), "tokens_per_expert": list(COUNTS.values())})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert rows(tmp_path / "a.parquet") == {(7, k): v for k, v in COUNTS.items()}


def test_a_printed_run_without_router_statistics_is_unknown(corpus: Path) -> None:
    (log,) = (corpus / "primus" / "ut_out").glob("*deepseek_v2_lite*")
    diagnosis = ask.run(log)
    symptom = ask.symptom(diagnosis, "moe_drop")
    assert symptom.status == "unknown" and "tokens_per_expert" in symptom.reason and "forced" in symptom.reason
    (setup,) = ask.rows(diagnosis, "moe_setup")
    assert (setup["dropless"], setup["forced"], setup["experts_count"], setup["topk"]) == (True, True, 64, 6)
    assert ask.outcome(diagnosis, "token-drop").startswith("clear"), "nothing can be dropped"
