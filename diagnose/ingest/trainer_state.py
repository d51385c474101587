"""`trainer_state.json` of transformers' Trainer as `series`: its `log_history` has the step that its printed rows lack.

Each row of `log_history` is a step with the numbers logged there, under the names of `diagnose.formulas.metrics` where
it knows them. Times per step are not in it: only the run's summary holds rates. Source: transformers TrainerState.
"""

from __future__ import annotations

import json
import re
from typing import Any

from diagnose.errors import InputError
from diagnose.formulas import metrics
from diagnose.ingest import Options, Source, quality
from diagnose.schema import INGESTED, Tables

_MAX_BYTES = 512 << 20
_KEYS = re.compile(rb'"(?:best_model_checkpoint|best_global_step|is_hyper_param_search|log_history)"\s*:')


def sniff(head: bytes, name: str) -> bool:
    """A JSON object with the keys that only TrainerState writes."""
    return head.lstrip()[:1] == b"{" and (bool(_KEYS.search(head)) or name == "trainer_state.json")


def read(source: Source, options: Options) -> Tables:
    """files, series, settings. InputError where it is cut, or logs nothing."""
    data = source.whole(_MAX_BYTES, "a trainer state of more than 512 MiB", "a smaller one")
    try:
        state = json.loads(data)
        history = state["log_history"]
        rows = [(int(row["step"]), key, value) for row in history for key, value in row.items() if _number(key, value)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            source.label, "a trainer state that does not parse", "log_history with steps", "save it again"
        ) from error
    if not rows:
        raise InputError(
            source.label, "a trainer state whose log_history is empty", "logged steps", "set logging_steps"
        )
    named = [(step, *(metrics.canonical(key) or (_plain(key), 1.0)), float(value)) for step, key, value in rows]
    files = {"file": [0], "path": [source.label], "kind": ["trainer_state"], "events_count": [len(named)]}
    settings = {key: str(state[key]) for key in ("max_steps", "num_train_epochs", "logging_steps") if key in state}
    if state.get("train_batch_size"):
        settings["train.micro_batch"] = str(state["train_batch_size"])
    series = {
        "step": [row[0] for row in named],
        "metric": [row[1] for row in named],
        "value": [row[2] * row[3] for row in named],
        "segment": [0] * len(named),
    }
    return {
        "files": INGESTED["files"].build(files | {"status": ["ok"], "detail": [""]}),
        "series": INGESTED["series"].build(series),
        "settings": INGESTED["settings"].build(
            {"key": list(settings), "value": list(settings.values()), "source": [source.label] * len(settings)}
        ),
        "quality": quality([]),
    }


def _number(key: str, value: Any) -> bool:
    return key != "step" and isinstance(value, (int, float)) and not isinstance(value, bool)


def _plain(key: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", key.lower()).strip("_")
