"""Pairs of step lines as columns: numbers, units, steps, ranks and the time that stands on the line."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.formulas import metrics
from diagnose.ingest._moments import Moments, moments
from diagnose.ingest.text._lines import Lines
from diagnose.ingest.text._training_formats import BARS, Format

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
UNKNOWN_RANK = -1
_STAMPED = 96
"""Loggers print the time in front, behind what launchers print."""
_SCALES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_RATES = {"s/it": 1e9, "s/ba": 1e9, "s/batch": 1e9}
_INVERSE_RATES = ("it/s", "ba/s", "batch/s")
_RANK = r"\[(?:rank|Rank |RANK )(\d{1,6})\]|^\[1,(\d{1,6})\]<std|\brank-(\d{1,6})/\d+|\[Rank (\d{1,6})\]"
_BAR = r"([^\r|]*?)\s*\d+%\|"
_LAUNCHER = re.compile(r"^\s*(?:\d+|\[[^\]]*\]|[\w.-]*\d[\w.-]*)\s*:\s*")
_TRAINING_BAR = re.compile(r"^\W*(?:(?:train|training|epoch|step|iter|iteration)s?\b[\s\d/:\[\],]*)?$", re.IGNORECASE)
_EASY = r"^[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?$"
_VALUE = r"^([-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf|NaN|Infinity))\s*([A-Za-z%][A-Za-z/]*)?"


class Pairs(NamedTuple):
    """Records (line, step, rank, counted) and their values (record, name, value)."""

    line: Ints
    step: Ints
    rank: Ints
    record: Ints
    names: list[str]
    name: Ints
    value: Floats
    when: Moments
    """Per record."""


def groups(text: pa.Array, pattern: str, count: int) -> list[list[str]]:
    """Groups of the first match of each text, as lists; empty text where there is none."""
    return [column.to_pylist() for column in _extracted(text, pattern, count)]


def pairs(form: Format, lines: Lines, steps: Ints | None) -> Pairs:
    """Numbers of the lines of one format; `steps` where the lines have none of their own (-1: unknown)."""
    body = lines.text if form.pair == BARS else _extracted(lines.text, form.body, 1)[0]
    record, key, given = _key_and_value(body, form.pair)
    number, unit = _numbers(given)
    labels, at = _labels(key, unit)
    names, code, factor = _named(form, labels, at)
    value = number * factor
    if form.name == "progress":
        units = [label[1] for label in labels]
        value, names = _rates(units, at, number, value, code, names, groups(lines.text, _BAR, 1)[0], record)
    kept = (code >= 0) & (~np.isnan(number) | _printed_nan(given, number))
    own = _step(form, lines.text) if steps is None else steps
    when = moments(pc.utf8_slice_codeunits(lines.text, 0, _STAMPED))
    return Pairs(lines.number, own, _ranks(lines), record[kept], names, code[kept], value[kept], when)


def _extracted(text: pa.Array, pattern: str, count: int) -> list[pa.Array]:
    """Groups of the first match of each text as columns."""
    names = iter(range(count))
    named = re.sub(r"(?<!\\)\((?!\?)", lambda _: f"(?P<g{next(names)}>", pattern)
    found = pc.extract_regex(text, named)
    return [pc.struct_field(found, f"g{i}").fill_null("") for i in range(count)]


def _key_and_value(body: pa.Array, pair: str) -> tuple[Ints, pa.Array, pa.Array]:
    """Line, key and value of every pair. Bars between pairs are split at, others are found by pattern."""
    if pair == BARS:
        pieces, between = pc.list_slice(pc.split_pattern(body, "|"), 1), ":"  # the step stands before the first bar
    else:
        marked = pc.replace_substring_regex(body, pair, "\x1e\\1\x1f\\2\x1e")
        pieces, between = pc.split_pattern(marked, "\x1e"), "\x1f"
    row, piece = pc.list_parent_indices(pieces), pc.list_flatten(pieces)
    mine = pc.match_substring(piece, between)
    row, piece = row.filter(mine), piece.filter(mine)
    halves = pc.list_flatten(pc.split_pattern(piece, between, max_splits=1))  # key, value, key, value, ...
    key, value = (pc.ascii_trim_whitespace(halves.take(pa.array(np.arange(i, len(halves), 2)))) for i in (0, 1))
    return np.asarray(row, np.int64), key, value


def _numbers(given: pa.Array) -> tuple[Floats, pa.DictionaryArray]:
    """Leading number of each text (NaN where there is none) and the letters behind it."""
    number, unit = np.full(len(given), np.nan), np.zeros(len(given), np.int32)
    try:  # nothing but numbers, as nearly always in some formats
        return np.asarray(given.cast(pa.float64())), pa.DictionaryArray.from_arrays(pa.array(unit), pa.array([""]))
    except pa.ArrowInvalid:
        pass
    easy = np.asarray(pc.match_substring_regex(given, _EASY))
    number[easy] = np.asarray(given.filter(pa.array(easy)).cast(pa.float64()))
    units = [""]
    if not easy.all():
        digits, letters = _extracted(given.filter(pa.array(~easy)), _VALUE, 2)
        digits = pc.replace_substring(digits, ",", "")
        plain = pc.if_else(pc.equal(digits, ""), "nan", digits)
        number[~easy] = np.asarray(plain.cast(pa.float64()))
        coded = letters.dictionary_encode()
        units += coded.dictionary.to_pylist()
        unit[~easy] = np.asarray(coded.indices) + 1
    return number, pa.DictionaryArray.from_arrays(pa.array(unit), pa.array(units, pa.string()))


def _labels(key: pa.Array, unit: pa.DictionaryArray) -> tuple[list[tuple[str, str]], Ints]:
    """Distinct keys with their units, and which of them each pair has."""
    coded = key.dictionary_encode()
    keys, units = coded.dictionary.to_pylist(), unit.dictionary.to_pylist()
    both = np.asarray(coded.indices, np.int64) * len(units) + np.asarray(unit.indices)
    seen = np.zeros(len(keys) * len(units), bool)
    seen[both] = True
    labels = [(keys[n // len(units)], units[n % len(units)]) for n in np.flatnonzero(seen).tolist()]
    return labels, (np.cumsum(seen) - 1)[both]


def _printed_nan(given: pa.Array, number: Floats) -> npt.NDArray[np.bool_]:
    """Where what is no number was printed as one that is none."""
    printed = np.isnan(number)
    if printed.any():
        text = given.filter(pa.array(printed))
        printed[printed] = np.asarray(pc.match_substring_regex(text, r"^[-+]?(?:nan|NaN)\b"))
    return printed


def _step(form: Format, text: pa.Array) -> Ints:
    if not form.step:
        return np.full(len(text), -1)
    found = _extracted(text, form.step, re.compile(form.step).groups)
    first = found[0]
    if form.name == "nemo":  # the global step where it is printed, else the one in the epoch
        (inner,) = _extracted(text, r"iteration (\d+)/", 1)
        first = pc.if_else(pc.equal(first, ""), inner, first)
    return np.asarray(pc.if_else(pc.equal(first, ""), "-1", first).cast(pa.int64()))


def _ranks(lines: Lines) -> Ints:
    rank = np.full(len(lines), UNKNOWN_RANK)
    likely = np.asarray(pc.or_(pc.match_substring(lines.text, "ank"), pc.starts_with(lines.text, "[1,")))
    if likely.any():
        found = _extracted(lines.text.filter(pa.array(likely)), _RANK, 4)
        text = pc.binary_join_element_wise(*found, "")
        rank[likely] = np.asarray(pc.if_else(pc.equal(text, ""), str(UNKNOWN_RANK), text).cast(pa.int64()))
    return rank


def _named(form: Format, labels: list[tuple[str, str]], at: Ints) -> tuple[list[str], Ints, Floats]:
    """Names, the code of every pair (-1: no metric) and its factor."""
    names: dict[str, int] = {}
    codes, factors = [], []
    for key, unit in labels:
        metric, factor = _metric(form, key, unit)
        codes.append(names.setdefault(metric, len(names)) if metric else -1)
        factors.append(factor)
    return list(names), np.array(codes, np.int64)[at], np.array(factors, np.float64)[at]


def _metric(form: Format, key: str, unit: str) -> tuple[str, float]:
    if key in form.renamed:
        return form.renamed[key]
    if form.name == "nanotron" and unit in _SCALES:
        known = metrics.canonical(key)
        return (known[0] if known else _plain(key), _SCALES[unit])
    unit = unit or form.unit
    known = metrics.canonical(key, unit) or (metrics.canonical(key) if unit else None)
    if known:
        return known
    if form.unit == "ms":
        return f"{_plain(key)}_time_ns", 1e6
    if form.name == "progress" and not key:
        return "step_time_ns", 1.0
    name = _plain(key)
    return (name, 1.0) if re.fullmatch(r"[a-z][a-z0-9_]{0,59}", name) and not key.startswith(">") else ("", 1.0)


def _plain(key: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", key.lower()).strip("_")


def _rates(  # noqa: PLR0913, PLR0917  columns of one table
    units: list[str],
    at: Ints,
    number: Floats,
    value: Floats,
    code: Ints,
    names: list[str],
    bars: list[str],
    record: Ints,
) -> tuple[Floats, list[str]]:
    """A bar's rate as time per step; bars that are about something else than training under a name of their own."""
    direct = np.array([_RATES.get(unit, np.nan) for unit in units])[at]
    inverse = np.array([unit in _INVERSE_RATES for unit in units])[at]
    with np.errstate(divide="ignore"):
        value = np.where(inverse, 1e9 / number, np.where(np.isfinite(direct), number * direct, value))
    other = np.array([not _TRAINING_BAR.match(_LAUNCHER.sub("", bar)) for bar in bars], bool)
    rate = inverse | np.isfinite(direct)
    names = [*names, "bar_step_time_ns", "other_progress_time_ns"]
    code[rate] = np.where(other[record[rate]], len(names) - 1, len(names) - 2)
    code[~rate & other[record]] = -1  # numbers beside a bar that is not about training
    return value, names
