"""`diagnose`: where the step time and the memory of a distributed training job went, and why.

>>> import diagnose                                      # doctest: +SKIP
>>> found = diagnose.run("trace.json.gz")                # doctest: +SKIP
>>> found.findings[0].summary                            # doctest: +SKIP
>>> found.frame("step_time")                             # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["DiagnoseError", "Diagnosis", "Selection", "read", "run"]

_HOME = {
    "Diagnosis": "diagnose.findings",
    "DiagnoseError": "diagnose.errors",
    "Selection": "diagnose.selection",
    "read": "diagnose.pipeline",
    "run": "diagnose.pipeline",
}

if TYPE_CHECKING:
    from diagnose.errors import DiagnoseError
    from diagnose.findings import Diagnosis
    from diagnose.pipeline import read, run
    from diagnose.selection import Selection


def __getattr__(name: str) -> Any:
    """Public names load on first use, so that `diagnose --help` does not pay for Arrow and DuckDB."""
    if name not in _HOME:
        raise AttributeError(f"module 'diagnose' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
