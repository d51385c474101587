"""Read -> derive -> judge -> summarise. Knows every layer; has no logic of its own."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from graphlib import TopologicalSorter
from typing import NamedTuple

import pyarrow as pa

from diagnose import analyses, schema
from diagnose.schema import Tables, TableSchema


class Analysis(NamedTuple):
    """One analysis: the function named like its table, the tables it cannot do without, and those it can."""

    name: str
    function: Callable[..., pa.Table]
    needs: tuple[str, ...]
    optional: tuple[str, ...]
    schema: TableSchema


def discover() -> dict[str, Analysis]:
    """Every public module of `diagnose.analyses`, by table name."""
    found = {}
    for module in pkgutil.iter_modules(analyses.__path__):
        if module.name.startswith("_"):
            continue
        loaded = importlib.import_module(f"diagnose.analyses.{module.name}")
        function = getattr(loaded, module.name)
        parameters = inspect.signature(function).parameters.values()
        found[module.name] = Analysis(
            module.name,
            function,
            tuple(p.name for p in parameters if p.default is inspect.Parameter.empty),
            tuple(p.name for p in parameters if p.default is not inspect.Parameter.empty),
            loaded.SCHEMA,
        )
    return found


def derive(tables: Tables) -> Tables:
    """`tables` plus every derived table whose inputs exist, computed in dependency order."""
    known = discover()
    order = TopologicalSorter({a.name: {*a.needs, *a.optional} for a in known.values()}).static_order()
    result = dict(tables)
    for analysis in (known[name] for name in order if name in known):
        if not all(need in result for need in analysis.needs):
            continue
        given = {name: result[name] for name in (*analysis.needs, *analysis.optional) if name in result}
        result[analysis.name] = analysis.function(**given)
        schema.check(analysis.name, result[analysis.name], analysis.schema)
    return result
