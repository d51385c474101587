"""Every public recording in the corpus gets an answer: no traceback, the right exit code, exact partitions."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from diagnose.cli import _outputs, app
from tests import ask
from tests.report.validation import check

CORPUS = ask.corpus_folder()

NOT_TRACES = {
    "ms-ST.json", "mw-ST.json", "result-ST.json", "benchmark_simple_add_et.json.gz", "dlrm_pytorch_et.tar.gz",
    "trainer_state.json", "gpu_metrics_expected.json", "16bec353__gpu_metrics_expected.json",
    "81f03632__gpu_metrics_expected.json", "b545372b__gpu_metrics_expected.json",
}  # fmt: skip
"""JSON that stands beside the traces: other formats, looked at by other tests."""

WITHOUT_TIMED_EVENTS: set[str] = set()
"""Traces in which nothing has a time: exit code 2 and one clear line."""


def is_trace(path: Path) -> bool:
    if path.name in NOT_TRACES or not path.name.endswith((".json", ".json.gz", ".tar.gz")):
        return False
    if path.name.endswith(".tar.gz"):
        return any(m.name.endswith(".json") for m in tarfile.open(path))
    with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
        head = file.read(1 << 16)
    return b'"traceEvents"' in head or head.lstrip().startswith(b"[") or b'"schemaVersion"' in head


TRACES = sorted(p for p in CORPUS.rglob("*") if p.is_file() and is_trace(p)) if CORPUS.is_dir() else []


@pytest.mark.skipif(not TRACES, reason=f"no public recordings in {CORPUS} ($DIAGNOSE_CORPUS)")
def test_the_corpus_holds_traces() -> None:
    assert len(TRACES) >= 35


@pytest.mark.parametrize("path", TRACES, ids=lambda p: str(p.relative_to(CORPUS)))
def test_every_trace_gets_an_answer(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    diagnosis = ask.run(path)  # checks that the parts of every (rank, step) sum to it exactly

    assert len(diagnosis.symptoms) == 5
    assert not [o for o in diagnosis.outcomes if o.status == "failed"]
    if path.name in WITHOUT_TIMED_EVENTS:
        assert not _outputs.usable(diagnosis)
        _outputs.print_unusable(diagnosis)
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
        return
    assert _outputs.usable(diagnosis)
    written = _outputs.write(diagnosis, tmp_path / "out", None, None)
    assert not written.problem
    check(json.loads((tmp_path / "out" / "diagnosis.json").read_text("utf-8")))


@pytest.mark.skipif(not TRACES, reason=f"no public recordings in {CORPUS} ($DIAGNOSE_CORPUS)")
def test_the_command_line_gives_exit_code_0(tmp_path: Path) -> None:
    smallest = min(TRACES, key=lambda p: p.stat().st_size)

    result = CliRunner().invoke(app, ["run", str(smallest), "-o", str(tmp_path / "out")])

    assert result.exit_code == 0, result.output


SNAPSHOTS = sorted(p for p in CORPUS.glob("memsnap/**/*.p*k*l*") if p.stat().st_size > 1000) if CORPUS.is_dir() else []


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda p: str(p.relative_to(CORPUS)))
def test_memory_parts_of_every_snapshot_sum_to_what_is_reserved(path: Path) -> None:
    diagnosis = ask.run(path)
    segments, blocks = (diagnosis.tables[name].to_pylist() for name in ("segments", "blocks"))
    parts = [row for row in diagnosis.tables["memory_parts"].to_pylist() if row["moment"] == "end"]
    for device in {s["device"] for s in segments}:
        reserved = {s["address"]: s["size_bytes"] for s in segments if s["device"] == device}
        live = dict.fromkeys(reserved, 0)
        for block in blocks:
            if block["segment"] in live and block["state"].startswith("active"):
                live[block["segment"]] += block["size_bytes"]
        held = {row["part"]: row["bytes"] for row in parts if row["device"] == device}
        assert sum(held.values()) == sum(reserved.values())
        assert held.get("cached", 0) == sum(size for at, size in reserved.items() if not live[at])
        assert held.get("fragmentation", 0) == sum(size - live[at] for at, size in reserved.items() if live[at])
