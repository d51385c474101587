"""Text that dcgm-exporter serves, one scrape or many in one file: `DCGM_FI_DEV_SM_CLOCK{gpu="0",...} 1980`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest import Source
from diagnose.ingest._moments import Moments, epochs
from diagnose.ingest.host_samples._columns import Readings, figures
from diagnose.ingest.host_samples._fields import of_dcgm

MARK = re.compile(rb"^DCGM_FI_\w+\{[^}\n]*\bgpu=\"", re.MULTILINE)
_LINE = r"^(?P<name>DCGM_FI_\w+)\{(?P<labels>[^}]*)\}\s+(?P<value>\S+)(?:\s+(?P<time>\d{12,14}))?\s*$"
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def readings(source: Source) -> Iterator[Readings]:
    """Readings block by block, metric by metric."""
    rest = b""
    for piece in [*source.chunks(), b""]:
        whole, _, rest = (rest + piece).rpartition(b"\n") if piece else (rest, b"", b"")
        lines = pa.array(whole.decode("utf-8", "replace").splitlines(), pa.string())
        found = pc.extract_regex(lines, _LINE).drop_null()
        if len(found):
            yield from _block(found)


def _block(found: pa.Array) -> Iterator[Readings]:
    names, labels = (pc.struct_field(found, part).dictionary_encode() for part in ("name", "labels"))
    told = [dict(_LABEL.findall(text)) for text in labels.dictionary.to_pylist()]
    at = np.asarray(labels.indices, np.int64)
    device = np.array([int(t["gpu"]) if t.get("gpu", "").isdigit() else -1 for t in told], np.int32)[at]
    host = pa.array([t.get("Hostname") for t in told], pa.string()).take(pa.array(at))
    uuid = pa.array([t.get("UUID") for t in told], pa.string()).take(pa.array(at))
    when = _when(pc.struct_field(found, "time"))
    value = pc.struct_field(found, "value")
    for number, name in enumerate(names.dictionary.to_pylist()):
        known = of_dcgm(name)
        if known is None:
            continue
        mine = np.asarray(names.indices) == number
        kept = pa.array(mine)
        own = Moments(*(column[mine] for column in when))
        indices = pa.array(device[mine], mask=device[mine] < 0)
        yield Readings(indices, own, figures([(*known, value.filter(kept))]), host.filter(kept), uuid.filter(kept))


def _when(text: pa.Array) -> Moments:
    given = np.asarray(pc.if_else(pc.equal(text.fill_null(""), ""), None, text).cast(pa.float64()).fill_null(np.nan))
    none = Moments(np.zeros(len(text), np.int64), np.zeros(len(text), bool), np.zeros(len(text), bool))
    return epochs(given) or none
