"""What holds for every rule that ships: it binds, fires in its test, stands nulls, and keeps quiet on a healthy job."""

from __future__ import annotations

import importlib
from typing import Any

import pyarrow as pa
import pytest

from diagnose import engine, pipeline
from diagnose.findings import Rule
from diagnose.schema import UNIT_SUFFIXES, Tables
from tests.rules import drift_rows, memory_rows, moe_rows, pipeline_rows
from tests.rules.build import MIB, MS, RULES, call, outcome, spans, step, tables

ALL = engine.load_rules([RULES])
each_rule = pytest.mark.parametrize("rule", ALL, ids=[rule.id for rule in ALL])


def fires(rule: Rule) -> Tables:
    """The firing tables of the rule's own test: every rule has one."""
    return importlib.import_module(f"tests.rules.test_{rule.id.replace('-', '_')}").fires()


def timed(rule: Rule) -> bool:
    """Whether the rule measures time; what a log or a dump says alone costs an unknown time."""
    return bool({"spans", "crossings", "uneven_work"} & set(rule.needs))


def healthy() -> Tables:
    """Two ranks of a tensor- and data-parallel job: traffic hidden, a little of every kind of wait."""
    waits = {
        "copy_ns": MS // 2,
        "input_ns": MS,
        "gc_ns": MS // 2,
        "alloc_ns": MS // 2,
        "sync_ns": MS,
        "launch_ns": 2 * MS,
    }
    rows: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("spans", "collectives", "idle", "syncs", "copies", "gemms")
    }
    rows |= {"kernels": [], "recompute": [], "profiler_cost": []}
    for rank in (0, 1):
        at = {"rank": rank, "step": 1}
        rows["spans"].append(step(rank=rank, compute_ns=89 * MS, comm_ns=4 * MS, idle_ns=1_500_000, **waits))
        reduce = call("all_reduce", 3 * MS, 2_800_000, **at, size_bytes=25 * MIB, dtype="bfloat16", phase="backward")
        tensor = call("all_reduce", MS, MS // 2, **at, dim="tp", group="tp0", size_bytes=32 * MIB, dtype="bfloat16")
        gather = call("all_gather", 2 * MS, 2 * MS, **at, size_bytes=64 * MIB, dtype="bfloat16")
        loss = call("all_reduce", 100_000, 0, **at, size_bytes=4, dtype="float32")
        rows["collectives"] += [*[reduce] * 8, *[tensor] * 6, gather, loss]
        for cause in ("input", "gc", "alloc", "sync", "launch", "idle"):
            rows["idle"].append({**at, "cause": cause, "dur_ns": MS // 2, "host": cause})
        rows["syncs"].append(
            {**at, "name": "cudaStreamSynchronize", "op": "aten::item", "dur_ns": 5 * MS, "idle_ns": MS}
        )
        copy = {**at, "direction": "h2d", "size_bytes": MIB, "dur_ns": MS, "exposed_ns": MS // 2}
        rows["copies"] += [{**copy, "pageable": False}, {**copy, "pageable": True, "size_bytes": 8}]
        shape = {"op": "aten::mm", "m": 8192, "n": 4096, "k": 4096, "batch": 1, "dtype": "bfloat16"}
        rows["gemms"].append({**at, **shape, "dur_ns": 50 * MS, "efficiency_ratio": 0.72})
        rows["kernels"].append({**at, "device": rank, "class": "compute", "dur_ns": MS, "launch_ns": 1, "graph": False})
        rows["recompute"].append({**at, "busy_ns": 3 * MS, "forward_ns": 28 * MS, "kernels_count": 9})
        rows["profiler_cost"].append({"rank": rank, "kind": "stacks"})
    rows["spans"] = spans(*rows["spans"])
    return tables(
        **rows,
        **memory_rows.healthy(),
        **moe_rows.healthy(),
        groups=[
            {
                "group": "dp0",
                "size": 8,
                "dim": "dp",
                "dim_source": "description",
                "node_count": 1,
                "fewest_node_count": 1,
            },
            {
                "group": "tp0",
                "size": 8,
                "dim": "tp",
                "dim_source": "description",
                "node_count": 1,
                "fewest_node_count": 1,
            },
        ],
        **across_ranks(),
        **drift_rows.healthy(),
        **pipeline_rows.healthy(),
        pairs=[{"from": a, "to": b, "busbw_bytes_per_s": 48e9} for a, b in (("a", "b"), ("a", "c"), ("b", "c"))],
        settings=[{"key": "CUDA_DEVICE_MAX_CONNECTIONS", "value": "1", "source": "env.txt"}],
    )


def across_ranks() -> dict[str, list[dict[str, Any]]]:
    """Ranks that come last in turn by a little, and links that give what they should."""
    late = {"calls_count": 16, "judged_count": 16, "last_count": 8, "blamed_ns": MS // 2, "lost_ns": MS // 4}
    beside = {"equals_count": 2, "step_ns": 100 * MS, "more_ns": 0, "busbw_bytes_per_s": 300e9}
    turns = {"step_ns": 100 * MS, "waits_ns": MS // 4, "judged_count": 16, "blamed_ratio": 0.5}
    compared = {"step_ns": 100 * MS, "waits_ns": MS // 4, "judged_count": 16, "last_count": 8, "blamed_ratio": 0.5}
    bandwidth = {"busbw_bytes_per_s": 300e9, "expected_busbw_bytes_per_s": 370e9, "of_expected_ratio": 0.81}
    expected = {"dim": "tp", "op": "all_reduce", "size_bytes": 32 * MIB, "ranks_count": 8, "node_count": 1}
    return {
        "clocks": [{"rank": r, "reference": 0, "offset_ns": 0, "error_ns": 5_000} for r in (0, 1)],
        "late_ranks": [{"rank": r, "blamed_ratio": 0.5, "incomplete_count": 0, **late} for r in (0, 1)],
        "boundaries": [{"evidence": "calls", "group": f"tp{n}", "slowdown_ratio": 1.0, **beside} for n in range(3)],
        "compared_ranks": [{"evidence": "calls", "rank": r, "ranks": [r], **compared} for r in (0, 1)],
        "uneven_work": [
            {"evidence": e, **turns, "ranks": [0, 1], "variation_ratio": 0.02} for e in ("calls", "pipeline", "steps")
        ],
        "arrivals": [
            {"step": 1, "dim": "tp", "group": "tp0", "last_rank": r, "inherited": False, "exposed_late_ns": MS // 4}
            for r in (0, 1)
        ],
        "link_expectations": [{"group": f"tp{n}", **expected, **bandwidth, "expected_ns": MS} for n in range(3)],
    }


def test_every_rule_binds_to_the_tables_that_exist() -> None:
    engine.bind(ALL, pipeline.empty_tables())


@each_rule
def test_clear_on_a_healthy_job(rule: Rule) -> None:
    result = outcome(rule.id, healthy())
    assert result.status == "clear", (result.status, result.reason, [f.summary for f in result.findings])


@each_rule
def test_never_found_on_empty_tables(rule: Rule) -> None:
    assert outcome(rule.id, tables()).status in ("skipped", "clear")


@each_rule
def test_every_needed_value_missing_is_no_verdict(rule: Rule) -> None:
    for name in rule.needs_values:
        table, _, column = name.partition(".")
        assert outcome(rule.id, without(fires(rule), table, column)).status == "skipped", name


@each_rule
def test_unknown_values_neither_break_a_rule_nor_its_text(rule: Rule) -> None:
    given = fires(rule)
    assert outcome(rule.id, given).status == "found"
    for table in rule.needs:
        if table == "spans":
            continue
        for column in given[table].schema.names:
            result = outcome(rule.id, without(given, table, column))
            assert all(f.summary for f in result.findings), (table, column)


def without(given: Tables, table: str, column: str) -> Tables:
    """`given` with a column of `table` unknown."""
    found = given[table]
    index = found.schema.get_field_index(column)
    field = found.schema.field(index)
    return given | {table: found.set_column(index, field, pa.nulls(found.num_rows, field.type))}


@each_rule
def test_what_a_rule_says_about_itself(rule: Rule) -> None:
    for name, param in rule.params.items():
        assert name.endswith(UNIT_SUFFIXES), f"{name} has no unit"
        assert len(param["doc"].split()) >= 4, f"{name}: say where the number comes from"
    assert any("http" in source for source in rule.sources)
    text = engine.explain(rule)
    assert all(part in text for part in (rule.id, rule.title, *rule.params, *rule.sources))
    named = ("Megatron", "FSDP", "DeepSpeed", "DDP", "torchtitan", "DataLoader", "torch.")
    assert any(name in rule.fix for name in named), "the fix names no knob"


@each_rule
def test_a_loss_is_never_more_than_the_step(rule: Rule) -> None:
    given = fires(rule)
    for found in outcome(rule.id, given).findings:
        if not given["spans"].num_rows:
            assert not timed(rule) and found.lost_ns == 0, "no step is known, so no time can be lost"
            continue
        least_ns = 1 if timed(rule) else 0
        assert least_ns <= found.lost_ns <= max(given["spans"]["mean_ns"].to_pylist())
        assert found.lost_ratio == pytest.approx(found.lost_ns / max(given["spans"]["mean_ns"].to_pylist()))
        assert found.lost_kind in ("bound", "simulated")


@each_rule
def test_waiting_on_one_rank_halves_confidence_in_communication(rule: Rule) -> None:
    derived = {"link_expectations", "crossings"} & set(rule.needs)
    if rule.symptom != "comm_saturation" or not timed(rule) or derived:
        return  # expectations are only held against matched calls; crossings are derived of the calls
    given = fires(rule)
    alone = outcome(rule.id, given).findings[0].confidence_ratio
    rows = [row | {"wait_ns": 0, "transfer_ns": row["dur_ns"]} for row in given["collectives"].to_pylist()]
    matched = tables(collectives=rows)
    both = outcome(rule.id, given | {name: matched[name] for name in ("collectives", "reductions")})

    assert alone <= 0.5
    assert both.findings[0].confidence_ratio > alone


@each_rule
def test_a_communication_benchmark_is_no_training_step(rule: Rule) -> None:
    of_messages = rule.id == "varying-bandwidth"  # a benchmark shows two speeds of one message as well
    if rule.symptom == "comm_saturation" and timed(rule) and "crossings" not in rule.needs and not of_messages:
        given = fires(rule) | {"spans": tables(spans=spans(step(comm_ns=100 * MS)))["spans"]}
        assert outcome(rule.id, given).status in ("clear", "skipped")
