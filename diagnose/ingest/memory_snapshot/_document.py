"""The plain data of a snapshot, read without running anything; large ones in a process of their own.

Up to 64 MiB a snapshot is read here. Python needs about eight times a snapshot's size to hold it, so a larger one is
streamed to a child process with a cap on memory, which hands back columns: what is big dies with it.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from diagnose.errors import InputError
from diagnose.ingest import _pickle
from diagnose.ingest._source import Source
from diagnose.ingest.memory_snapshot import _sqlite
from diagnose.ingest.memory_snapshot._flat import Flat, NotASnapshotError, flatten

SMALL_BYTES = 64 << 20
MEMORY_CAP_BYTES = 12 << 30
_REFUSED = re.compile(r"global ([\w.]+)\.(\w+) ")
_EXPECTED = "a memory snapshot of torch.cuda.memory._dump_snapshot()"
_DO = "dump it again, or leave it out"


def flat_of(source: Source, small_bytes: int = SMALL_BYTES) -> Flat:
    """Columns of the snapshot. InputError where it is cut, damaged, no snapshot, or asks to run code."""
    pieces, held_bytes = [], 0
    stream = source.chunks()
    for piece in stream:
        pieces.append(piece)
        held_bytes += len(piece)
        if held_bytes > small_bytes:
            return _apart(source, itertools.chain(pieces, stream))
    data = b"".join(pieces)
    return flat_of_bytes(data, source.label)


def flat_of_bytes(data: bytes, path: str) -> Flat:
    """Columns of a snapshot that is in memory."""
    if data.startswith(_sqlite.MAGIC):
        with tempfile.TemporaryDirectory(prefix="diagnose-") as folder:
            file = Path(folder) / "snapshot.db"
            file.write_bytes(data)
            return checked_database(file, path)
    return checked(_pickle.load(data, path) if data[:1] == b"\x80" else parse_json(data, path), path)


def checked_database(file: Path, path: str) -> Flat:
    """Columns of a snapshot in SQLite form. InputError where it is none."""
    try:
        return flatten(_sqlite.document_of(file))
    except NotASnapshotError as error:
        raise InputError(path, str(error), _EXPECTED, _DO) from error


def checked(document: Any, path: str) -> Flat:
    """Columns of plain data. InputError where it has not the form of a snapshot."""
    try:
        return flatten(document)
    except NotASnapshotError as error:
        raise InputError(path, f"plain data that is no memory snapshot ({error})", _EXPECTED, _DO) from error


def parse_json(data: bytes, path: str) -> Any:
    """The document of a JSON re-save."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"JSON that is cut or damaged ({error})", _EXPECTED, _DO) from error


def _apart(source: Source, pieces: Iterator[bytes]) -> Flat:
    """Columns made by a child process that reads the document from its standard input."""
    start = f"import sys; sys.path[:] = {sys.path!r}; from {__package__}._child import main; main()"
    with tempfile.TemporaryDirectory(prefix="diagnose-") as folder:
        command = [sys.executable, "-c", start, folder, str(MEMORY_CAP_BYTES)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            assert child.stdin is not None
            assert child.stderr is not None
            try:
                for piece in pieces:
                    child.stdin.write(piece)
                child.stdin.close()
            except BrokenPipeError:
                pass  # it ended early, and says why
            said = child.stderr.read().decode("utf-8", "replace").strip()
        if child.returncode:
            cap = MEMORY_CAP_BYTES >> 30
            reason = f"a snapshot that needs more than {cap} GiB of memory to read, or breaks its reader"
            if child.returncode == 1 and said:
                reason = said.splitlines()[-1][:300]
                if refused := _REFUSED.search(reason):
                    reason += _place_of(refused[1], refused[2], source.chunks())
            raise InputError(source.label, reason, _EXPECTED, _DO)
        return load(Path(folder))


def _place_of(module: str, name: str, pieces: Iterator[bytes]) -> str:
    """Where a pickle first names a global, by either way of writing it; empty where it cannot be found."""
    as_line, as_text = f"c{module}\n{name}\n".encode(), bytes([0x8C, len(module) & 255]) + module.encode()
    offset, kept = 0, b""
    for piece in pieces:
        data = kept + piece
        found = [at for text in (as_line, as_text) if (at := data.find(text)) >= 0]
        if found:
            return f"; it is named at byte {offset + min(found):,}"
        kept = data[-512:]
        offset += len(data) - len(kept)
    return ""


def save(flat: Flat, folder: Path) -> None:
    """Write columns and notes as files that `load` reads."""
    for name, columns in flat.columns.items():
        with pa.OSFile(str(folder / f"{name}.arrow"), "wb") as file:
            table = pa.table(columns)
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
    rest = flat._asdict() | {"columns": list(flat.columns)}
    (folder / "flat.json").write_text(json.dumps(rest), encoding="utf-8")


def load(folder: Path) -> Flat:
    """What `save` wrote."""
    rest = json.loads((folder / "flat.json").read_text("utf-8"))
    columns = {}
    for name in rest["columns"]:
        with pa.OSFile(str(folder / f"{name}.arrow"), "rb") as file:
            table = pa.ipc.open_file(file).read_all()
        columns[name] = {column: table[column].combine_chunks() for column in table.column_names}
    return Flat(**(rest | {"columns": columns}))
