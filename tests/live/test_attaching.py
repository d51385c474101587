"""What is read of a run that is not trusted, what a glance at it shows, and what its control socket answers."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from diagnose import hook_records as layout
from diagnose.errors import UsageError
from diagnose.live import _writer, asking, capturing, hosts, ranks, watching
from diagnose.live._boundary import errors
from diagnose.live._control import Control
from diagnose.live._hook import Hook
from diagnose.live._ring import Ring
from diagnose.live.anomaly import BASE_LOOKS, COOL_DOWN_S, Anomalies

MS = 1_000_000


def rank(run: Path, number: int, steps: int = 50, step_ms: int = 50, comm_ms: int = 10, **changes: Any) -> Path:
    """Files of one rank as its hook writes them; this process stands in for it."""
    folder = run / "attempt000"
    folder.mkdir(parents=True, exist_ok=True)
    writer = _writer.describe() | {"rank": number, "world_size": 4}
    ring = Ring(folder / f"rank{number:05d}.ring", writer, slots=256)
    for step in range(1, steps + 1):
        values = [layout.UNKNOWN] * len(layout.FIELDS)
        facts = {
            "step": step, "end_wall_ns": step * step_ms * MS, "step_time_ns": step_ms * MS, "input_time_ns": MS,
            "gc_time_ns": 0, "wait_time_ns": 0, "wait_count": 0, "previous_ddp_comm_time_ns": comm_ms * MS,
            "hook_time_ns": 50_000, "host_memory_bytes": 1 << 28, "flags": 0,
        }  # fmt: skip
        for name, value in facts.items():
            values[layout.PLACE[name]] = value
        ring.put(values, 0)
    described = {"diagnose_rank": 1, **writer, "ring": str(ring.path), "control": None, "torch": None, **changes}
    path = folder / f".rank{number:05d}.json"
    path.write_text(json.dumps(described))
    return path


def test_ranks_are_found_and_the_late_one_stands_out(tmp_path: Path) -> None:
    for number in range(4):
        rank(tmp_path, number, comm_ms=2 if number == 2 else 30)

    found = ranks.of_run(tmp_path)
    rows = watching.rows(found, now_ns=51 * 50 * MS)

    assert [r.rank for r in found.ranks] == [0, 1, 2, 3]
    assert rows[0]["rank"] == 2
    assert rows[0]["own_ns"] == 48 * MS
    assert rows[0]["comm_ratio"] == pytest.approx(0.04)
    assert {r["state"] for r in rows} == {"alive"}
    slow = watching.slowest(rows)
    assert slow is not None and slow["rank"] == 2


def test_equal_ranks_have_no_slowest(tmp_path: Path) -> None:
    for number in range(4):
        rank(tmp_path, number)

    assert watching.slowest(watching.rows(ranks.of_run(tmp_path))) is None


def test_a_rank_without_new_steps_is_stale_and_a_gone_process_dead(tmp_path: Path) -> None:
    rank(tmp_path, 0)
    rank(tmp_path, 1, process_start=1)
    rank(tmp_path, 2, host="elsewhere")
    rank(tmp_path, 3, ended_ns=1)
    last_ns = 50 * 50 * MS

    found = ranks.of_run(tmp_path)
    on_time = {r["rank"]: watching.is_stale(r) for r in watching.rows(found, now_ns=last_ns + 5_000 * MS)}
    late = {r["rank"]: watching.is_stale(r) for r in watching.rows(found, now_ns=last_ns + 5_001 * MS)}

    assert [ranks.state(r) for r in found.ranks] == ["alive", "dead", "elsewhere", "ended"]
    assert on_time[0] is False
    assert (late[0], late[1], late[3]) == (True, False, False)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "{}", "[" * 5000, "null", '{"diagnose_rank": 1}', "x" * 70_000,
        '{"diagnose_rank": 1, "rank": "0", "world_size": 1, "process": 1, "process_start": 1}',
        '{"diagnose_rank": 1, "rank": true, "world_size": 1, "process": 1, "process_start": 1}',
        '{"diagnose_rank": 1, "rank": 0, "world_size": -4, "process": 1, "process_start": 1}',
        '{"diagnose_rank": 1, "rank": 5, "world_size": 1, "process": 1, "process_start": 1}',
        '{"diagnose_rank": 1, "rank": 0, "world_size": 1e99, "process": 1, "process_start": 1}',
    ],
    ids=range(13),
)  # fmt: skip
def test_a_hostile_description_is_one_line(text: str, tmp_path: Path) -> None:
    rank(tmp_path, 1)
    (tmp_path / "attempt000" / ".rank00000.json").write_text(text)

    found = ranks.of_run(tmp_path)

    assert [r.rank for r in found.ranks] == [1]
    assert len(found.problems) == 1 and "\n" not in found.problems[0]


def test_paths_that_lead_elsewhere_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("not yours")
    link = tmp_path / "link"
    link.symlink_to(secret)
    hostile = ["../../etc/passwd", "/etc/passwd", str(link), "/dev/zero", "a\0b", str(tmp_path), 5, "x" * 9000]
    for number, place in enumerate(hostile):
        rank(tmp_path, number, ring=place, control=place, torch=place, host="evil\x1b[2J\n")
        (tmp_path / "attempt000" / f"rank{number:05d}.ring").unlink()

    found = ranks.of_run(tmp_path).ranks

    assert len(found) == len(hostile)
    assert all(r.control is None and r.torch is None for r in found)
    assert all(r.ring is None or str(r.ring) == "/etc/passwd" for r in found)
    assert all(r.host.isprintable() for r in found)
    assert all(row["problem"] for row in watching.rows(ranks.of_run(tmp_path)))


@pytest.mark.parametrize("damage", [b"", b"noise" * 100, layout.header({"rank": 0}), layout.header({})[:50]])
def test_a_damaged_ring_is_a_problem_of_its_rank(damage: bytes, tmp_path: Path) -> None:
    rank(tmp_path, 0)
    rank(tmp_path, 1)
    (tmp_path / "attempt000" / "rank00000.ring").write_bytes(damage)

    rows = {r["rank"]: r for r in watching.rows(ranks.of_run(tmp_path))}

    assert rows[0]["problem"] and rows[0]["step"] is None
    assert rows[1]["step"] == 50


def test_ranks_to_capture(tmp_path: Path) -> None:
    for number in range(4):
        rank(tmp_path, number, comm_ms=2 if number == 3 else 30)
    found = ranks.of_run(tmp_path)

    def numbers(wanted: str) -> list[int]:
        return [r.rank for r in capturing.chosen(found, wanted)]

    assert numbers("") == [0, 1, 2, 3]
    assert numbers("0,2-3") == [0, 2, 3]
    assert numbers("slowest,0") == [0, 3]
    for bad in ("x", "7", "0-x", "-1"):
        with pytest.raises(UsageError):
            numbers(bad)


def test_captures_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rank(tmp_path, 0)
    found = ranks.of_run(tmp_path)
    with pytest.raises(UsageError, match="expected 1 to 50"):
        capturing.capture(tmp_path, found, None, capturing.Wish(steps=51))
    usage = capturing.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(capturing.shutil, "disk_usage", lambda _: usage._replace(free=1 << 20))
    with pytest.raises(UsageError, match="MiB free"):
        capturing.capture(tmp_path, found, None, capturing.Wish())


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(errors, "count", 0)
    path = Path("/tmp") / f"dctl-{os.getpid()}.sock"
    made = Control(path, Hook(tmp_path / "run"))
    yield made
    made.close()


def as_rank(path: Path) -> ranks.Rank:
    return ranks.Rank(0, 1, "h", os.getpid(), 0, None, path, None, False, True)


def test_the_control_socket_answers_its_verbs_only(control: Control) -> None:
    peer = as_rank(control.path)

    assert control.path.stat().st_mode & 0o077 == 0
    assert asking.ask(peer, verb="ping")["wall_ns"] > 0
    assert asking.ask(peer, verb="status")["step"] == 0
    assert "test_the_control_socket_answers_its_verbs_only" in json.dumps(asking.ask(peer, verb="stacks"))
    assert asking.ask(peer, verb="exec", code="1")["error"].startswith("expected a verb of")
    assert asking.ask(peer)["error"].startswith("expected a verb of")


@pytest.mark.parametrize("name", ["../up", "a/b", "", "-x", "x" * 41, 5, None, "a\n"])
def test_ids_of_captures_are_plain_names(control: Control, name: object) -> None:
    answer = control.answer(json.dumps({"verb": "capture", "id": name, "start": 10}).encode())

    assert answer["error"].startswith("capture: ValueError id")


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"5", b"\xff\xfe", b"[" * 60_000, b'{"verb": ["ping"]}'])
def test_other_lines_are_refused(control: Control, line: bytes) -> None:
    assert control.answer(line)["error"].startswith("expected")


def test_an_oversized_line_ends_the_talk(control: Control) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(5)
        line.connect(str(control.path))
        line.sendall(b"x" * (65 << 10) + b"\n")
        assert b"expected one line" in line.recv(4096)
    assert "wall_ns" in asking.ask(as_rank(control.path), verb="ping")


def test_a_socket_that_nobody_serves_is_an_answer(tmp_path: Path) -> None:
    assert "error" in asking.ask(as_rank(tmp_path / "none.sock"), verb="ping")
    assert asking.torch_server(tmp_path / "none.sock", "ping", 1.0) is None


def looks(slow_rank: bool = False, step_ms: int = 50, at: int = 0) -> list[dict[str, Any]]:
    row = {"step": at, "step_ns": step_ms * MS, "own_ns": 20 * MS}
    return [{**row, "rank": r, "own_ns": (45 if slow_rank and r == 1 else 20) * MS} for r in range(4)]


def test_a_capture_is_due_after_two_looks_once_per_cool_down() -> None:
    now = [0.0]
    watch = Anomalies(clock=lambda: now[0])
    at = iter(range(0, 100_000, 100))
    assert not any(watch.look(looks(at=next(at))) for _ in range(BASE_LOOKS + 5)), "a healthy job is left alone"
    assert watch.look(looks(step_ms=66, at=next(at))) == ""
    assert watch.look(looks(step_ms=66, at=next(at))).startswith("slower: a step takes 66.0 ms")
    now[0] = COOL_DOWN_S - 1
    assert not any(watch.look(looks(step_ms=66, at=next(at))) for _ in range(5))
    now[0] = COOL_DOWN_S
    assert watch.look(looks(step_ms=66, at=next(at)))


def test_exactly_the_ratio_is_no_anomaly_and_one_look_is_none() -> None:
    watch = Anomalies()
    at = iter(range(0, 100_000, 100))
    for _ in range(BASE_LOOKS):
        watch.look(looks(at=next(at)))
    assert not any(watch.look(looks(step_ms=65, at=next(at))) for _ in range(4))
    spikes = (watch.look(looks(step_ms=66 if n % 2 else 50, at=next(at))) for n in range(6))
    assert not any(spikes)


def test_a_straggler_is_an_anomaly() -> None:
    watch = Anomalies()
    said = [watch.look(looks(slow_rank=True, at=100 * n)) for n in range(1, BASE_LOOKS + 3)]

    assert said[-1].startswith("rank 1")


def test_hosts_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# ours\nnode-1 slots=8\nroot@10.0.0.2\n\nnode-1\n")
    assert hosts.names(path) == ["node-1", "root@10.0.0.2"]
    for bad in ("-oProxyCommand=x", "a;b", "$(x)"):
        path.write_text(bad + "\n")
        with pytest.raises(UsageError, match="host names"):
            hosts.names(path)


def test_other_hosts_answer_over_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for ssh that answers as `diagnose attach --json` does; one host is away, one speaks nonsense."""
    fake = tmp_path / "ssh"
    fake.write_text(
        '#!/bin/sh\nshift 5\ncase "$1" in\n'
        'one) echo \'{"ranks": [{"rank": 0, "step": 7}]}\' ;;\ntwo) echo "refused" >&2; exit 255 ;;\nesac\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    rows = hosts.ask(["one", "two"], ["live", "--json"])

    assert rows == [{"rank": 0, "step": 7, "host": "one"}, {"host": "two", "rank": None, "problem": "refused"}]
