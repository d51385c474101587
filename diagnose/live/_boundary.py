"""The wall between the hook and the training script: nothing of ours may raise through it.

This is the one place that catches everything. What is caught is counted and the last few texts are kept; after
`MOST_ERRORS` the hook is off for good.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

MOST_ERRORS = 20
P = ParamSpec("P")
R = TypeVar("R")


class Errors:
    """Errors of the hook in this process."""

    def __init__(self) -> None:
        self.count = 0
        self.texts: list[str] = []

    @property
    def too_many(self) -> bool:
        """Whether the hook should stay off."""
        return self.count > MOST_ERRORS

    def add(self, where: str, error: BaseException) -> None:
        """Count one, keep its text while there are few."""
        self.count += 1
        if self.count == MOST_ERRORS + 1:
            print(f"diagnose: the hook is off after {MOST_ERRORS} errors, the first: {self.texts[0]}", file=sys.stderr)
        if len(self.texts) < MOST_ERRORS:
            self.texts.append(f"{where}: {type(error).__name__}: {error}"[:300])


errors = Errors()


def shielded(function: Callable[P, R]) -> Callable[P, R | None]:
    """`function` that returns None instead of raising."""

    @functools.wraps(function)
    def safe(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  the trainer must never see an error of ours
            errors.add(function.__qualname__, error)
            return None

    return safe
