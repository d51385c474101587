"""Faults of trace files that users reported in public, and what each must come out as. Inputs: tests/cases/A*/."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ask, perturb
from tests.perturb import ALL, ORIGINAL, OTHER_NCCL, RENUMBERED, SHUFFLED, TEXTUAL, Variant

TIMELESS = (ORIGINAL, RENUMBERED, OTHER_NCCL, SHUFFLED)
"""For faults that are about the size of the numbers."""


def each(*variants: Variant) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("variant", variants, ids=perturb.names(variants))


def diagnose(case: str, folder: Path, variant: Variant, **options: Any) -> Any:
    return ask.run(*perturb.write(ask.CASES / case, folder, variant), **options)


def cli(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "diagnose", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **environment},
    )


@each(*TEXTUAL)
def test_a01_bare_inf_and_nan_become_unknown(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A01", tmp_path, variant)
    assert ask.events_count(diagnosis) == 9
    assert ask.problems(diagnosis)["non_finite_number"] == 3
    assert "void nan_to_num_kernel<inf>" in ask.event_names(diagnosis)


@each(*TEXTUAL)
def test_a03_quotes_in_a_name_cost_at_most_that_event(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A03", tmp_path, variant)
    assert ask.events_count(diagnosis) >= 7
    assert "after_damage" in ask.event_names(diagnosis)
    damaged = [row for row in diagnosis.quality if row["problem"] in {"damaged_event", "repaired_event"}]
    assert sum(row["count"] for row in damaged) >= 1
    offset = ask.rows(diagnosis, "quality", problem=damaged[0]["problem"])[0]["byte_offset"]
    assert (
        (tmp_path / "trace.json")
        .read_bytes()[offset:]
        .lstrip(b", \n")
        .startswith(b'{"ph": "X", "cat": "python_function"')
    )


@each(*TEXTUAL)
def test_a04_backslashes_of_windows_paths_are_literal(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A04", tmp_path, variant)
    assert ask.events_count(diagnosis) == 8
    names = ask.event_names(diagnosis)
    assert any("_lazy_init" in name for name in names)
    path = next(name for name in names if "train.py(7): main" in name)
    assert path.isprintable(), "\\n and \\t of a path are no line break and no tab"
    assert ask.problems(diagnosis)["invalid_escape"] >= 1


@each(*TEXTUAL)
def test_a05_a_cut_file_keeps_its_whole_events_and_says_so(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A05", tmp_path, variant)
    assert ask.events_count(diagnosis) == 4
    (row,) = ask.rows(diagnosis, "quality", problem="truncated")
    assert 0 < row["byte_offset"] <= (tmp_path / "trace.json").stat().st_size
    assert diagnosis.inputs[0]["status"] == "partial"
    assert "incomplete_step" in ask.problems(diagnosis) or not ask.rows(diagnosis, "steps")[-1]["complete"]


@pytest.mark.parametrize("missing", [1, 7, 40, 200, 600, 900])
def test_a05_cut_anywhere(missing: int, tmp_path: Path) -> None:
    whole = (ask.CASES / "A12" / "trace.json").read_bytes()
    (tmp_path / "trace.json").write_bytes(whole[:-missing])
    diagnosis = ask.run(tmp_path / "trace.json")
    assert 3 <= ask.events_count(diagnosis) <= 6
    assert "truncated" in ask.problems(diagnosis)


@each(*TEXTUAL)
def test_a06_trailing_commas_cost_nothing(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A06", tmp_path, variant)
    assert ask.events_count(diagnosis) == 6
    assert len([row for row in diagnosis.quality if row["problem"] == "trailing_comma"]) == 1


@each(*TEXTUAL)
def test_a08_old_autograd_list_with_a_damaged_key(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A08", tmp_path, variant)
    assert ask.events_count(diagnosis) >= 2
    assert ask.event_names(diagnosis).count("add") >= 2


@each(*ALL)
def test_a09_every_gzip_member_is_read(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A09", tmp_path, variant)
    assert ask.events_count(diagnosis) == 6
    assert not {"truncated", "damaged_compression"} & set(ask.problems(diagnosis))


@each(*TEXTUAL)
def test_a11_bytes_that_are_not_text_are_replaced(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A11", tmp_path, variant)
    assert ask.events_count(diagnosis) == 8
    assert "модель.forward" in ask.event_names(diagnosis)
    assert ask.problems(diagnosis)["invalid_utf8"] >= 1


@each(*ALL)
def test_a12_byte_order_mark_and_utf16(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A12", tmp_path, variant)
    assert ask.events_count(diagnosis) == 12
    assert ask.ranks(diagnosis) == {0, 1}
    assert {"byte_order_mark", "utf16"} <= set(ask.problems(diagnosis))


@each(*TIMELESS)
def test_a14_display_unit_is_no_unit_and_nanoseconds_in_ts_are_noticed(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A14", tmp_path, variant)
    kineto, home_made = variant.rank(0, 2), variant.rank(1, 2)
    assert ask.parts(diagnosis, variant.step(0), kineto)["compute"] == 900_000
    assert ask.total(diagnosis, "step_time", "dur_ns", rank=kineto) == 1_800_000
    mismatch = ask.rows(diagnosis, "quality", problem="unit_mismatch")
    assert [row["rank"] for row in mismatch] == [home_made]
    assert not {"late-rank", "moving-straggler"} & {f.rule for f in diagnosis.findings}
    assert diagnosis.step_time["median_ns"] == 1_800_000, "the job's step is not a thousand times longer"


@each(*ALL)
def test_a15_the_base_is_added(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A15", tmp_path, variant)
    starts = {row["ts_ns"] for row in ask.rows(diagnosis, "collectives")}
    if variant.scale == 1:
        assert len(starts) == 1, "raw times differ by 2 s, absolute ones do not"


@each(*ALL)
def test_a18_short_kernels_keep_nanoseconds_and_negative_ones_are_left_out(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A18", tmp_path, variant)
    (tiny,) = ask.rows(diagnosis, "kernel_totals", name="tiny")
    assert (tiny["dur_ns"], tiny["median_ns"], tiny["calls_count"]) == (variant.ns(0.6), variant.ns(0.2), 3)
    assert not ask.rows(diagnosis, "kernels", name="broken")
    assert ask.problems(diagnosis)["negative_duration"] == 1


@each(*ALL)
def test_a19_an_impossible_duration_does_not_top_the_list(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A19", tmp_path, variant)
    assert ask.problems(diagnosis)["impossible_duration"] == 1
    top = max(ask.rows(diagnosis, "kernel_totals"), key=lambda row: row["dur_ns"])
    assert top["name"] == "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
    assert top["dur_ns"] == variant.ns(1700)
    step = ask.parts(diagnosis, variant.step(0))
    assert variant.ns(1700) <= step["compute"] <= variant.ns(1715)


@each(*ALL)
def test_a20_the_rank_comes_from_the_name_or_is_unknown(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A20", tmp_path, variant)
    assert {rank for rank in ask.ranks(diagnosis) if rank >= 0} == {2, 3}
    assert len([rank for rank in ask.ranks(diagnosis) if rank < 0]) == 1
    assert ask.problems(diagnosis)["rank_inferred"] == 2
    assert ask.problems(diagnosis)["rank_unknown"] == 1


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank17_trace.json", 17),
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json", 34),
        ("host_with_2_gpus_rank_5.1700000000.pt.trace.json", 5),
        ("node-rank0-host3.json", None),  # the rank of a node is no global rank
        ("llama3_405b_worker.json", None),
        ("libkineto_activities_4242.json", None),
        ("frankfurt7.json", None),
    ],
)
def test_a20_names_of_other_frameworks(name: str, rank: int | None, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes((ask.CASES / "A20" / "worker_77.json").read_bytes())
    (row,) = ask.rows(ask.run(tmp_path / name), "files")
    assert row["rank"] == rank if rank is not None else row["rank"] < 0


@each(*ALL)
def test_a22_metadata_after_the_events_and_a_decoy_rank(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A22", tmp_path, variant)
    (row,) = ask.rows(diagnosis, "files")
    assert (row["rank"], row["world_size"], row["rank_source"]) == (variant.rank(3, 4), 4, "distributedInfo")


@each(*ALL)
def test_a23_a_file_without_timed_events_is_named_and_the_rest_is_analysed(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A23", tmp_path, variant)
    (empty,) = ask.rows(diagnosis, "quality", problem="no_timed_events")
    assert Path(empty["path"]).name == "rank0.json"
    assert ask.parts(diagnosis, rank=variant.rank(1, 2))["compute"] == variant.ns(400)


def test_a23_exit_codes(tmp_path: Path) -> None:
    perturb.write(ask.CASES / "A23", tmp_path / "in", ORIGINAL)
    assert cli("run", tmp_path / "in", "-o", tmp_path / "out").returncode == 0
    assert cli("run", tmp_path / "in", "-o", tmp_path / "out", "--strict").returncode == 3


def test_a24_nothing_usable_is_one_line_per_file_and_exit_2(tmp_path: Path) -> None:
    paths = perturb.write(ask.CASES / "A24", tmp_path, ORIGINAL)
    done = cli("run", *paths, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr + done.stdout
    for path in paths:
        assert [path.name in line for line in done.stderr.splitlines()].count(True) == 1, done.stderr
    assert not (tmp_path / "out").exists()


@each(*ALL)
def test_a25_without_steps_the_window_is_filled(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A25", tmp_path, variant)
    assert not ask.rows(diagnosis, "steps")
    window = ask.parts(diagnosis)
    assert (window["compute"], window["comm"], window["all_idle"]) == (variant.ns(300), variant.ns(100), variant.ns(10))
    assert "no_steps" in ask.problems(diagnosis)
    assert diagnosis.step_time["median_ns"] is None


@each(*ALL)
def test_a27_launches_without_kernels_are_not_a_healthy_job(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A27", tmp_path, variant)
    (row,) = ask.rows(diagnosis, "quality", problem="gpu_events_missing")
    assert row["count"] == 5
    assert diagnosis.step_time["comm_share_ratio"] is None
    assert diagnosis.step_time["hidden_comm_ratio"] is None
    assert ask.symptom(diagnosis, "comm_saturation").status == "unknown"
    assert ask.symptom(diagnosis, "low_speedup").status == "unknown"
    assert not ask.parts(diagnosis, variant.step(0))["compute"], "host operators are not the GPU's compute"


@each(*ALL)
def test_a29_correlation_zero_links_nothing(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A29", tmp_path, variant)
    comm = ask.rows(diagnosis, "kernels", **{"class": "comm"})
    assert len(comm) == 3
    assert sum(row["dur_ns"] for row in comm) == variant.ns(300)
    assert all(row["launch_ns"] is None for row in comm)


@each(*ALL)
def test_a31_merged_ranks_get_no_overlap_figure(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A31", tmp_path, variant)
    assert "merged_processes" in ask.problems(diagnosis)
    assert diagnosis.step_time["hidden_comm_ratio"] is None


@each(*ALL)
def test_a32_text_ids_and_text_numbers(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A32", tmp_path, variant)
    (kernel,) = ask.rows(diagnosis, "kernels", name="volta_sgemm_64x64_nt")
    assert kernel["dur_ns"] == variant.ns(50)
    assert kernel["stream"] == (38 if variant.renumber else 7)
    assert kernel["launch_ns"] is not None
    assert kernel["ts_ns"] - kernel["launch_ns"] == variant.ns(10)
    assert variant.ns(50) <= ask.parts(diagnosis)["compute"] < variant.ns(300), "the Spans row is no work"


@each(*TEXTUAL)
def test_a36_two_documents_in_one_file(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A36", tmp_path, variant)
    assert ask.ranks(diagnosis) == {0, 1}
    assert ask.events_count(diagnosis) == 12
    assert "several_documents" in ask.problems(diagnosis)


@pytest.mark.slow
def test_a37_a_file_on_one_line_in_bounded_memory(tmp_path: Path) -> None:
    big = tmp_path / "big.json"
    subprocess.run([sys.executable, ask.CASES / "A37" / "make_big.py", "60", big], check=True, capture_output=True)
    program = (
        "import sys, resource, diagnose\n"
        "d = diagnose.run([sys.argv[1]])\n"
        "print(d.tables['files']['events_count'][0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(big)], check=True, capture_output=True, text=True)
    events, peak_mib = map(int, done.stdout.split())
    assert events == big.read_bytes().count(b'"ph"')
    assert peak_mib < 900


@each(*ALL)
def test_a38_names_in_any_script(variant: Variant, tmp_path: Path) -> None:
    assert ask.ranks(diagnose("A38", tmp_path, variant)) == {0, 1}


def test_a38_in_the_c_locale_with_a_report(tmp_path: Path) -> None:
    perturb.write(ask.CASES / "A38", tmp_path / "in", ORIGINAL)
    out = tmp_path / "разбор <i>"
    done = cli("run", tmp_path / "in", "-o", out, LANG="C", LC_ALL="C", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    report = (out / "report.html").read_text(encoding="utf-8")
    assert "<b>rank1" not in report
    assert {entry["rank"] for entry in json.loads((out / "diagnosis.json").read_text("utf-8"))["inputs"]} == {0, 1}


@each(*ALL)
def test_a40_no_rank_is_blamed_across_unsynchronised_clocks(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A40", tmp_path, variant)
    blamed = {rank for f in diagnosis.findings if f.rule in {"late-rank", "moving-straggler"} for rank in f.ranks}
    assert variant.rank(0, 2) not in blamed


@each(*TEXTUAL)
def test_a41_dots_inside_a_split_list(variant: Variant, tmp_path: Path) -> None:
    diagnosis = diagnose("A41", tmp_path, variant)
    assert ask.events_count(diagnosis) == 2
    assert [row["splits_truncated"] for row in ask.rows(diagnosis, "calls")] == [True]
    assert "truncated_splits" in ask.problems(diagnosis)


@each(*ALL)
def test_a42_other_files_are_skipped_with_one_line_each(variant: Variant, tmp_path: Path) -> None:
    perturb.write(ask.CASES / "A42", tmp_path, variant)
    diagnosis = ask.run(tmp_path)
    usable = [entry for entry in diagnosis.inputs if entry["status"] != "unusable"]
    assert [Path(entry["path"]).name for entry in usable] == ["plain.json.gz"]
    assert usable[0]["rank"] == variant.rank(0, 2)
    named = {Path(row["path"]).name for row in diagnosis.quality}
    assert {"pytorch_et.json", "memory_timeline.json", "snapshot.json", "page.json"} <= named


def test_a42_strict_says_so(tmp_path: Path) -> None:
    perturb.write(ask.CASES / "A42", tmp_path / "in", ORIGINAL)
    assert cli("run", tmp_path / "in", "-o", tmp_path / "out", "--strict").returncode == 3


@pytest.mark.parametrize(
    ("case", "status", "problem", "code"),
    [
        ("A03", "repaired", "repaired_event", 0),
        ("A05", "partial", "truncated", 0),
        ("A01", "repaired", "non_finite", 0),
    ],
)
def test_lint_names_status_problem_and_place(case: str, status: str, problem: str, code: int) -> None:
    done = cli("lint", ask.CASES / case / "trace.json")
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith(status)
    line = next(line for line in done.stdout.splitlines() if problem in line)
    assert "at byte " in line


def test_lint_of_nothing_usable_exits_with_2() -> None:
    done = cli("lint", ask.CASES / "A24")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr + done.stdout
