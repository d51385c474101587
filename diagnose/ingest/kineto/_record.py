"""The columns of one document, collected block by block and shape by shape as Arrow arrays."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.ingest.kineto._arguments import (
    DEVICE_ARGS,
    MEMORY_ARGS,
    OP_ARGS,
    RUNTIME_ARGS,
    finite,
    plain,
    product,
    tally,
)
from diagnose.ingest.kineto._calls import calls_of
from diagnose.ingest.kineto._faults import Faults
from diagnose.ingest.kineto._parse import COLLECTIVE, Parser, Slices
from diagnose.ingest.kineto._sort import DEVICE_KINDS, KIND, MEMORY_NAMES, Codes
from diagnose.ingest.kineto._values import (
    Int64s,
    Mask,
    Rows,
    integers,
    nanoseconds,
    thin,
    valid,
    whole,
)

Columns = dict[str, pa.Array]

LAUNCHES = (
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaLaunchCooperativeKernel",
    "cudaGraphLaunch",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuGraphLaunch",
    "hipLaunchKernel",
    "hipModuleLaunchKernel",
    "hipExtModuleLaunchKernel",
    "hipExtLaunchKernel",
    "hipLaunchCooperativeKernel",
    "hipGraphLaunch",
)
_ABSOLUTE_NS = 10**18  # 2001 in nanoseconds: earlier times are relative to a base
_DEVICE = np.array(sorted(KIND[k] for k in DEVICE_KINDS))
_WORK = np.array([KIND[k] for k in ("kernel", "memcpy", "memset", "comm")])
_MARKS = np.array([KIND["instant"], KIND["counter"]])


class Record:
    """What was read of one document so far. `parts` holds, per table, one dict of columns per block and shape."""

    def __init__(self, parser: Parser, rows: Rows, faults: Faults, first_event: int) -> None:
        self._parser, self._rows, self._faults = parser, rows, faults
        self.parts: dict[str, list[Columns]] = defaultdict(list)
        self.threads: dict[tuple[int, int], str] = {}
        self.count = first_event
        self.first_event = first_event
        self.devices: Counter[int] = Counter()  # kernels by device
        self.op_processes: Counter[int] = Counter()
        self.launches = 0
        self.works = 0
        self.linked = self.equal = 0  # device events with both ids, and those whose ids are the same
        self.relative = self.absolute = self.large = 0
        self.fractions = self.small_fractions = 0  # times between microseconds, and those under 100 ns behind one

    def add(self, shape: str, found: pa.StructArray, slices: Slices, kinds: Codes, places: Int64s) -> None:
        """Take the parsed slices of one shape, which stand at `places` of the file; all of them parsed."""
        if shape == "meta":
            self._add_threads(found)
            return
        start, dur, keep = self._times(shape, found, slices, kinds, places)
        if not keep.all():
            rows = np.flatnonzero(keep)
            found, slices, kinds = found.take(pa.array(rows)), slices.take(rows), kinds[rows]
            start, dur = start[rows], dur[rows]
        if len(slices):
            self._add_events(shape, found, slices, kinds, (start, dur))

    def _times(
        self, shape: str, found: pa.StructArray, slices: Slices, kinds: Codes, places: Int64s
    ) -> tuple[Int64s, Int64s, Mask]:
        start, dur = nanoseconds(pc.struct_field(found, "ts")), nanoseconds(pc.struct_field(found, "dur"))
        lengths = dur.ns.copy()
        lengths[start.large & ~dur.large] //= 1000
        keep = start.known & self._has_length(slices, kinds, dur.known)
        if shape == "memory":
            lengths[:] = 0  # the Python exporter gives them a duration that means nothing
        lengths[np.isin(kinds, _MARKS)] = 0
        for problem, rows in (
            ("unparsed_value", np.flatnonzero(~keep)),
            ("negative_duration", np.flatnonzero(keep & (lengths < 0))),
        ):
            if len(rows):
                detail = "events without a usable ts or dur, left out" if problem == "unparsed_value" else ""
                self._faults.add(problem, len(rows), int(places[rows].min()), detail)
        keep &= lengths >= 0
        self.large += int((start.large & keep).sum())
        return start.ns, lengths, keep

    def _has_length(self, slices: Slices, kinds: Codes, known: Mask) -> Mask:
        """False where there is a duration that is no number; a missing one is zero."""
        has = known | np.isin(kinds, _MARKS)
        rows = np.flatnonzero(~has)
        has[rows] = True
        if len(rows):
            texts = pc.struct_field(self._parser.parse(slices.take(rows), {"dur": "VARCHAR"}), "dur")
            has[rows] = ~valid(texts)
        return has

    def _add_events(
        self, shape: str, found: pa.StructArray, slices: Slices, kinds: Codes, times: tuple[Int64s, Int64s]
    ) -> None:
        count = len(slices)
        start, dur = times
        ids = np.arange(self.count, self.count + count)
        self.count += count
        name = pc.struct_field(found, "name").dictionary_encode()
        args = pc.struct_field(found, "args") if shape in ("op", "runtime", "device", "memory") else None
        absolute = int((start >= _ABSOLUTE_NS).sum())
        self.absolute, self.relative = self.absolute + absolute, self.relative + count - absolute
        fraction = start % 1000
        self.fractions += int(np.count_nonzero(fraction))
        self.small_fractions += int(np.count_nonzero((fraction > 0) & (fraction < 100)))
        columns: Columns = {
            "event_id": pa.array(ids),
            "kind": pa.array(kinds),
            "name": name,
            "ts_ns": pa.array(start),
            "dur_ns": pa.array(dur),
        }
        if shape == "device":
            assert args is not None
            columns |= self._device_places(found, args, slices)
        else:
            columns |= self._host_places(found, slices)
        columns |= self._links(shape, args)
        self.parts["events"].append(columns)
        self._count(kinds, columns, name)
        if args is not None:
            self._add_args(shape, args, slices, columns)

    def _host_places(self, found: pa.StructArray, slices: Slices) -> Columns:
        places = self._rows.read(found, slices)
        (process, has_process, _), (thread, has_thread, _) = places["pid"], places["tid"]
        return {"process": integers(process, has_process), "thread": integers(thread, has_thread)}

    def _device_places(self, found: pa.StructArray, args: pa.StructArray, slices: Slices) -> Columns:
        """Device and stream from the arguments, else from the row the event was drawn on."""
        places = self._rows.read(found, slices)
        columns: Columns = {}
        for column, key, row in (("device", "device", "pid"), ("stream", "stream", "tid")):
            given = pc.struct_field(args, key)
            numbers, known, named = places[row]
            known = known & ~named
            has = valid(given)
            values = np.where(has, whole(given), numbers)
            ok = (has | known) & (values >= 0)
            columns[column] = integers(values, ok)
        columns["device"] = columns["device"].cast(pa.int32(), safe=False)
        return columns

    def _links(self, shape: str, args: pa.StructArray | None) -> Columns:
        if args is None or shape == "memory":
            return {}
        external = whole(pc.struct_field(args, "External id"))
        if shape == "op":
            return {"external_id": integers(external, external > 0)}
        launch = whole(pc.struct_field(args, "correlation"))
        if shape == "device":
            both = (external > 0) & (launch > 0)
            self.linked += int(both.sum())
            self.equal += int((both & (external == launch)).sum())
        return {
            "launch_id": integers(launch, launch > 0),
            "external_id": integers(external, (external > 0) & (external != launch)),
        }

    def _count(self, kinds: Codes, columns: Columns, name: pa.DictionaryArray) -> None:
        self.works += int(np.isin(kinds, _WORK).sum())
        if (kinds == KIND["kernel"]).any() and "device" in columns:
            kernels = columns["device"].filter(pa.array(kinds == KIND["kernel"]))
            self.devices.update(tally(kernels))
        if (kinds == KIND["op"]).any():
            self.op_processes.update(tally(columns["process"].filter(pa.array(kinds == KIND["op"]))))
        if (kinds == KIND["runtime"]).any():
            launches = pc.is_in(name.dictionary, pa.array(LAUNCHES)).to_numpy(zero_copy_only=False)
            self.launches += int(launches[whole(name.indices.fill_null(0))].sum()) if len(launches) else 0

    def _add_args(self, shape: str, args: pa.StructArray, slices: Slices, columns: Columns) -> None:
        if shape == "memory":
            self._add_memory(args, columns)
            return
        wanted = DEVICE_ARGS if shape == "device" else OP_ARGS if shape == "op" else RUNTIME_ARGS
        kept = {column: plain(pc.struct_field(args, key)) for column, key in wanted.items()}
        if shape == "device":
            kept["grid_count"] = product(pc.struct_field(args, "grid"))
            kept["occupancy_ratio"] = pc.divide(finite(kept["occupancy_ratio"]), 100.0)
            for column in ("wait_stream", "wait_launch_id"):
                kept[column] = pc.if_else(pc.greater_equal(kept[column], 0), kept[column], None)
        any_known = np.zeros(len(slices), np.bool_)
        for values in kept.values():
            any_known |= valid(values)
        rows = pa.array(np.flatnonzero(any_known))
        if len(rows):
            table = "op_args" if shape == "op" else "device_args"
            part = {"event_id": columns["event_id"], **kept}
            # Taking copies: a column that came from DuckDB keeps all columns of its block in memory.
            self.parts[table].append({k: thin(v.take(rows)) for k, v in part.items()})
        if shape != "runtime":
            self._add_calls(shape, args, slices, columns)

    def _add_calls(self, shape: str, args: pa.StructArray, slices: Slices, columns: Columns) -> None:
        has = valid(pc.struct_field(args, "Collective name"))
        if shape == "op":
            index = pc.index(columns["name"].dictionary, "record_param_comms").as_py()
            has = has | (whole(columns["name"].indices, -1) == index) if index >= 0 else has
        rows = np.flatnonzero(has)
        if len(rows):
            found = pc.struct_field(self._parser.parse(slices.take(rows), COLLECTIVE), "args")
            found = found.take(pa.array(np.arange(len(found))))
            taken = {k: columns[k].take(pa.array(rows)) for k in ("event_id", "ts_ns", "dur_ns")}
            source = "record_param_comms" if shape == "op" else "kernel"
            self.parts["calls"].append({**taken, **calls_of(found), "source": pa.array([source] * len(rows))})

    def _add_memory(self, args: pa.StructArray, columns: Columns) -> None:
        name = columns["name"].cast(pa.string())
        rows = pa.array(np.flatnonzero(pc.is_in(name, pa.array(MEMORY_NAMES)).to_numpy(zero_copy_only=False)))
        field = {k: pc.struct_field(args, k).take(rows) for k in MEMORY_ARGS.values()}
        size = field["Bytes"]
        action = pc.if_else(pc.less(size, 0), "free", "alloc")
        action = pc.if_else(pc.equal(name.take(rows), "[OutOfMemory]"), "oom", action)
        part = {k: thin(field[v]) for k, v in MEMORY_ARGS.items()}
        part |= {"size_bytes": pc.abs(size), "action": action.dictionary_encode()}
        part |= {k: columns[k].take(rows) for k in ("event_id", "ts_ns", "thread")}
        for column in ("device", "device_type"):
            part[column] = part[column].cast(pa.int32(), safe=False)
        if len(rows):
            self.parts["allocations"].append(part)

    def _add_threads(self, found: pa.StructArray) -> None:
        named = pc.equal(pc.struct_field(found, "name"), "thread_name").fill_null(False)
        chosen = found.filter(named)
        keys = zip(
            *(pc.struct_field(chosen, k).to_pylist() for k in ("pid", "tid")),
            pc.struct_field(pc.struct_field(chosen, "args"), "name").to_pylist(),
            strict=True,
        )
        for process, thread, name in keys:
            if process is not None and thread is not None and name and not name.startswith("stream "):
                self.threads[process, thread] = name.strip()
