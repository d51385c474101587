"""Ask other hosts over ssh: each runs `diagnose attach` for itself and answers with JSON; no port is opened."""

from __future__ import annotations

import concurrent.futures
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

from diagnose.errors import UsageError

_NAME = re.compile(r"(?:[A-Za-z0-9_.-]+@)?[A-Za-z0-9][A-Za-z0-9_.:-]{0,254}")
MOST_HOSTS = 4096
TIMEOUT_S = 30.0


def names(path: Path) -> list[str]:
    """Hosts of a file, one a line; what stands behind the first word (slots=8) and comments are left out."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); expected one host name a line") from error
    found = list(dict.fromkeys(word[0] for line in lines if (word := line.split("#")[0].split())))
    bad = next((name for name in found if not _NAME.fullmatch(name)), None)
    if bad is not None or not found or len(found) > MOST_HOSTS:
        what = f"found {bad!r}" if bad is not None else f"found {len(found)} names"
        raise UsageError(f"{path}: {what}; expected host names, one a line")
    return found


def ask(hosts: list[str], words: list[str]) -> list[dict[str, Any]]:
    """Rows of all hosts; a host that does not answer is a row with a problem."""
    command = "diagnose attach " + " ".join(shlex.quote(word) for word in words)
    with concurrent.futures.ThreadPoolExecutor(min(32, len(hosts))) as pool:
        return [row for rows in pool.map(lambda host: _one(host, command), hosts) for row in rows]


def _one(host: str, command: str) -> list[dict[str, Any]]:
    try:
        done = subprocess.run(
            ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", host, command],
            capture_output=True, timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        rows = json.loads(done.stdout)["ranks"]
        return [{**row, "host": host} for row in rows if isinstance(row, dict)]
    except (OSError, subprocess.SubprocessError):
        return [{"host": host, "rank": None, "problem": "no answer over ssh"}]
    except (ValueError, KeyError, TypeError):
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        text = "".join(c if c.isprintable() else "?" for c in (said[-1] if said else "no JSON"))[:200]
        return [{"host": host, "rank": None, "problem": text}]
