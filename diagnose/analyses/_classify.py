"""What a piece of device work is: compute, communication, copy, or unclassified; and of which kind.

Communication is recognised by metadata first (the profiler copies the collective's record onto its kernels), then by
names of the libraries that bypass it. Compute needs positive evidence too: a known name, or a launch by an operator
that is known to compute. The rest is unclassified, never silently compute.
Users add patterns with the settings keys `classify.comm` and `classify.compute` (a regular expression a row, looked
for anywhere in the kernel's name); they win over names, not over metadata.

Method: every decision is per distinct name and cached, so a column costs one look-up by code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from diagnose.analyses._kernel_names import (
    COMMUNICATION,
    COMMUNICATION_OPERATORS,
    COMPUTE,
    COMPUTE_LIBRARIES,
    COMPUTE_OPERATORS,
    COPIES,
    FUSED,
    OPERATIONS,
)

CLASSES = ("compute", "comm", "copy", "unclassified")


class Label(NamedTuple):
    """Class and category of a name."""

    kind: str
    category: str


UNCLASSIFIED = Label("unclassified", "unclassified")
_COMMUNICATION = [(re.compile(p), library) for p, library in COMMUNICATION]
_COMPUTE = [(re.compile(p), category) for p, category in COMPUTE]
_LIBRARY = re.compile(COMPUTE_LIBRARIES)
_COPIES = [(re.compile(p), category) for p, category in COPIES]
_OPERATIONS = [(re.compile(p), op) for p, op in OPERATIONS]
_FUSED = re.compile(FUSED)
_RUNTIME_COPY = re.compile(
    r"^(?:cuda|hip|cu)Mem(?:cpy|set)|^Mem(?:cpy|set) |^__amd_rocclr_(?:copy|fill)Buffer|^Copy(?:Host|Device)"
)


class UserPatterns(NamedTuple):
    """Patterns of the user's, by class."""

    comm: tuple[re.Pattern[str], ...] = ()
    compute: tuple[re.Pattern[str], ...] = ()


def user_patterns(settings: pa.Table | None) -> UserPatterns:
    """Patterns in `settings`; one that is not a valid expression is taken as literal text."""
    if settings is None or not settings.num_rows:
        return UserPatterns()
    rows = list(zip(settings["key"].to_pylist(), settings["value"].to_pylist(), strict=True))

    def of(key: str) -> tuple[re.Pattern[str], ...]:
        return tuple(_pattern(value) for k, value in rows if k and value and k.lower() == key)

    return UserPatterns(of("classify.comm"), of("classify.compute"))


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error:
        return re.compile(re.escape(text))


@lru_cache(maxsize=65536)
def function_name(name: str) -> str:
    """The function a kernel name states: no return type, template arguments or parameters; namespaces kept."""
    text = re.sub(r"\(anonymous namespace\)::|\(anonymous namespace\)", "", name)
    text = re.sub(r"^(?:void|std::enable_if<[^>]*>::type) ", "", text)
    return re.split(r"[<(]", text, maxsplit=1)[0].strip()


@lru_cache(maxsize=65536)
def is_comm_name(name: str) -> bool:
    """Whether a kernel name alone says communication."""
    function = function_name(name)
    if _RUNTIME_COPY.search(name):
        return False
    for pattern, library in _COMMUNICATION:
        if pattern.search(function):
            return library not in ("named_collective", "fused_all_reduce") or not _FUSED.search(function)
    return False


@lru_cache(maxsize=65536)
def operation_of_name(name: str) -> str:
    """Operation a communication kernel's name states; `collective` where it states none (`Generic`)."""
    function = function_name(name)
    stated = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", function).lower()
    for text in (stated, stated.replace("_", "")):
        for pattern, operation in _OPERATIONS:
            if pattern.search(text):
                return operation
    return "collective"


@lru_cache(maxsize=65536)
def compute_category(name: str) -> str | None:
    """Category of a name known to compute, else None."""
    stated = name.replace("(anonymous namespace)", "").split("(", 1)[0]
    found = next((category for pattern, category in _COMPUTE if pattern.search(stated)), None)
    return found or ("other" if _LIBRARY.search(function_name(name)) else None)


def copy_category(name: str, is_set: bool) -> str:
    """memset, memcpy_h2d, memcpy_d2h, memcpy_d2d, memcpy_p2p, or memcpy."""
    if is_set:
        return "memset"
    return next((category for pattern, category in _COPIES if pattern.search(name)), "memcpy")


def label_of_name(name: str, patterns: UserPatterns = UserPatterns()) -> Label:  # noqa: B008  (immutable)
    """Class and category of a kernel from its name alone."""
    if any(p.search(name) for p in patterns.comm):
        return Label("comm", operation_of_name(name))
    if any(p.search(name) for p in patterns.compute):
        return Label("compute", compute_category(name) or "other")
    if is_comm_name(name):
        return Label("comm", operation_of_name(name))
    if _RUNTIME_COPY.search(name):
        return Label("copy", copy_category(name, bool(re.search(r"(?i)memset|fill", name))))
    category = compute_category(name)
    return Label("compute", category) if category else UNCLASSIFIED


_COMPUTE_OPERATOR = re.compile(COMPUTE_OPERATORS)
_COMM_OPERATOR = re.compile(COMMUNICATION_OPERATORS)
_OPERATOR_SUFFIX = re.compile(r"_\d+$")


@lru_cache(maxsize=65536)
def is_comm_operator(operator: str) -> bool:
    """Operators of communication libraries."""
    return bool(_COMM_OPERATOR.search(operator))


def computes(kernel: str, operators: Iterable[str]) -> bool:
    """Whether a kernel of unknown name computes, from the operators that launched it (innermost of each launch).

    An operator named after its kernel is how compiled graphs announce the Triton kernels they launch.
    """
    for operator in operators:
        if is_comm_operator(operator) or is_comm_name(operator):
            continue
        if _COMPUTE_OPERATOR.search(operator) or _OPERATOR_SUFFIX.sub("", operator) == kernel:
            return True
    return False
