"""Training logs as `series`: one row per rank, step and metric, in the units of `diagnose.formulas.metrics`.

A line printed twice counts once. Where the step goes back, or a line says that training resumed, a new `segment`
begins and both stay. Values are what the framework printed: Megatron's time is the mean over its log interval,
DeepSpeed's rate that of one step, torchtitan's memory the most reserved since the line before, a progress bar's rate
a moving average (kept as the step time only where nothing better is printed). Arguments printed at the start become
settings under the keys of job.toml. A record of transformers has no step of its own: it takes the bar's, else it is
counted, which `quality` says. Method: RE2 over whole columns (DuckDB), format by format; no loop over lines.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest import quality
from diagnose.ingest.text import _training_pairs as read
from diagnose.ingest.text import _training_rows as rows
from diagnose.ingest.text._lines import Lines
from diagnose.ingest.text._training_formats import (
    ARGUMENT,
    ARGUMENTS,
    COMPOSER_HEADER,
    FORMATS,
    RESUMED,
)
from diagnose.schema import INGESTED, Tables

MARK = "|".join(f"(?:{pattern})" for pattern in (*(f.mark for f in FORMATS), COMPOSER_HEADER, RESUMED, ARGUMENT))

Ints = npt.NDArray[np.int64]
BEST_FIRST = sorted((form.name for form in FORMATS), key=("megatron_memory", "deepspeed_memory", "progress").count)
"""Where two formats print one figure, the frameworks' own step line counts."""


class Reader:
    """Collects records of one document, block by block."""

    def __init__(self) -> None:
        self.found: dict[str, list[read.Pairs]] = {}
        self.resumed: list[npt.NDArray[np.int64]] = []
        self.settings: dict[str, str] = {}
        self.batch: int | None = None
        self.at: tuple[int, int] = (-1, -1)  # line and step of the last progress bar
        self.last = -1  # step of the last line that prints one

    def feed(self, lines: Lines) -> int:
        """Read matching lines; how many were records."""
        known = 0
        steps_above = [(np.array([-1]), np.array([self.last]))]
        bars: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] = (np.array([self.at[0]]), np.array([self.at[1]]))
        for form in FORMATS:
            likely = lines.holding(form.literal)
            if not len(likely):
                continue
            mine = likely.matching(form.mark)
            if not len(mine):
                continue
            steps = None
            if form.name == "composer":
                steps = self._batches(lines, mine)
            elif form.name == "dictionary":
                steps = bars[1][np.searchsorted(bars[0], mine.number, side="right") - 1]
            elif form.follows:
                steps = _above(steps_above, mine)
                mine, steps = mine.take(steps >= 0), steps[steps >= 0]
                if not len(mine):
                    continue
            pairs = read.pairs(form, mine, steps)
            if form.step and form.name != "progress":
                steps_above.append((pairs.line, pairs.step))
            self.found.setdefault(form.name, []).append(pairs)
            known += len(mine)
            if form.name == "progress":
                bars = (np.append(bars[0], pairs.line), np.append(bars[1], pairs.step))
                self.at = (int(bars[0][-1]), int(bars[1][-1]))
            if form.exclusive:
                lines = lines.take(~np.isin(lines.number, mine.number))
        self.last = int(_above(steps_above, None)[0])
        self.resumed.append(lines.matching(RESUMED).number)  # of what is left: step lines are neither
        return known + self._arguments(lines)

    def _arguments(self, lines: Lines) -> int:
        mine = lines.matching(ARGUMENT)
        for key, value in zip(*read.groups(mine.text, ARGUMENT, 2), strict=True):
            self.settings[ARGUMENTS[key]] = value
        return len(mine)

    def _batches(self, lines: Lines, mine: Lines) -> npt.NDArray[np.int64]:
        """Composer prints the batch on a line of its own, above its metrics."""
        headers = lines.matching(COMPOSER_HEADER)
        number = np.append(-1, headers.number)
        printed = [int(text) for text in read.groups(headers.text, COMPOSER_HEADER, 1)[0]]
        step = np.array([-1 if self.batch is None else self.batch, *printed], np.int64)
        self.batch = int(step[-1])
        return step[np.searchsorted(number, mine.number, side="right") - 1]

    def tables(self, path: str) -> Tables:
        """`series`, `settings` and what was doubtful."""
        resumed = np.sort(np.concatenate(self.resumed)) if self.resumed else np.zeros(0, np.int64)
        parts, notes, doubled = [], [], 0
        ends: list[pa.Table] = []
        for name, found in sorted(self.found.items(), key=lambda item: BEST_FIRST.index(item[0])):
            pairs, counted = rows.joined(found)
            kept, segment = rows.segments(pairs, resumed)
            doubled += len(pairs.step) - int(kept.sum())
            parts.append(rows.series(pairs, kept, segment))
            if not ends or not ends[0].num_rows:
                ends = [rows.step_ends(pairs, kept, segment)]
            if counted:
                notes.append(_note("step_counted", counted, f"{name} records print no step: they were counted"))
        if doubled:
            notes.append(_note("doubled_line", doubled, "step lines printed more than once; each step counted once"))
        result: Tables = {"quality": quality([{**note, "path": path} for note in notes])}
        if parts:
            result["series"] = rows.together(parts)
            result["step_ends"] = ends[0]
            self._batch_size(result["series"])
        given = list(self.settings.items())
        columns: dict[str, Any] = {"key": [k for k, _ in given], "value": [v for _, v in given]}
        result["settings"] = INGESTED["settings"].build(columns | {"source": [path] * len(given)})
        return result

    def _batch_size(self, series: pa.Table) -> None:
        """The batch size that step lines print is what ran; one that changes (a ramp) is no setting."""
        values = pc.unique(series.filter(pc.equal(series["metric"].cast(pa.string()), "global_batch_count"))["value"])
        if len(values) == 1 and values[0].as_py() is not None:
            self.settings["train.global_batch"] = f"{values[0].as_py():.0f}"
        elif len(values) > 1:
            self.settings.pop("train.global_batch", None)


def _above(steps_above: list[tuple[Ints, Ints]], lines: Lines | None) -> Ints:
    """The step printed last above each of the lines, or (None) at the end; -1 where none was."""
    line, step = (np.concatenate(columns) for columns in zip(*steps_above, strict=True))
    order = np.argsort(line, kind="stable")
    if lines is None:
        return step[order][-1:]
    return step[order][np.searchsorted(line[order], lines.number, side="right") - 1]


def _note(problem: str, count: int, detail: str) -> dict[str, Any]:
    return {"problem": problem, "count": count, "detail": detail}
