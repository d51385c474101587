"""One rank's events from a drawn timeline, one column a millisecond, and what the analyses make of them.

step      |1111222|      ProfilerStep#1, #2
launch    |ab.....|      a launch call per letter; device work with that letter is linked to it
7 compute |..aa...|      kernels of stream 7: compute, comm, copy or unknown
loader    |cc.....|      host events on the launching thread: loader, gc, alloc, sync, item
"""

from __future__ import annotations

import pyarrow as pa

from diagnose.analyses.calls_on_device import calls_on_device
from diagnose.analyses.clocks import clocks
from diagnose.analyses.collectives import collectives
from diagnose.analyses.groups import groups
from diagnose.analyses.idle import idle
from diagnose.analyses.kernels import kernels
from diagnose.analyses.matches import matches
from diagnose.analyses.step_time import step_time
from diagnose.analyses.steps import steps
from diagnose.analyses.window_time import window_time
from diagnose.schema import INGESTED
from tests.analyses import rows
from tests.timeline import COLUMN_NS, spans

MS = COLUMN_NS
DEVICE = {
    "compute": ("kernel", "ampere_sgemm_{}"),
    "comm": ("kernel", "ncclDevKernel_AllReduce_{}"),
    "copy": ("memcpy", "Memcpy HtoD {}"),
    "unknown": ("kernel", "mystery_{}"),
}
HOST = {
    "loader": ("annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
    "gc": ("python", "<built-in function collect>"),
    "alloc": ("runtime", "cudaMalloc"),
    "sync": ("runtime", "cudaStreamSynchronize"),
    "item": ("op", "aten::item"),
}


def events(text: str) -> pa.Table:
    """The drawing as an `events` table of rank 0."""
    drawn = spans(text)
    ids = {s.letter: number for number, s in enumerate(drawn, 1) if s.lane == "launch"}
    found = []
    for span in drawn:
        row = {"ts_ns": span.ts_ns, "dur_ns": span.dur_ns}
        stream, _, kind = span.lane.partition(" ")
        if span.lane == "step":
            row |= {"kind": "annotation", "name": f"ProfilerStep#{span.letter}"}
        elif span.lane == "launch":
            row |= {"kind": "runtime", "name": "cudaLaunchKernel", "launch_id": ids[span.letter]}
        elif span.lane in HOST:
            row |= dict(zip(("kind", "name"), HOST[span.lane], strict=True))
        else:
            sort, name = DEVICE[kind]
            row |= {"kind": sort, "name": name.format(span.letter), "device": 0, "stream": int(stream)}
            row |= {"launch_id": ids.get(span.letter), "process": None, "thread": None}
        found.append(row)
    return rows.events(found)


def analysed(found: pa.Table, **tables: pa.Table) -> dict[str, pa.Table]:
    """Every core table of the events; `tables` replace empty ones (calls, members, settings, files, ...)."""
    given = {name: tables.get(name, schema.empty()) for name, schema in INGESTED.items()}
    result = {"steps": steps(found, given["files"], given["quality"])}
    result["kernels"] = kernels(
        found,
        result["steps"],
        given["device_args"],
        given["op_args"],
        given["calls"],
        given["settings"],
        given["files"],
    )
    result["groups"] = groups(given["members"], given["calls"], given["settings"], given["files"])
    called = (result["kernels"], given["calls"], result["groups"], result["steps"], found, given["op_args"])
    result["calls_on_device"] = calls_on_device(*called)
    result["matches"] = matches(result["calls_on_device"], given["members"], given["files"])
    result["clocks"] = clocks(result["calls_on_device"], result["matches"])
    matched = (result["calls_on_device"], result["matches"], result["clocks"])
    result["collectives"] = collectives(*matched, result["kernels"], given["members"])
    result["idle"] = idle(result["kernels"], result["steps"], found)
    parts = (result["kernels"], result["idle"], result["collectives"])
    result["step_time"] = step_time(result["steps"], *parts)
    result["window_time"] = window_time(*parts)
    return result


def draw(text: str) -> dict[str, pa.Table]:
    """Every core table of a drawing."""
    return analysed(events(text))


def parts_ms(table: pa.Table, step: int | None = None) -> dict[str, float]:
    """Milliseconds per part, of one step where given."""
    found: dict[str, float] = {}
    for row in table.to_pylist():
        if step is None or row.get("step") == step:
            found[row["part"]] = found.get(row["part"], 0) + row["dur_ns"] / MS
    return found


def spans_ms(table: pa.Table) -> list[tuple[float, float]]:
    """(start, end) per row, ms."""
    return [(r["ts_ns"] / MS, (r["ts_ns"] + r["dur_ns"]) / MS) for r in table.to_pylist()]
