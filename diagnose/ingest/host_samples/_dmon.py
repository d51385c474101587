"""`nvidia-smi dmon` and `dcgmi dmon`: columns between blanks under a header that is repeated, a line per GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest import Source
from diagnose.ingest._cells import first_lines
from diagnose.ingest._moments import moments
from diagnose.ingest.host_samples._columns import Readings, figures
from diagnose.ingest.host_samples._fields import of_dmon

LEAST_COLUMNS = 2


def header(head: bytes) -> list[str] | None:
    """Names of the columns; None where the first `#` line has none of theirs."""
    line = next((line for line in first_lines(head) if line.startswith("#")), "")
    names = line.lstrip("# ").split()
    if not names or names[0].lower() not in ("gpu", "entity", "date", "time"):
        return None
    return names if sum(of_dmon(name) is not None for name in names) >= LEAST_COLUMNS else None


def readings(source: Source, names: list[str]) -> Iterator[Readings]:
    """Readings block by block, of lines with as many fields as the header."""
    rest = b""
    for piece in [*source.chunks(), b""]:
        whole, _, rest = (rest + piece).rpartition(b"\n") if piece else (rest, b"", b"")
        lines = pa.array(whole.decode("utf-8", "replace").splitlines(), pa.string())
        if len(lines):
            yield from _block(lines, names)


def _block(lines: pa.Array, names: list[str]) -> Iterator[Readings]:
    lower = [name.lower() for name in names]
    lines = lines.filter(pc.match_substring_regex(lines, r"^\s*(?:GPU\s+)?\d"))
    lines = pc.replace_substring_regex(pc.utf8_trim_whitespace(lines), r"^GPU\s+", "")
    fields = pc.split_pattern_regex(lines, r"\s+")
    fields = fields.filter(pc.equal(pc.list_value_length(fields), len(names)))
    if not len(fields):
        return
    columns = {name: pc.list_element(fields, at) for at, name in enumerate(lower)}
    device = columns.get("gpu", columns.get("entity"))
    known = [(*found, columns[name]) for name in lower if (found := of_dmon(name)) is not None]
    stamp = pa.nulls(len(fields), pa.string())
    if "date" in columns and "time" in columns:
        day = pc.replace_substring_regex(columns["date"], r"^(\d{4})(\d\d)(\d\d)$", r"\1-\2-\3")
        stamp = pc.binary_join_element_wise(day, columns["time"], " ")
    index = pc.if_else(pc.match_substring_regex(device, r"^\d{1,4}$"), device, None).cast(pa.int32())
    yield Readings(index, moments(stamp), figures(known))
