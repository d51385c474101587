"""The files, the writing thread and the socket of one rank; made at the end of its first step.

What cannot be made is left out, and said: without a place for the ring it lives in memory only, without a history the
ring still has the last steps, without a socket the files still tell.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose.live import _writer, places
from diagnose.live._boundary import shielded
from diagnose.live._history import History
from diagnose.live._ring import Ring

if TYPE_CHECKING:
    from diagnose.live._control import Control
    from diagnose.live._hook import Hook

FLUSH_S = 1.0
MOST_ATTEMPTS = 100_000


class Store:
    """Where the records of `hook` go."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.writer = _writer.describe()
        while self._taken():  # the same folder was given to a job before, which restarted from outside
            self.writer["attempt"] += 1
        self.folder = places.attempt(hook.run, self.writer["attempt"])
        self.stem = self.folder / places.stem(self.writer["rank"])
        hook.routers.rank = self.writer["rank"]
        self.problems: list[str] = []
        self.short = self._try("private folder", lambda: places.private(hook.run))
        self._try("run folder", lambda: self.folder.mkdir(mode=0o700, parents=True, exist_ok=True))
        self.ring = self._ring()
        self.history = History(self.stem, self.writer) if hook.wants_history else None
        self.control: Control | None = None
        self._server: Any = None
        self.torch_socket: str | None = None
        self._stop = threading.Event()
        if hook.wants_control and self.short is not None:
            self._listen(self.short)
        for problem in self.problems:
            self.note("no_place", 0, problem)
        if self.history is not None:
            self.history.write_notes()  # before any record: later the disk may be full
        self._describe()
        self._thread = threading.Thread(target=self._work, daemon=True, name="diagnose-history")
        self._thread.start()
        atexit.register(self.close)

    def _taken(self) -> bool:
        """Whether this rank has left files in this attempt already."""
        folder = places.attempt(self.hook.run, self.writer["attempt"])
        name = f".{places.stem(self.writer['rank'])}.json"
        return self.writer["attempt"] < MOST_ATTEMPTS and os.access(folder / name, os.F_OK)

    def _try(self, what: str, make: Any) -> Any:
        try:
            return make()
        except OSError as error:
            self.problems.append(f"{what}: {error.strerror or error}")
            return None

    def _ring(self) -> Ring:
        """In the run folder, else in the private one, else in memory."""
        name = f"{self.stem.name}.ring"
        candidates = [self.folder / name] if places.is_local(self.folder) else []
        if self.short is not None:
            candidates.append(self.short / f"{self.folder.name}-{name}")
        for path in candidates:
            ring = self._try("ring", lambda path=path: Ring(path, self.writer))
            if ring is not None:
                assert isinstance(ring, Ring)
                return ring
        return Ring(None, self.writer)

    def _listen(self, short: Path) -> None:
        from diagnose.live._control import Control

        path = short / f"{self.writer['attempt']}-{self.writer['rank']}.sock"
        self.control = self._try("control socket", lambda: Control(path, self.hook))
        if os.environ.get("DIAGNOSE_TORCH_SERVER") == "1":
            shielded(self.serve)()

    def serve(self) -> str | None:
        """Start torch's own server (private API, so it may be absent) and say where it listens.

        It answers even while the interpreter is stuck. Not started unasked: it prints to the job's stderr.
        """
        import torch.distributed as dist

        if self._server is None and self.short is not None and dist.is_available() and dist.is_initialized():
            from torch._C import _distributed_c10d

            path = self.short / f"{self.writer['attempt']}-{self.writer['rank']}.torch"
            path.unlink(missing_ok=True)
            before = os.umask(0o177)
            try:
                self._server = _distributed_c10d._WorkerServer(str(path))
            finally:
                os.umask(before)
            self.torch_socket = str(path)
            self._describe()
        return self.torch_socket

    @shielded
    def _describe(self, **more: Any) -> None:
        sockets = {
            "control": str(self.control.path) if self.control is not None else None,
            "torch": self.torch_socket,
        }
        ring = str(self.ring.path) if self.ring.path is not None else None
        _writer.save(
            self.stem.with_name(f".{self.stem.name}.json"),  # hidden: tells who attaches, no input of a diagnosis
            {"diagnose_rank": 1, **self.writer, "ring": ring, **sockets, "problems": self.problems, **more},
        )

    def put(self, values: list[int], wall_ns: int) -> None:
        """One record."""
        self.ring.put(values, wall_ns)

    def note(self, kind: str, step: int, detail: str) -> None:
        """One fact for the notes."""
        if self.history is not None:
            self.history.note(kind, step, detail, time.time_ns())

    @property
    def failed(self) -> bool:
        """Whether the history is failing now."""
        return self.history is not None and self.history.failed

    @property
    def lost_count(self) -> int:
        """Records that the history will never have."""
        return self.history.lost_count if self.history is not None else 0

    def state(self) -> str:
        """One word, and why."""
        if self.history is None:
            return "off"
        return f"failing: {self.history.problem}" if self.history.failed else "ok"

    def _work(self) -> None:
        while not self._stop.wait(FLUSH_S):
            self._flush(False)

    @shielded
    def _flush(self, last: bool) -> None:
        if self.history is None:
            return
        failed = self.history.failed
        self.history.flush(self.ring, last)
        if self.history.failed and not failed:
            self.note("history_failed", self.hook.step, self.history.problem)
        elif failed and not self.history.failed:
            self.note("history_resumed", self.hook.step, f"{self.history.lost_count} records lost")
        self.history.write_notes()
        self._write_routers()

    def _write_routers(self) -> None:
        path = self.stem.with_name(f"{self.stem.name}.router.jsonl")
        try:
            self.hook.routers.write(path)
        except OSError as error:
            self.problems.append(f"router file: {error.strerror}"[:200])
            del self.problems[:-20]

    @shielded
    def close(self) -> None:
        """The process ends, or the hook goes."""
        if self._stop.is_set():
            return
        self._stop.set()
        shielded(self.hook.capture.close)()
        self._thread.join(timeout=2)
        self._flush(True)
        if self.control is not None:
            self.control.close()
        if self._server is not None:
            shielded(self._server.shutdown)()
        self._describe(ended_ns=time.time_ns(), errors=self.hook.status()["errors"])
        if self.history is not None:
            self.history.close()
        kept = self.history is not None and not self.history.failed and self.history.kept_seq == self.ring.seq
        if kept and self.ring.path is not None:  # the history has all of it
            self.ring.path.unlink(missing_ok=True)

    def forget(self) -> None:
        """In a forked child: the parent's files and sockets are not ours."""
        self._stop.set()
        if self.control is not None:
            self.control.forget()
