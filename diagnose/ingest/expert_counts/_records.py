"""Router records -> rows of `router_calls` and `router`.

Counts are read from lists, objects by expert, lists of lists or objects by layer, the text of a printed list, object
or tensor, one column per expert, or one row per expert. Percentages become counts where the total stands beside them.
A record whose counts are no whole numbers from 0 is refused with its reason, not guessed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from diagnose.ingest.expert_counts import _names as names
from diagnose.ingest.expert_counts import _values as values
from diagnose.ingest.expert_counts._values import Floats, Ints, RefusedError
from diagnose.ingest.series import STEP_NAMES
from diagnose.schema import INGESTED, Tables

_NONE = ("none", "null", "nan", "")


class Layout:
    """What the keys of a record mean; found once per set of keys."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        listed = [k for k in keys if names.counts(k) is not None]
        rest = [k for k in keys if k not in listed]
        self.is_long = names.is_long(rest) and not any(
            (m := names.counts(k)) is not None and m.expert is None for k in listed if names.single(k) is None
        )
        self.counts = [] if self.is_long else [(k, m) for k in listed if (m := names.counts(k)) is not None]
        given = list(keys) if self.is_long else rest
        plain = {names.plain(k): k for k in reversed(given)}
        self.step = next((plain[n] for n in STEP_NAMES if n in plain), None)
        self.facts = {wanted: names.fact(wanted, given) for wanted in names.FACTS}
        self.single = [(k, kind) for k in rest if self.is_long and (kind := names.single(k)) is not None]
        if self.is_long and self.facts["tokens_entered"] in dict(self.single):
            self.facts["tokens_entered"] = None


class Rows:
    """Collects router calls of one document."""

    def __init__(self) -> None:
        self.layouts: dict[tuple[str, ...], Layout] = {}
        self.calls: list[dict[str, Any]] = []
        self.parts: list[tuple[int, Ints, str, Floats]] = []
        self.refused: dict[str, int] = {}
        self.refused_line: int | None = None
        self.unreadable_count = 0
        self._long: dict[tuple[Any, ...], int] = {}

    def add(self, line: int, record: dict[str, Any] | None) -> None:
        """One record, or None where the line holds none."""
        if record is None:
            self.unreadable_count += 1
            return
        for one in _unnested(record):
            keys = tuple(one)
            layout = self.layouts.get(keys)
            if layout is None:
                layout = self.layouts[keys] = Layout(keys)
            try:
                if layout.is_long:
                    self._one_expert(line, one, layout)
                else:
                    self._one_call(line, one, layout)
            except RefusedError as error:
                self.refuse(line, str(error))

    def refuse(self, line: int, reason: str) -> None:
        """Count a record that was not taken."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
        self.refused_line = line if self.refused_line is None else self.refused_line

    def _one_call(self, line: int, record: dict[str, Any], layout: Layout) -> None:
        numbered: dict[tuple[str, int | None, bool], dict[int, Any]] = {}
        found: dict[int | None, list[tuple[str, Ints, Floats, bool]]] = {}
        facts = _facts(record, layout)
        for key, meaning in layout.counts:
            value = record[key]
            if value is None or (isinstance(value, str) and value.strip().lower() == ""):
                continue
            if meaning.expert is not None:
                numbered.setdefault((meaning.kind, meaning.layer, meaning.of_all), {})[meaning.expert] = value
                continue
            first = values.first_expert(names.plain(key), value, facts)
            for inner, experts, numbers in values.lists(value):
                layer = meaning.layer if inner is None else inner
                counts = values.counts(meaning.kind, numbers, facts)
                found.setdefault(layer, []).append((_kind(meaning.kind), experts + first, counts, meaning.of_all))
        for (kind, layer, of_all), by_expert in numbered.items():
            experts = np.array(sorted(by_expert), np.int64)
            numbers = np.array([values.number(by_expert[e]) for e in experts.tolist()], np.float64)
            found.setdefault(layer, []).append((_kind(kind), experts, values.counts(kind, numbers, facts), of_all))
        for layer, lists in found.items():
            self._append(line, {**facts, "layer": facts["layer"] if layer is None else layer}, lists)

    def _append(self, line: int, facts: dict[str, Any], lists: list[tuple[str, Ints, Floats, bool]]) -> None:
        scope = "all" if any(of_all for *_, of_all in lists) else None
        number = len(self.calls)
        self.calls.append({**facts, "record": number, "line": line, "scope": scope})
        self.parts += [(number, experts, kind, counts) for kind, experts, counts, _ in lists]

    def _one_expert(self, line: int, record: dict[str, Any], layout: Layout) -> None:
        facts = _facts(record, layout)
        expert = values.whole(record[layout.facts["expert"] or ""])
        if expert is None:
            raise RefusedError("a row without the number of its expert")
        key = (facts["rank"], facts["step"], facts["layer"], facts["phase"])
        number = self._long.setdefault(key, len(self.calls))
        if number == len(self.calls):
            self.calls.append({**facts, "record": number, "line": line, "scope": None})
        for name, kind in layout.single:
            if record[name] is not None:
                counts = values.counts(kind, np.array([values.number(record[name])]), facts, partial=True)
                self.parts.append((number, np.array([expert], np.int64), _kind(kind), counts))

    @property
    def other_keys(self) -> list[str]:
        """Keys of records that say nothing about routing."""
        seen = {key: None for keys in self.layouts for key in keys}
        return [key for key in seen if not names.is_about_routing(key) and names.plain(key) not in STEP_NAMES]

    def tables(self) -> Tables:
        """`router_calls` and `router`."""
        calls, router = INGESTED["router_calls"], INGESTED["router"]
        built = calls.of_rows(self.calls)
        if not self.parts:
            return {"router_calls": built, "router": router.empty()}
        record = np.concatenate([np.full(len(e), number, np.int64) for number, e, _, _ in self.parts])
        kinds = np.concatenate([np.full(len(e), names.KINDS.index(kind)) for _, e, kind, _ in self.parts])
        expert = np.concatenate([e for _, e, _, _ in self.parts])
        value = np.concatenate([v for *_, v in self.parts])
        width = int(expert.max()) + 1
        key, at = np.unique(record * width + expert, return_inverse=True)
        columns: dict[str, Any] = {"record": key // width, "expert": (key % width).astype(np.int32)}
        for number, kind in enumerate(names.KINDS):
            mine = kinds == number
            told = np.full(len(key), -1, np.int64)
            told[at[mine]] = np.rint(value[mine]).astype(np.int64)
            columns[kind] = np.ma.array(told, mask=told < 0)
        ranks = np.array([-1 if call["rank"] is None else call["rank"] for call in self.calls], np.int32)[key // width]
        columns["rank"] = np.ma.array(ranks, mask=ranks < 0)
        return {"router_calls": built, "router": router.build(columns)}


def _kind(kind: str) -> str:
    return names.TOKENS if kind == names.PERCENT else kind


def _unnested(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The record itself, or one per layer where they lie nested under one key."""
    for key, inner in record.items():
        if key.lower() not in names.NESTS:
            continue
        beside = {k: v for k, v in record.items() if k != key}
        if isinstance(inner, list) and inner and all(isinstance(i, dict) for i in inner):
            return [
                {**beside, **({} if names.fact("layer", list(i)) else {"layer": n}), **i} for n, i in enumerate(inner)
            ]
        if isinstance(inner, dict) and inner and all(isinstance(i, dict) for i in inner.values()):
            return [{**beside, "layer": name, **i} for name, i in inner.items()]
        if isinstance(inner, dict) and any(names.counts(k) for k in inner):
            return [{**beside, **inner}]
    return [record]


def _facts(record: dict[str, Any], layout: Layout) -> dict[str, Any]:
    def of(wanted: str) -> Any:
        key = layout.facts[wanted]
        return None if key is None else record[key]

    factor, phase = of("capacity_factor"), of("phase")
    said = layout.facts["capacity_factor"] is not None and (factor is None or str(factor).strip().lower() in _NONE[:3])
    number = values.maybe(factor)
    none = said or (number is not None and number <= 0)  # tutel: 0 is as much as is needed, negative the same, bounded
    return {
        "step": values.whole(record[layout.step]) if layout.step else None,
        "rank": values.whole(of("rank")),
        "ep_rank": values.whole(of("ep_rank")),
        "layer": values.layer(of("layer")),
        "phase": None if phase is None else _phase(str(phase)),
        "tokens_entered_count": values.whole(of("tokens_entered")),
        "topk": values.whole(of("topk")),
        "experts_count": values.whole(of("experts")),
        "ep_size": values.whole(of("ep_size")),
        "capacity_factor": None if none else number,
        "dropless": True if none else None,
        "capacity_count": values.whole(of("capacity")),
        "dropped_count": values.whole(of("dropped")),
    }


def _phase(text: str) -> str:
    word = text.strip().lower()
    return {"fwd": "forward", "train": "forward", "valid": "eval", "validation": "eval", "test": "eval"}.get(word, word)
