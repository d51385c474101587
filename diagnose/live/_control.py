"""The control socket of one rank: JSON lines on a unix socket that only this user reaches.

A closed list of verbs; no path, no code and no pickle comes in; answers go back on the line, files only below the run
folder. The peer's user is checked (SO_PEERCRED). One thread, one client at a time, all with time-outs.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose.live import places
from diagnose.live._boundary import shielded
from diagnose.live._capture import ID, MOST_SECONDS, MOST_STEPS, OPTIONS

if TYPE_CHECKING:
    from diagnose.live._hook import Hook

LINE_BYTES = 64 << 10
TIMEOUT_S = 5.0
MOST_FRAMES = 40


class Control:
    """Serves `path` until closed. OSError where it cannot be bound."""

    def __init__(self, path: Path, hook: Hook) -> None:
        if len(os.fsencode(path)) > places.SOCKET_BYTES:
            raise OSError(f"{path}: too long for a socket")
        self.path, self.hook = path, hook
        self.verbs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "ping": lambda _: {"wall_ns": time.time_ns()}, "status": lambda _: self.hook.status(),
            "stacks": self._stacks, "capture": self._capture, "cancel": self._cancel, "memory": self._memory,
            "collectives": self._collectives, "overhead": self._overhead, "blocks": self._blocks,
            "detach": self._detach, "serve": self._serve_torch,
        }  # fmt: skip
        path.unlink(missing_ok=True)
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        before = os.umask(0o177)
        try:
            self.server.bind(str(path))
        except OSError:
            self.server.close()
            raise
        finally:
            os.umask(before)
        self.server.listen(8)
        threading.Thread(target=self._listen, daemon=True, name="diagnose-control").start()

    def close(self) -> None:
        """Stop listening and remove the socket."""
        self.path.unlink(missing_ok=True)
        self.server.close()

    def forget(self) -> None:
        """In a forked child: let go of the descriptor, leave the parent's socket."""
        self.server.close()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            shielded(self._talk)(client)
            client.close()

    def _talk(self, client: socket.socket) -> None:
        client.settimeout(TIMEOUT_S)
        _, user, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user not in (os.getuid(), 0):
            return
        with client.makefile("rwb") as lines:
            line = lines.readline(LINE_BYTES)
            lines.write(json.dumps(self.answer(line)).encode() + b"\n")

    def answer(self, line: bytes) -> dict[str, Any]:
        """The reply to one line."""
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return {"error": "expected one line of JSON of at most 64 KiB"}
        verb = request.get("verb") if isinstance(request, dict) else None
        if not isinstance(verb, str) or verb not in self.verbs:
            return {"error": f"expected a verb of: {', '.join(self.verbs)}"}
        try:
            return self.verbs[verb](request)
        except (KeyError, TypeError, ValueError, OSError, AttributeError, RuntimeError) as error:
            return {"error": f"{verb}: {type(error).__name__} {error}"[:200]}

    def _stacks(self, _: dict[str, Any]) -> dict[str, Any]:
        names = {t.ident: t.name for t in threading.enumerate()}
        shown = {}
        for thread, frame in sys._current_frames().items():
            name = names.get(thread, str(thread))
            if not name.startswith("diagnose-"):
                shown[name] = [f"{f.filename}:{f.lineno} {f.name}" for f in traceback.extract_stack(frame)][
                    -MOST_FRAMES:
                ]
        return {"stacks": shown}

    def _capture(self, request: dict[str, Any]) -> dict[str, Any]:
        name = _id(request)
        plan = {
            "id": name,
            "start": int(request["start"]),
            "steps": min(max(1, int(request.get("steps", 3))), MOST_STEPS),
            "seconds": min(max(1.0, float(request.get("seconds", 60))), MOST_SECONDS),
            "options": {key: True for key in OPTIONS if request.get(key) is True},
        }
        path = self._folder(name) / f"{self._stem()}.json"
        refused = self.hook.capture.arm(plan, path, self.hook.step)
        return {"error": refused, "step": self.hook.step} if refused else {"start": plan["start"]}

    def _cancel(self, _: dict[str, Any]) -> dict[str, Any]:
        self.hook.capture.cancel()
        return {"capture": self.hook.capture.state()}

    def _memory(self, request: dict[str, Any]) -> dict[str, Any]:
        device = self.hook.device
        if device is None or device.cuda is None:
            return {"error": "no CUDA device in this process"}
        stats: dict[str, Any] = device.memory()
        if request.get("snapshot") is True:
            path = self._folder(_id(request)) / f"{self._stem()}_snapshot.pickle"
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            device.cuda.memory._dump_snapshot(str(path))
            stats["file"] = str(path)
        return stats

    def _collectives(self, request: dict[str, Any]) -> dict[str, Any]:
        """Where torch's server cannot be asked: from here it holds the interpreter for some 50 ms."""
        from torch._C import _distributed_c10d

        path = self._folder(_id(request)) / f"{self._stem()}_flight.json"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = _distributed_c10d._dump_fr_trace_json(True)  # type: ignore[attr-defined]
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return {"file": str(path)}

    def _overhead(self, request: dict[str, Any]) -> dict[str, Any]:
        overhead, signals = self.hook.overhead, self.hook.signals
        if overhead.running:
            return {"error": "busy: a measurement is under way"}
        pairs, block = int(request.get("pairs", 200)), int(request.get("block_steps", 10))
        overhead.start(pairs, block, lambda muted: signals.pause() if muted else signals.resume())
        return overhead.state()

    def _blocks(self, _: dict[str, Any]) -> dict[str, Any]:
        return self.hook.overhead.state() | {"blocks": self.hook.overhead.blocks()}

    def _serve_torch(self, _: dict[str, Any]) -> dict[str, Any]:
        path = self.hook.store.serve() if self.hook.store is not None else None
        return {"torch": path} if path else {"error": "torch has no server, or torch.distributed is not initialised"}

    def _detach(self, _: dict[str, Any]) -> dict[str, Any]:
        threading.Thread(target=self.hook.uninstall, daemon=True, name="diagnose-detach").start()
        return {"detached": True}

    def _folder(self, name: str) -> Path:
        return self.hook.run / "captures" / name

    def _stem(self) -> str:
        assert self.hook.store is not None
        return self.hook.store.stem.name


def _id(request: dict[str, Any]) -> str:
    name = request["id"]
    if not isinstance(name, str) or not ID.fullmatch(name):
        raise ValueError("id: expected letters, digits, - and _, at most 40")
    return name
