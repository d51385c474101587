"""The hook inside a real torch process: where steps end, what is measured, and that training never notices."""

from __future__ import annotations

import gc
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from diagnose import hook_records as layout
from diagnose.hook_records import UNKNOWN
from diagnose.live import rings
from diagnose.live._boundary import errors

torch = pytest.importorskip("torch")

from diagnose.live._hook import Hook  # noqa: E402


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    """An installed hook of rank 0; taken out again at the end."""
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    monkeypatch.setattr(errors, "count", 0)
    monkeypatch.setattr(errors, "texts", [])
    made = Hook(tmp_path / "run", budget_ratio=0.5)
    made.install()
    yield made
    made.uninstall()
    if made.store is not None and made.store.short is not None:
        shutil.rmtree(made.store.short)
    assert errors.texts == []


def records(hook: Hook) -> dict[str, list[int | None]]:
    """What was recorded so far, None where unknown."""
    assert hook.store is not None and hook.store.ring.path is not None
    found = rings.tail(hook.store.ring.path, 2000).records.values
    return {name: [None if v == UNKNOWN else int(v) for v in values] for name, values in found.items()}


def problems(hook: Hook) -> dict[str, str]:
    """What a diagnosis of the run folder says of its quality."""
    from diagnose import pipeline

    assert hook.store is not None
    hook.store._flush(True)
    rows = pipeline.read([str(hook.run)], workers=1)["quality"].to_pylist()
    return {row["problem"]: row["detail"] for row in rows}


def model() -> Any:
    return torch.nn.Linear(4, 4)


def backward(net: Any) -> None:
    net(torch.ones(2, 4)).sum().backward()


def train(steps: int, step: Callable[[Any, Any], None] | None = None, kind: Any = torch.optim.SGD) -> None:
    net = model()
    optimizer = kind(net.parameters(), lr=0.01)
    for _ in range(steps):
        if step is not None:
            step(net, optimizer)
        else:
            backward(net)
            optimizer.step()
            optimizer.zero_grad()


def test_each_optimizer_step_after_a_backward_is_a_step(hook: Hook) -> None:
    train(5)

    found = records(hook)
    assert found["step"] == [1, 2, 3, 4, 5]
    assert found["step_time_ns"][0] is None, "the time before the first end is starting up"
    assert all(v is not None and v > 0 for v in found["step_time_ns"][1:])
    assert all(v is not None and v > 0 for v in found["backward_time_ns"][1:])
    assert all(v is not None and v > 0 for v in found["optimizer_time_ns"][1:])
    assert found["memory_allocated_bytes"] == [None] * 5, "no device: unknown, not zero"
    assert found["wait_time_ns"][1:] == [0] * 4


def accumulating(net: Any, optimizer: Any) -> None:
    for _ in range(3):
        backward(net)
    optimizer.step()


def stepping_often(net: Any, optimizer: Any) -> None:
    """As a wrapper that steps its inner optimizer once per bucket."""
    backward(net)
    for _ in range(4):
        optimizer.step()


@pytest.mark.parametrize("step", [accumulating, stepping_often])
def test_one_step_however_many_backwards_or_optimizer_calls(hook: Hook, step: Any) -> None:
    train(3, step)

    assert records(hook)["step"] == [1, 2, 3]


def test_only_the_leading_optimizer_ends_steps(hook: Hook) -> None:
    one, other = model(), model()
    first, second = torch.optim.SGD(one.parameters()), torch.optim.Adam(other.parameters())
    for _ in range(3):
        backward(one)
        first.step()
        backward(other)
        second.step()

    assert records(hook)["step"] == [1, 2, 3]


def test_another_optimizer_leads_once_the_first_is_gone(hook: Hook) -> None:
    train(2)
    gc.collect()
    train(2, kind=torch.optim.Adam)

    assert records(hook)["step"] == [1, 2, 3, 4]


def test_a_step_that_the_gradient_scaler_skips_still_ends(hook: Hook) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for number in range(4):
        loss = net(torch.ones(2, 4)).sum() * (float("inf") if number == 2 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    found = records(hook)
    assert found["step"] == [1, 2, 3, 4]
    assert found["skipped_count"][-1] == 1
    assert (found["flags"][2] or 0) & layout.SKIPPED


def test_marks_of_the_script_take_over(hook: Hook) -> None:
    def step(net: Any, optimizer: Any) -> None:
        backward(net)
        optimizer.step()
        hook.mark()

    train(4, step)

    found = records(hook)
    assert found["step"][1:] == [2, 3, 4, 5], "the first optimizer step came before the first mark"
    assert all((flags or 0) & layout.USER_STEP for flags in found["flags"][1:])


def test_waiting_for_the_loader_and_collections_are_timed(hook: Hook) -> None:
    class Slow(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            time.sleep(0.02)
            return torch.ones(4)

    net = model()
    optimizer = torch.optim.SGD(net.parameters())
    backward(net)
    optimizer.step()
    for batch in torch.utils.data.DataLoader(Slow()):
        net(batch).sum().backward()
        gc.collect()
        optimizer.step()

    found = records(hook)
    assert all(20e6 <= (v or 0) < 200e6 for v in found["input_time_ns"][1:])
    assert all((v or 0) >= 1 for v in found["gc_count"][1:])
    assert all((v or 0) > 0 for v in found["gc_time_ns"][1:])


def test_training_is_bit_identical_with_the_hook(hook: Hook) -> None:
    def losses() -> list[float]:
        torch.manual_seed(3)
        net = model()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        seen = []
        for _ in range(20):
            loss = net(torch.randn(2, 4)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.append(loss.item())
        return seen

    with_hook = losses()
    hook.uninstall()

    assert losses() == with_hook


def test_uninstalling_leaves_torch_as_it_was(tmp_path: Path) -> None:
    from torch.utils.data import dataloader

    def present() -> list[object]:
        return [torch.autograd.backward, dataloader._BaseDataLoaderIter.__next__, torch.amp.grad_scaler.GradScaler.step]

    before, callbacks = present(), len(gc.callbacks)
    made = Hook(tmp_path / "run", control=False)
    made.install()
    assert present() != before
    made.uninstall()

    assert present() == before
    assert len(gc.callbacks) == callbacks


def test_an_error_inside_the_hook_never_reaches_training(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("ours")

    train(2)
    monkeypatch.setattr(hook, "_record", broken)
    train(30)

    assert errors.too_many
    assert "the hook is off after 20 errors" in capfd.readouterr().err
    monkeypatch.setattr(errors, "texts", [])


def test_no_synchronise_is_added(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for owner, name in (
        (torch.cuda, "synchronize"), (torch.cuda.Event, "synchronize"), (torch.cuda.Stream, "synchronize"),
        (torch.Tensor, "item"), (torch.Tensor, "cpu"), (torch.cpu, "synchronize"),
    ):  # fmt: skip
        inner = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, _n=name, _i=inner, **k: (calls.append(_n), _i(*a, **k))[1])
    train(50)

    assert records(hook)["step"][-1] == 50
    assert calls == []


def test_a_forked_child_is_inert(hook: Hook) -> None:
    train(3)
    with _no_fork_warning():
        child = os.fork()
    if child == 0:
        train(5)
        os._exit(0 if not hook.active and errors.count == 0 else 1)
    _, status = os.waitpid(child, 0)
    train(2)

    assert os.waitstatus_to_exitcode(status) == 0
    assert records(hook)["step"] == [1, 2, 3, 4, 5]
    assert hook.store is not None and hook.store.control is not None and hook.store.control.path.exists()


def test_a_child_that_trains_itself_is_recorded(hook: Hook) -> None:
    """As ranks that are forked from one process that imported torch."""
    with _no_fork_warning():
        child = os.fork()
    if child == 0:
        train(4)
        os._exit(0 if hook.active and records(hook)["step"] == [1, 2, 3, 4] else 1)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0


def test_a_folder_used_again_loses_nothing(hook: Hook, tmp_path: Path) -> None:
    train(3)
    assert hook.store is not None
    hook.store._flush(True)
    again = Hook(tmp_path / "run", control=False)
    again.install()
    try:
        train(2)
        assert again.store is not None
        again.store._flush(True)
        assert again.store.folder.name == "attempt001"
    finally:
        again.uninstall()
    assert len(list((tmp_path / "run").glob("attempt*/*.history"))) == 2


class _no_fork_warning:  # noqa: N801
    """Python 3.12 warns of forks beside threads; data loaders do just that."""

    def __enter__(self) -> None:
        import warnings

        self.saved = warnings.catch_warnings()
        self.saved.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(self, *_: object) -> None:
        self.saved.__exit__(None, None, None)


def test_a_clock_that_jumps_is_noted(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    train(3)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - 7_000_000_000)
    train(3)

    found = records(hook)
    assert [bool((flags or 0) & layout.CLOCK_JUMP) for flags in found["flags"]] == [False] * 3 + [True] + [False] * 2
    assert all((v or 1) > 0 for v in found["step_time_ns"])
    monkeypatch.undo()
    assert "clock_jump" in problems(hook)


def test_a_full_disk_is_survived_and_recorded(hook: Hook) -> None:
    train(3)
    assert hook.store is not None and hook.store.history is not None
    hook.store._flush(True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        train(2)
        hook.store._flush(True)
        train(2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)

    assert [bool((f or 0) & layout.HISTORY_FAILED) for f in records(hook)["flags"]] == [False] * 5 + [True] * 2
    assert "hook_gap" in problems(hook)


def test_without_any_place_for_files_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("diagnose.live.places.private", lambda run: (_ for _ in ()).throw(OSError(30, "Read-only")))
    made = Hook(tmp_path / "file" / "run")
    made.install()
    try:
        train(3)
        assert made.store is not None and made.store.ring.path is None and made.store.ring.seq == 3
        assert made.store.control is None
        assert any("Read-only" in problem for problem in made.store.problems)
    finally:
        made.uninstall()


def test_a_socket_that_cannot_be_bound_is_left_out(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diagnose.live.places.SOCKET_BYTES", 5)
    train(3)

    assert hook.store is not None and hook.store.control is None
    assert records(hook)["step"] == [1, 2, 3]
    assert "control socket" in problems(hook)["hook_gap"]


def test_a_folder_that_is_removed_is_survived_and_told(hook: Hook) -> None:
    train(3)
    assert hook.store is not None
    hook.store._flush(True)
    shutil.rmtree(hook.run)
    train(3)

    assert "records before step 4 are gone" in problems(hook)["hook_gap"]


def test_a_small_disk_is_filled_and_survived(tmp_path: Path) -> None:
    """A tmpfs that holds neither the ring nor all of the history."""
    import subprocess

    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "none", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk needs rights that this user lacks")
    made = Hook(disk / "run", budget_ratio=1.0)
    try:
        made.install()
        train(1000)
        assert made.store is not None and made.store.ring.path is not None
        made.store._flush(True)
        assert made.store.failed
        assert not made.store.ring.path.is_relative_to(disk)
        assert records(made)["step"] == list(range(1, 1001))
        assert "No space left" in problems(made)["hook_gap"]
    finally:
        made.uninstall()
        subprocess.run(["umount", str(disk)], check=True)


def test_routers_are_read_before_the_script_resets_them(hook: Hook) -> None:
    class Router(torch.nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 4)
            self.register_buffer("tokens_per_expert", torch.zeros(4))

    net = Router()
    optimizer = torch.optim.SGD(net.parameters())
    optimizer.register_step_pre_hook(lambda *_: [net.tokens_per_expert.zero_(), None][1])
    for number in range(3):
        net.tokens_per_expert += torch.tensor([1.0, 2.0, 3.0, number])
        backward(net)
        optimizer.step()
    assert hook.store is not None
    hook.store._flush(True)

    rows = hook.store.stem.with_name("rank00000.router.jsonl").read_text().splitlines()
    assert len(rows) == 3
    assert rows[-1] == '{"rank":0,"step":3,"layer":0,"tokens_per_expert":[1,2,3,2],"dropped":null}'
    assert records(hook)["routed_count"] == [6, 7, 8]
    assert records(hook)["dropped_count"] == [None] * 3


def test_a_capture_in_the_process_holds_exactly_its_steps(hook: Hook, tmp_path: Path) -> None:
    import json

    train(2)
    path = tmp_path / "captures" / "one" / "rank00000.json"
    plan = {"id": "one", "start": 5, "steps": 2, "seconds": 30.0, "options": {}}
    assert hook.capture.arm(plan, path, hook.step) == ""
    assert "busy" in hook.capture.arm(plan, path, hook.step)
    train(8)
    hook.capture.close()

    names = [e["name"] for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") == "user_annotation"]
    assert [n for n in names if n.startswith("ProfilerStep")] == ["ProfilerStep#5", "ProfilerStep#6"]
    assert sum(n.startswith("Optimizer.step") for n in names) == 2
    assert hook.capture.state()["state"] == "done"
    assert "late" in hook.capture.arm(plan, path, hook.step)


def test_a_capture_is_stopped_when_the_process_ends(hook: Hook, tmp_path: Path) -> None:
    train(1)
    plan = {"id": "two", "start": 3, "steps": 50, "seconds": 30.0, "options": {}}
    assert hook.capture.arm(plan, tmp_path / "two.json", hook.step) == ""
    train(4)
    assert hook.capture.running
    hook.capture.close()

    assert not torch._C._autograd._profiler_enabled()
    assert hook.capture.state()["state"].startswith("failed: the job ended")


def test_the_cost_of_a_step_is_small(hook: Hook) -> None:
    """Thread CPU time, so that other work on this machine does not count: below 1 % of a 20 ms step."""
    hook.budget.ratio = 0.005

    def step(net: Any, optimizer: Any) -> None:
        backward(net)
        time.sleep(0.002)
        optimizer.step()

    train(120, step)
    cost = sorted(v for v in records(hook)["hook_cpu_time_ns"] if v is not None)

    assert len(cost) >= 5
    assert cost[len(cost) // 2] < 0.01 * 20e6


def test_the_hook_imports_nothing_of_the_analysis() -> None:
    import subprocess

    heavy = "pyarrow", "duckdb", "pandas", "numpy", "typer", "rich", "torch"
    code = f"import diagnose.live, sys; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
