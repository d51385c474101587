"""Read -> derive -> judge -> summarise -> advise. Knows every layer; has no logic of its own."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from functools import partial
from graphlib import TopologicalSorter
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from diagnose import advice, analyses, assets, engine, ingest, processors, schema, selection, summary
from diagnose.findings import Diagnosis
from diagnose.schema import Tables, TableSchema
from diagnose.selection import Selection

Progress = Callable[[int, int], None]
"""Called with (bytes read so far, bytes in all), as they lie on disk."""

WORTH_A_PROCESS_BYTES = 4 << 20
"""Below this many bytes on disk, starting worker processes costs more than it saves (0.5 s each)."""
LEAST_MEAN_BYTES = 128 << 10
"""Files smaller than this on average are read faster than their tables travel between processes."""
MOST_ANALYSES = 4
"""At a time: each holds memory of its own."""
TOO_LARGE_FOR_TWO_BYTES = 1 << 30
"""Tables above this are analysed one by one: there may not be the memory for two."""


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


def derive(
    tables: Tables,
    selected: Selection = selection.EVERYTHING,
    wanted: Container[str] | None = None,
    workers: int | None = None,
) -> Tables:
    """`tables` plus derived tables whose inputs exist, each computed once what it rests on is there.

    `wanted`: names of the tables the caller will look at; only these and what they rest on are computed (None: all).
    `workers`: analyses at a time; default one per core, MOST_ANALYSES at most, and one where the tables are huge.
    """
    known = discover()
    order = _order(known, wanted)
    graph = TopologicalSorter({name: {*known[name].needs, *known[name].optional} & order.keys() for name in order})
    result = selection.of_ranks(selection.of_one_unit(selection.of_one_run(tables)), selected)
    derived: Tables = {}
    with ThreadPoolExecutor(workers or _analyses_at_a_time(result)) as pool:
        running: dict[Future[pa.Table], str] = {}
        graph.prepare()
        while graph.is_active():
            for name in graph.get_ready():
                if all(need in result or need in derived for need in known[name].needs):
                    running[pool.submit(_derive_one, known[name], result | derived, selected)] = name
                else:
                    graph.done(name)
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                name = running.pop(done)
                derived[name] = done.result()
                graph.done(name)
    return result | {name: derived[name] for name in order if name in derived}


def _order(known: dict[str, Analysis], wanted: Container[str] | None) -> dict[str, None]:
    """Names of the analyses to do, each behind those it rests on."""
    graph = {a.name: {*a.needs, *a.optional} for a in known.values()}
    order = [name for name in TopologicalSorter(graph).static_order() if name in known]
    if wanted is not None:
        used = {name for name in order if name in wanted}
        for name in reversed(order):
            used |= graph[name] if name in used else set()
        order = [name for name in order if name in used]
    return dict.fromkeys(order)


def _analyses_at_a_time(tables: Tables) -> int:
    size = sum(table.nbytes for table in tables.values())
    return 1 if size > TOO_LARGE_FOR_TWO_BYTES else min(MOST_ANALYSES, processors.usable())


def _derive_one(analysis: Analysis, tables: Tables, selected: Selection) -> pa.Table:
    given = {name: tables[name] for name in (*analysis.needs, *analysis.optional) if name in tables}
    derived = analysis.function(**given)
    schema.check(analysis.name, derived, analysis.schema)
    return selection.of_steps(analysis.name, derived, selected)


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
    tables = derive(read([str(p) for p in given], workers, progress, selected.ranks), selected, workers=workers)
    outcomes = engine.evaluate(checked, tables, overrides or {})
    symptoms, questions = engine.symptoms(outcomes, tables), engine.questions(outcomes, tables)
    return advice.with_plan(summary.summarise(tables, outcomes, engine.ranked(outcomes), symptoms, questions))
