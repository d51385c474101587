"""The README does what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def block(mark: str) -> str:
    found = re.search(rf"<!-- {mark} -->\n```\w*\n(.*?)```", README, re.DOTALL)
    assert found, f"README has no block marked {mark}"
    return found[1].rstrip()


def test_the_shown_answer_is_the_real_one(tmp_path: Path) -> None:
    command = shlex.split(block("first command").rpartition("&&")[2])
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")

    done = subprocess.run(
        [sys.executable, "-m", *command],
        check=True, capture_output=True, text=True, cwd=tmp_path, env={"COLUMNS": "80", "HOME": str(tmp_path)},
    )  # fmt: skip

    assert done.stdout.rstrip() == block("output of the first command")


def test_every_linked_file_exists() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_command_is_documented() -> None:
    from diagnose.cli import app

    for command in app.registered_commands:
        assert f"`diagnose {command.name}" in README
