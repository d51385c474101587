"""The wheel works on its own: installed into an empty environment, run outside the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "fixtures" / "modded_nanogpt_h100" / "trace.json.gz"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = target.glob("*.whl")
    return built


def test_wheel_holds_rules_and_report_templates(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    assert any(n.startswith("diagnose/_assets/rules/comm_saturation/") and n.endswith(".sql") for n in names)
    assert any(n.startswith("diagnose/_assets/reports/") and n.endswith(".html") for n in names)
    assert "diagnose/diagnosis.schema.json" in names
    assert "diagnose/live/boot/diagnose_boot-1.dist-info/entry_points.txt" in names, "torch loads the hook through it"
    assert not any(n.startswith(("tests/", "fixtures/", "benchmarks/")) for n in names)


@pytest.mark.slow
def test_installed_wheel_diagnoses_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Dependencies come from this environment through a .pth file; only the wheel itself is installed."""
    home = tmp_path / "empty"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", str(wheel)], check=True, capture_output=True)
    site = next((home / "lib").glob("python*/site-packages"))
    ours = [p for p in sys.path if p.endswith("site-packages")]
    # appended after the wheel, and without .pth processing, so that the checkout's own editable install stays out
    (site / "dependencies.pth").write_text("\n".join(ours) + "\n")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    where = subprocess.run(
        [python, "-c", "import diagnose; print(diagnose.__file__)"],
        check=True, capture_output=True, text=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    done = subprocess.run(
        [home / "bin" / "diagnose", "run", str(TRACE), "--json", "-"],
        check=False, capture_output=True, text=True, cwd=tmp_path, env=environment,
    )  # fmt: skip

    assert where.stdout.startswith(str(home))
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["symptoms"]) == 5
