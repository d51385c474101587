"""`nvidia-smi --query-gpu=... --format=csv[,nounits] -l N`: a header, then a line per GPU and moment."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest import Source
from diagnose.ingest._cells import Header, csv_blocks, first_lines, header_of
from diagnose.ingest._moments import moments
from diagnose.ingest.host_samples._columns import Readings, figures
from diagnose.ingest.host_samples._fields import of_query

LEAST_COLUMNS = 2


def header(head: bytes) -> Header | None:
    """The header, where it has nvidia-smi's names of queries."""
    found = header_of(first_lines(head))
    known = sum(of_query(name) is not None or name.lower() == "timestamp" for name in found.names)
    own = any("." in name and of_query(name) is not None for name in found.names)
    return found if own and known >= LEAST_COLUMNS else None


def readings(source: Source, names: Header) -> Iterator[Readings]:
    """Readings block by block; a header printed again by the next start gives none."""
    seen: dict[str, int] = {}
    for block in csv_blocks(source, names):
        columns = {name.strip().lower(): pc.utf8_trim_whitespace(text) for name, text in block.columns.items()}
        first = next(iter(columns))
        data = pc.not_equal(columns[first].fill_null(""), first)
        columns = {name: text.filter(data) for name, text in columns.items()}
        count = len(columns[first])
        stamp = columns.get("timestamp")
        when = moments(stamp if stamp is not None else pa.nulls(count, pa.string()))
        known = [(*found, text) for name, text in columns.items() if (found := of_query(name)) is not None]
        yield Readings(
            _device(columns, count, seen), when, figures(known), uuid=columns.get("uuid", columns.get("gpu_uuid"))
        )


def _device(columns: dict[str, pa.Array], count: int, seen: dict[str, int]) -> pa.Array:
    """Index of the GPU: as given, else the order in which ids or bus addresses are first seen; null without either."""
    if (index := columns.get("index")) is not None:
        return pc.if_else(pc.match_substring_regex(index, r"^\d{1,4}$"), index, None).cast(pa.int32())
    for name in ("pci.bus_id", "gpu_bus_id", "uuid", "gpu_uuid"):
        if name in columns:
            coded = columns[name].dictionary_encode()
            places = [seen.setdefault(text, len(seen)) for text in coded.dictionary.to_pylist()]
            return pa.array(np.array(places, np.int32)[np.asarray(coded.indices)])
    return pa.nulls(count, pa.int32())
