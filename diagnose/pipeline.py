"""Read -> derive -> judge -> summarise -> advise. Knows every layer; has no logic of its own."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from graphlib import TopologicalSorter
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from diagnose import advice, analyses, assets, engine, ingest, schema, selection, summary
from diagnose.findings import Diagnosis
from diagnose.schema import Tables, TableSchema
from diagnose.selection import Selection

Progress = Callable[[int, int], None]
"""Called with (bytes read so far, bytes in all), as they lie on disk."""

WORTH_A_PROCESS_BYTES = 4 << 20
"""Below this many bytes on disk, starting worker processes costs more than it saves (0.5 s each)."""
LEAST_MEAN_BYTES = 128 << 10
"""Files smaller than this on average are read faster than their tables travel between processes."""


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


def read(
    paths: Sequence[str],
    workers: int | None = None,
    progress: Progress | None = None,
    ranks: frozenset[int] | None = None,
) -> Tables:
    """Ingested tables of all `paths` (files, folders, globs, archives, s3:// and gs:// addresses).

    A file that cannot be used is a row of `files` and `quality`, not an error.
    `workers`: processes for several large files; default one per core.
    `ranks`: files of other ranks keep only their row in `files`; None: all.
    """
    options = ingest.Options(ranks)
    sources, problems = ingest.expand(list(paths))
    total = sum(s.size_bytes for s in sources)
    if len(sources) > 1 and workers != 1 and total >= max(WORTH_A_PROCESS_BYTES, len(sources) * LEAST_MEAN_BYTES):
        parts = _read_in_processes(sources, options, workers, total, progress)
    else:
        parts = [_read_one(s, options, total, progress, done) for s, done in _with_offsets(sources)]
    return ingest.merge([*parts, *map(ingest.of_problem, problems)])


def _with_offsets(sources: Iterable[ingest.Source]) -> Iterable[tuple[ingest.Source, int]]:
    done = 0
    for source in sources:
        yield source, done
        done += source.size_bytes


def _read_one(
    source: ingest.Source, options: ingest.Options, total: int, progress: Progress | None, done: int
) -> Tables:
    if progress is not None:
        seen = done

        def consumed(count: int) -> None:
            nonlocal seen
            seen += count
            progress(min(seen, total), total)

        source.progress = consumed
    return ingest.read(source, options)


def _read_in_processes(
    sources: list[ingest.Source], options: ingest.Options, workers: int | None, total: int, progress: Progress | None
) -> list[Tables]:
    parts, done = [], 0
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for source, part in zip(sources, pool.map(partial(ingest.read, options=options), sources), strict=True):
            parts.append(part)
            done += source.size_bytes
            if progress is not None:
                progress(done, total)
    return parts


def derive(tables: Tables, selected: Selection = selection.EVERYTHING, wanted: Container[str] | None = None) -> Tables:
    """`tables` plus derived tables whose inputs exist, computed in dependency order.

    `wanted`: names of the tables the caller will look at; only these and what they rest on are computed (None: all).
    """
    known = discover()
    graph = {a.name: {*a.needs, *a.optional} for a in known.values()}
    order = [name for name in TopologicalSorter(graph).static_order() if name in known]
    if wanted is not None:
        used = {name for name in order if name in wanted}
        for name in reversed(order):
            used |= graph[name] if name in used else set()
        order = [name for name in order if name in used]
    result = selection.of_ranks(selection.of_one_unit(selection.of_one_run(tables)), selected)
    for analysis in (known[name] for name in order):
        if not all(need in result for need in analysis.needs):
            continue
        given = {name: result[name] for name in (*analysis.needs, *analysis.optional) if name in result}
        derived = analysis.function(**given)
        schema.check(analysis.name, derived, analysis.schema)
        result[analysis.name] = selection.of_steps(analysis.name, derived, selected)
    return result


def rules(folders: Sequence[str | Path] = ()) -> list[engine.Rule]:
    """The rules that ship with `diagnose`, and those of the user's `folders`."""
    return engine.load_rules([assets.folder("rules"), *map(Path, folders)])


def empty_tables() -> Tables:
    """Every table that can exist, without rows: what rules are bound against."""
    ingested = {name: table.empty() for name, table in schema.INGESTED.items()}
    return ingested | {analysis.name: analysis.schema.empty() for analysis in discover().values()}


def run(
    paths: Sequence[str | Path] | str | Path,
    job: str | Path | None = None,
    *,
    selected: Selection = selection.EVERYTHING,
    rule_folders: Sequence[str | Path] = (),
    overrides: dict[str, str] | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Diagnose the inputs at `paths` (one path or several); `job` is a job.toml with facts they do not carry.

    `selected`: ranks and steps to look at (`diagnose.Selection`). `rule_folders`: rules of your own.
    `overrides`: {"rule.param": value}. `progress`: called with (bytes read, bytes in all).
    Raises UsageError for a path that does not exist or an override that names nothing, RuleError for a bad rule.
    """
    given = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if job is not None:
        given.append(job)
    checked = rules(rule_folders)
    tables = derive(read([str(p) for p in given], workers, progress, selected.ranks), selected)
    outcomes = engine.evaluate(checked, tables, overrides or {})
    symptoms, questions = engine.symptoms(outcomes, tables), engine.questions(outcomes, tables)
    return advice.with_plan(summary.summarise(tables, outcomes, engine.ranked(outcomes), symptoms, questions))
