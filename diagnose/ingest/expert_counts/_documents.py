"""Router records as Python values, one at a time, whatever file they come from: (line from 1, {column: value}).

JSON lines, CSV and TSV, and numpy archives whose arrays are long (one value per row) or wide (the last axis
is the expert, axes in front are steps and layers). A line that is no record is (line, None).
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from diagnose.errors import InputError
from diagnose.ingest import Source
from diagnose.ingest._cells import fields, first_lines, first_object, header_of
from diagnose.ingest.expert_counts import _names as names

Record = tuple[int, dict[str, Any] | None]
_ZIP = b"PK\3\4"


def kind_of(head: bytes) -> str:
    """npz | jsonl | csv."""
    if head.startswith(_ZIP):
        return "npz"
    return "jsonl" if first_object(first_lines(head)) is not None else "csv"


def looks_right(head: bytes, name: str) -> bool:
    """Whether the document holds counts per expert; of a binary one, whether its name says so."""
    if head.startswith(_ZIP):
        return b".npy" in head[:512]
    lines = first_lines(head)
    if b"\0" in head or not lines:
        return False
    first = first_object(lines)
    if first is not None:
        return "traceEvents" not in first and "ph" not in first and holds_counts(first)
    header = header_of(lines)
    return len(header.names) > 1 and len(lines) > header.skipped_count + 1 and names.are_counts(header.names)


def holds_counts(record: dict[str, Any]) -> bool:
    """Whether a record has counts per expert, in it or nested under one key."""
    for key, inner in record.items():
        if key.lower() in names.NESTS:
            several = list(inner.values()) if isinstance(inner, dict) else inner
            if isinstance(several, list) and several and isinstance(several[0], dict):
                beside = {k: v for k, v in record.items() if k != key}
                if holds_counts({**beside, **several[0], "layer": 0}):
                    return True
    listed = [k for k, v in record.items() if isinstance(v, (list, dict)) or (isinstance(v, str) and "[" in v)]
    single = [k for k, v in record.items() if isinstance(v, (int, float)) and not isinstance(v, bool)]
    numbered = [k for k in single if (m := names.counts(k)) is not None and m.expert is not None]
    facts = [k for k in record if k not in listed and k not in numbered and names.counts(k) is None]
    return (
        (bool(listed) and names.are_counts(listed + facts) and any(names.counts(k) for k in listed))
        or (len(numbered) > 1 and names.are_counts(numbered))
        or names.is_long(single)
    )


def records(source: Source) -> Iterator[Record]:
    """All records in the order of the file. InputError where it cannot be read at all."""
    kind = kind_of(source.head())
    if kind == "jsonl":
        yield from _json_lines(source)
    elif kind == "csv":
        yield from _delimited(source)
    else:
        yield from _numpy(source)


def _json_lines(source: Source) -> Iterator[Record]:
    for number, line in _lines(source):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        yield number, value if isinstance(value, dict) else None


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    rest, number = b"", 1
    for piece in source.chunks():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            if line.strip():
                yield number, line.decode("utf-8", "replace")
            number += 1
    if rest.strip():
        yield number, rest.decode("utf-8", "replace")


def _delimited(source: Source) -> Iterator[Record]:
    header = header_of(first_lines(source.head()))
    for seen, (number, line) in enumerate(_lines(source)):
        if seen <= header.skipped_count:
            continue
        cells = fields(line, header.delimiter)
        row = {name: cell.strip() or None for name, cell in zip(header.names, cells, strict=False)}
        yield number, row if len(cells) == len(header.names) else None


def _numpy(source: Source) -> Iterator[Record]:
    try:
        with np.load(io.BytesIO(b"".join(source.chunks())), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise InputError(
            source.label, "a numpy archive that cannot be read", "arrays of numbers", "save it again"
        ) from error
    counted = {name: array for name, array in arrays.items() if names.counts(name) and array.ndim > 1}
    if not counted:
        yield from _long(source, arrays)
        return
    for name, array in counted.items():
        yield from _wide(source, name, array, arrays)


def _long(source: Source, arrays: dict[str, np.ndarray]) -> Iterator[Record]:
    lengths = {array.shape for array in arrays.values() if array.ndim == 1}
    if len(lengths) != 1 or not names.is_long(list(arrays)):
        raise InputError(
            source.label, f"a numpy archive without counts per expert (arrays: {', '.join(list(arrays)[:6])})",
            "tokens_per_expert with the expert as its last axis", "leave it out",
        )  # fmt: skip
    columns = {name: array.tolist() for name, array in arrays.items() if array.ndim == 1}
    for number, values in enumerate(zip(*columns.values(), strict=True), 1):
        yield number, dict(zip(columns, values, strict=True))


def _wide(source: Source, name: str, array: np.ndarray, arrays: dict[str, np.ndarray]) -> Iterator[Record]:
    """One record per place on the axes in front of the experts, which one-dimensional arrays of their length label."""
    axes = _axes(source, array, arrays)
    beside = {k: v.item() for k, v in arrays.items() if v.ndim == 0}
    per_record = {k: v for k, v in arrays.items() if v.shape == array.shape[:-1] and k not in axes and v.ndim}
    for number, place in enumerate(np.ndindex(array.shape[:-1]), 1):
        labels = {axis: int(label[at]) for (axis, label), at in zip(axes.items(), place, strict=True)}
        facts = {k: v[place].item() for k, v in per_record.items()}
        yield number, {**beside, **facts, **labels, name: array[place].tolist()}


def _axes(source: Source, array: np.ndarray, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    front = array.shape[:-1]
    axes: tuple[str, ...] = ("step", "layer", "rank")
    given = {axis: arrays[axis] for axis in axes if axis in arrays and arrays[axis].ndim == 1}
    if len(front) == 1:
        for axis, label in given.items():
            if len(label) == front[0]:
                return {axis: label}
    if len(front) == 2:
        found = {axis: given.get(axis, np.arange(n)) for axis, n in zip(axes[:2], front, strict=True)}
        if all(len(found[axis]) == n for axis, n in zip(axes[:2], front, strict=True)):
            return found
    if len(front) == 3 and [len(v) for v in given.values()] == list(front):
        return given
    raise InputError(
        source.label, f"counts of shape {array.shape} whose axes nothing names",
        "arrays step, layer (and rank) that label the axes in front of the experts", "save them beside the counts",
    )  # fmt: skip
