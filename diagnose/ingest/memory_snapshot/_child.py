"""The process that reads a large snapshot: unpickles from standard input under a memory cap and writes columns.

Every global is refused by the unpickler itself: no name is looked up, so nothing can run. A scan of the opcodes
beforehand would take longer than reading; the parent looks up where a refused one stands.
"""

from __future__ import annotations

import gc
import io
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any, NoReturn

from diagnose.errors import InputError
from diagnose.ingest.memory_snapshot import _sqlite
from diagnose.ingest.memory_snapshot._document import checked, checked_database, parse_json, save
from diagnose.ingest.memory_snapshot._flat import Flat

CPU_LIMIT_S = 1800


class Reader(pickle.Unpickler):
    """An unpickler that knows no names."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        """Refuse."""
        raise pickle.UnpicklingError(f"global {module_name}.{global_name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        """Refuse."""
        raise pickle.UnpicklingError("a persistent id")


def main() -> None:
    """`_child FOLDER CAP_BYTES`, document on standard input; ends with 1 and one line on standard error if refused."""
    folder, cap_bytes = Path(sys.argv[1]), int(sys.argv[2])
    _limit(cap_bytes)
    gc.disable()  # millions of containers without cycles: collecting would visit them again and again
    try:
        save(_flat(folder), folder)
    except InputError as error:
        _end(error.found)
    except pickle.UnpicklingError as error:
        _end(f"a pickle that is damaged or asks for more than data: {error} (nothing was run)")
    except (EOFError, ValueError, KeyError, IndexError, AttributeError, TypeError, OverflowError) as error:
        _end(f"a pickle that is cut or damaged ({type(error).__name__}: {error})")
    except MemoryError:
        _end(f"a snapshot that does not fit {cap_bytes >> 30} GiB of memory when read")


def _flat(folder: Path) -> Flat:
    stream = io.BufferedReader(io.FileIO(sys.stdin.fileno(), closefd=False), 8 << 20)
    start = stream.peek(len(_sqlite.MAGIC))
    if start.startswith(_sqlite.MAGIC):
        file = folder / "snapshot.db"
        with file.open("wb") as copy:
            shutil.copyfileobj(stream, copy, 8 << 20)
        return checked_database(file, "snapshot")
    document = Reader(stream).load() if start[:1] == b"\x80" else parse_json(stream.read(), "snapshot")
    return checked(document, "snapshot")


def _end(reason: str) -> NoReturn:
    sys.stderr.write(" ".join(reason.split()) + "\n")
    sys.stderr.flush()
    raise SystemExit(1)


def _limit(cap_bytes: int) -> None:
    try:
        import resource
    except ImportError:  # no such limits on this system
        return
    resource.setrlimit(resource.RLIMIT_AS, (cap_bytes, cap_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
