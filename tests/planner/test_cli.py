"""`diagnose plan` as a user meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "docs" / "jobs" / "70b-64.toml"


def plan(*args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "diagnose", "plan", *map(str, args)],
        check=False, capture_output=True, text=True, cwd=cwd, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip


def test_the_screen_has_the_verdict_candidates_and_settings(tmp_path: Path) -> None:
    done = plan(JOB, "--top", "3", cwd=tmp_path)
    assert done.returncode == 0
    for text in ("this layout", "memory", "MFU", "better layouts", "one change away", "refused", "assumed"):
        assert text in done.stdout
    assert "--tensor-model-parallel-size" in done.stdout


def test_json_to_standard_output_and_calibration_from_a_diagnosis(tmp_path: Path) -> None:
    diagnosis = tmp_path / "diagnosis.json"
    diagnosis.write_text(json.dumps({"schema_version": 1, "step_time": {"median_ns": 100_000_000_000}, "memory": []}))
    done = plan(JOB, "--from", diagnosis, "--json", "-", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert found["calibration"]["reproduced"][0]["measured"] == 100.0
    assert abs(found["current"]["step_ns"] / 100e9 - 1) < 0.10
    assert found["candidates"][0]["speedup_ratio"] > 0


def test_the_page_has_the_figures_and_no_findings_to_answer(tmp_path: Path) -> None:
    done = plan(JOB, "--html", "plan.html", cwd=tmp_path)
    page = (tmp_path / "plan.html").read_text("utf-8")
    assert done.returncode == 0 and "better layouts" in done.stdout
    assert "Time against memory" in page and "Fastest layouts that are legal and fit" in page
    assert "Answers" not in page


def test_other_gpus(tmp_path: Path) -> None:
    found = json.loads(plan(JOB, "--gpus", "128", "--json", "-", cwd=tmp_path).stdout)
    layouts = [each["layout"] for each in found["candidates"]]
    assert layouts
    assert {each["dp"] * each["tp"] * each["pp"] * each["cp"] for each in layouts} == {128}


def test_errors_are_one_line(tmp_path: Path) -> None:
    broken, odd = tmp_path / "broken.toml", tmp_path / "odd.toml"
    broken.write_text("[model\n")
    odd.write_text("[model]\nlayers = 0\nhidden = 4096\nheads = 32\n")
    for args in ((tmp_path / "absent.toml",), (broken,), (odd,), (JOB, "--from", tmp_path / "absent.json")):
        done = plan(*args, cwd=tmp_path)
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1
        assert "Traceback" not in done.stderr
    assert "model.layers = 0" in plan(odd, cwd=tmp_path).stderr
