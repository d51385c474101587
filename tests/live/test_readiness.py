"""`diagnose doctor`: what is missing is named with the line to add, and what would do harm is red."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diagnose.live import launching, readiness
from tests.live import jobs


def states(environment: dict[str, str], folder: Path) -> dict[str, tuple[str, str]]:
    return {c.what: (c.state, c.do) for c in readiness.checks(environment, folder)}


def test_a_launched_job_lacks_nothing_that_launch_can_set(tmp_path: Path) -> None:
    made = launching.plan(tmp_path / "run", {})
    found = states(made.added, tmp_path)

    for what in ("step records", "captures on request", "NCCL log", "overlap", "loading the hook"):
        assert found[what] == ("ok", ""), what


def test_an_empty_environment_is_told_what_to_add(tmp_path: Path) -> None:
    found = states({}, tmp_path)

    assert found["step records"] == ("missing", readiness.LAUNCH)
    assert found["NCCL log"] == ("missing", "export NCCL_DEBUG=INFO")
    assert "harmful" not in {state for state, _ in found.values()}


@pytest.mark.parametrize(
    ("environment", "what", "state"),
    [
        ({"KINETO_USE_DAEMON": "1"}, "captures on request", "harmful"),
        ({"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": "/tmp/" + "x" * 50}, "captures on request", "harmful"),
        ({"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": "/nowhere"}, "captures on request", "missing"),
        ({"TORCH_NCCL_ENABLE_TIMING": "1"}, "overlap", "harmful"),
        ({"TORCH_NCCL_ENABLE_TIMING": "0"}, "overlap", "ok"),
        ({"TORCH_FR_BUFFER_SIZE": "0"}, "flight recorder", "missing"),
        ({"TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}, "flight recorder", "missing"),
        ({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, "loading the hook", "missing"),
        ({"NCCL_DEBUG": "WARN"}, "NCCL log", "missing"),
    ],
)
def test_settings_that_matter(environment: dict[str, str], what: str, state: str, tmp_path: Path) -> None:
    assert states(environment, tmp_path)[what][0] == state


def test_a_socket_left_behind_is_harmful(tmp_path: Path) -> None:
    made = launching.plan(tmp_path / "run", {})
    (made.sockets / "dynolog").touch()

    assert states(made.added, tmp_path)["captures on request"] == ("harmful", f"rm {made.sockets}/dynolog")


def test_the_command(tmp_path: Path) -> None:
    done = jobs.diagnose("doctor", "--json", cwd=tmp_path)
    assert done.returncode == 0 and {c["what"] for c in json.loads(done.stdout)} >= {"PyTorch", "overlap"}


def test_what_the_user_set_is_kept(tmp_path: Path) -> None:
    given = {"NCCL_DEBUG": "WARN", "KINETO_USE_DAEMON": "1", "PYTHONPATH": "/mine"}
    added = launching.plan(tmp_path / "run", given).added

    assert not {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "KINETO_USE_DAEMON", "KINETO_IPC_SOCKET_DIR"} & added.keys()
    assert added["PYTHONPATH"].endswith(":/mine")


def test_secrets_are_not_written_down(tmp_path: Path) -> None:
    given = {"SLURM_JOB_TOKEN": "x", "NCCL_API_KEY": "y", "HOME": "/h", "NCCL_IB_HCA": "mlx5"}

    assert launching._settings(given) == {"NCCL_IB_HCA": "mlx5"}
