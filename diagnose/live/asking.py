"""Asking a rank: its control socket, and torch's own server, each with a time-out and an answer on which one failed."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import socket
from pathlib import Path
from typing import Any

from diagnose.live.ranks import Rank

TIMEOUT_S = 3.0
ANSWER_BYTES = 16 << 20


def ask(rank: Rank, timeout_s: float = TIMEOUT_S, **request: Any) -> dict[str, Any]:
    """The answer of a rank's control socket; {"error": ...} where there is none."""
    if rank.control is None:
        return {"error": "no control socket"}
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(timeout_s)
            line.connect(str(rank.control))
            line.sendall(json.dumps(request).encode() + b"\n")
            with line.makefile("rb") as lines:
                found = json.loads(lines.readline(ANSWER_BYTES))
    except TimeoutError:
        return {"error": f"no answer in {timeout_s:.0f} s"}
    except (OSError, ValueError, RecursionError) as error:
        return {"error": getattr(error, "strerror", None) or "an answer that is no JSON"}
    return found if isinstance(found, dict) else {"error": "an answer that is no object"}


def ask_all(ranks: list[Rank], timeout_s: float = TIMEOUT_S, **request: Any) -> list[dict[str, Any]]:
    """Answers of all ranks, in their order, asked at the same time."""
    if not ranks:
        return []
    with concurrent.futures.ThreadPoolExecutor(min(64, len(ranks))) as pool:
        return list(pool.map(lambda rank: ask(rank, timeout_s, **request), ranks))


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


def torch_server(path: Path, handler: str, timeout_s: float = TIMEOUT_S) -> bytes | None:
    """What torch's server answers; it does so even while the interpreter is stuck. None where it does not."""
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(_Connection(path, timeout_s)) as c:
        c.request("POST", f"/handler/{handler}")
        answer = c.getresponse()
        body = answer.read(ANSWER_BYTES)
        return body if answer.status == 200 else None
    return None
