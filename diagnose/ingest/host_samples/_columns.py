"""Columns of a sampler's table as rows of `samples`: units, words for yes and no, bit masks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest._moments import Moments
from diagnose.ingest.host_samples._fields import MASK, reasons
from diagnose.schema import INGESTED

Floats = npt.NDArray[np.float64]
_NUMBER = r"^\s*([-+]?\d+\.?\d*(?:[eE][-+]?\d+)?)\s*(?:[A-Za-z%]+)?\s*$"


class Readings(NamedTuple):
    """Readings taken together: who, when, and the figures (not-a-number: not given)."""

    device: pa.Array
    when: Moments
    figures: dict[str, Floats]
    host: pa.Array | None = None
    uuid: pa.Array | None = None


def figures(columns: list[tuple[str, float, pa.Array]]) -> dict[str, Floats]:
    """Metrics of (metric, factor, text); of several columns for one the largest counts (a reason that is active)."""
    found: dict[str, Floats] = {}
    for metric, factor, text in columns:
        value = _values(text)
        given = reasons(value) if metric == MASK else {metric: value * factor}
        for name, one in given.items():
            found[name] = np.fmax(found[name], one) if name in found else one
    return found


def _values(text: pa.Array) -> Floats:
    """Numbers of texts such as `1980 MHz`, `0x0000000000000004`, `Active`; not-a-number for all else."""
    number = pc.struct_field(pc.extract_regex(text, _NUMBER.replace("(", "(?P<n>", 1)), "n")
    value = np.asarray(number.cast(pa.float64()).fill_null(np.nan)).copy()
    other = np.flatnonzero(np.isnan(value))
    if len(other):
        words = text.take(pa.array(other)).dictionary_encode()
        told = np.array([_word(word) for word in words.dictionary.to_pylist()])
        value[other] = told[np.asarray(words.indices.fill_null(0))] if len(told) else np.nan
    return value


def _word(word: str) -> float:
    plain = word.strip().lower()
    if plain in ("active", "not active"):
        return float(plain == "active")
    try:
        return float(int(plain, 16)) if plain.startswith("0x") else np.nan
    except ValueError:
        return np.nan


def samples(parts: list[Readings]) -> pa.Table:
    """Rows of `samples`, the readings of one metric together."""
    schema = INGESTED["samples"]
    tables = [schema.empty()]
    for part in parts:
        for metric, value in part.figures.items():
            there = np.isfinite(value)
            kept = pa.array(there)
            columns = {
                "device": part.device.filter(kept),
                "ts_ns": np.ma.array(part.when.ts_ns[there], mask=~part.when.known[there], shrink=False),
                "zoned": part.when.zoned[there],
                "metric": pa.array([metric] * int(there.sum()), pa.string()),
                "value": value[there],
            }
            for name, labels in (("host", part.host), ("uuid", part.uuid)):
                columns |= {} if labels is None else {name: labels.filter(kept)}
            tables.append(schema.build(columns))
    return pa.concat_tables(tables).unify_dictionaries()
