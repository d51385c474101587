"""Damage of every public kind, put at random places of a simulated trace: what is whole must survive, the rest is told.

The public cases (tests/cases/A*) are small; here the same kinds of fault hit a file of some hundred events in several
places and spellings, so that a repair which fits one file does not pass.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.simulate import SCENARIOS, kineto, simulate
from tests import ask

SEEDS = pytest.mark.parametrize("seed", range(4))


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """A trace as the writer's lines: one event a line between head and tail."""
    job = SCENARIOS["launch-bound"]
    job = replace(job, model=replace(job.model, layers=2), schedule=replace(job.schedule, steps=2))
    (record, *_) = simulate(job)
    return kineto.trace(job, record).splitlines(keepends=True)


def is_event(line: str) -> bool:
    return line.startswith('  {"ph": "X"') or '"ph": "i"' in line


def names(lines: list[str]) -> Counter[str]:
    """Names of the timed events on these whole lines."""
    return Counter(json.loads(line.strip().rstrip(","))["name"] for line in lines if is_event(line))


def read(text: str | bytes, folder: Path, name: str = "rank0.json") -> Any:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return ask.run(folder / name)


def chosen(lines: list[str], seed: int, count: int = 5, holding: str = '"cat"') -> list[int]:
    """Places of some events."""
    return random.Random(seed).sample([i for i, line in enumerate(lines) if is_event(line) and holding in line], count)


def renamed(line: str, name: str) -> str:
    """The event with other bytes between the quotes of its name, as a writer that does not escape leaves them."""
    return re.sub(r'"name": "[^"]*"', lambda _: f'"name": "{name}"', line, count=1)


@SEEDS
@pytest.mark.parametrize("word", ["inf", "nan", "-inf", "-nan", "NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_none(word: str, seed: int, lines: list[str], tmp_path: Path) -> None:
    damaged = list(lines)
    for place in chosen(lines, seed, holding="occupancy"):
        damaged[place] = re.sub(r'(occupancy %": )\d+', rf"\g<1>{word}", damaged[place])
    diagnosis = read("".join(damaged), tmp_path)
    assert Counter(ask.event_names(diagnosis)) == names(lines)
    assert ask.problems(diagnosis)["non_finite_number"] == 5


@SEEDS
@pytest.mark.parametrize(
    "name",
    [
        'x = Library("a", "IMPL")',
        'f"{a}": b, "ts": 1',
        'say "hi',
        '"',
        'print("a}, {b")',
        'd["k"]\n(3): f',
        'a", "b": ["c',
    ],
)
def test_quotes_inside_names(name: str, seed: int, lines: list[str], tmp_path: Path) -> None:
    damaged, places = list(lines), chosen(lines, seed, 3)
    for place in places:
        damaged[place] = renamed(damaged[place], name)
    diagnosis = read("".join(damaged), tmp_path)
    whole = names([line for i, line in enumerate(lines) if i not in places])
    assert whole - Counter(ask.event_names(diagnosis)) == Counter(), "no whole event is lost"
    problems = ask.problems(diagnosis)
    lost = whole.total() + 3 - ask.events_count(diagnosis)
    assert 0 <= lost <= 3
    assert problems["damaged_event"] >= lost
    assert problems["damaged_event"] + problems["repaired_event"] >= 1


@SEEDS
def test_backslashes(seed: int, lines: list[str], tmp_path: Path) -> None:
    damaged = list(lines)
    for place in chosen(lines, seed):
        damaged[place] = renamed(damaged[place], r"C:\new\cuda\train.py(7): main")
    diagnosis = read("".join(damaged), tmp_path)
    assert ask.events_count(diagnosis) == names(lines).total()
    assert ask.problems(diagnosis)["invalid_escape"] >= 1
    assert all(name.isprintable() for name in ask.event_names(diagnosis))
    assert sum("train.py(7): main" in name for name in ask.event_names(diagnosis)) == 5


@pytest.mark.parametrize("share", [0.3, 0.55, 0.551, 0.552, 0.8, 0.97, 0.999])
@pytest.mark.parametrize("compress", [False, True])
def test_cut(share: float, compress: bool, lines: list[str], tmp_path: Path) -> None:
    text = "".join(lines).encode()
    kept = text[: int(share * len(text))].decode(errors="ignore")
    packed = gzip.compress(text)
    whole = [line for line in kept.splitlines(keepends=True) if line.endswith(("},\n", "}\n"))]
    if compress:
        diagnosis = read(packed[: int(share * len(packed))], tmp_path, "rank0.json.gz")
        assert 0 < ask.events_count(diagnosis) <= names(lines).total()
    else:
        diagnosis = read(kept, tmp_path)
        expected = names([line for line in whole if is_event(line)])
        assert expected - Counter(ask.event_names(diagnosis)) == Counter()
        assert ask.events_count(diagnosis) - expected.total() <= 1, "at most the one that ends at the cut"
    assert {"truncated", "damaged_compression"} & set(ask.problems(diagnosis))
    assert diagnosis.inputs[0]["status"] == "partial"


@SEEDS
def test_bytes_that_are_not_text(seed: int, lines: list[str], tmp_path: Path) -> None:
    damaged = [line.encode() for line in lines]
    for place in chosen(lines, seed):
        damaged[place] = renamed(lines[place], "модель \udc80\udcff\udcfe fn").encode("utf-8", "surrogateescape")
    diagnosis = read(b"".join(damaged), tmp_path)
    assert ask.events_count(diagnosis) == names(lines).total()
    assert sum(name.startswith("модель") for name in ask.event_names(diagnosis)) == 5
    assert ask.problems(diagnosis)["invalid_utf8"] >= 1


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_other_encodings(encoding: str, lines: list[str], tmp_path: Path) -> None:
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(encoding, b"")
    diagnosis = read(mark + "".join(lines).encode(encoding), tmp_path)
    assert Counter(ask.event_names(diagnosis)) == names(lines)


def test_trailing_commas_everywhere(lines: list[str], tmp_path: Path) -> None:
    text = re.sub(r'(Ev Idx": \d+)\}', r"\1,}", "".join(lines)).replace("\n  ],", ",\n  ],")
    diagnosis = read(text.rstrip().removesuffix("}") + ",}", tmp_path)
    assert Counter(ask.event_names(diagnosis)) == names(lines)


def test_the_same_key_twice(lines: list[str], tmp_path: Path) -> None:
    text = "".join(lines).replace('"context": 1', '"context": 1, "stream": 7, "context": 1')
    diagnosis = read(text, tmp_path)
    assert Counter(ask.event_names(diagnosis)) == names(lines)


def test_a_bare_list_of_events(lines: list[str], tmp_path: Path) -> None:
    events = "".join(line for line in lines if line.startswith("  {")).rstrip().rstrip(",")
    diagnosis = read(f"[{events}]", tmp_path)
    assert Counter(ask.event_names(diagnosis)) == names(lines)
