"""Files that are not read: named for what they are, with what to do instead, in one line each.

Two groups: recordings of other tools (nsys, msprof, XPlane, rocprof, ...), and evidence of PyTorch and NCCL that a later
version will read. Recognised by content; a name only breaks the tie between binary formats without a known magic.
Not here: plain text of no known kind, which the other ingesters get to see first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from diagnose.ingest import Options, Source, unusable
from diagnose.schema import Tables

Test = Callable[[bytes, str], bool]

_TORCH = "record the run with torch.profiler and give that trace"
_LATER = "not read by this version; leave it out"
_OUT = "leave it out"


class Format(NamedTuple):
    """A kind of file: slug, what it is, what to do, how it is recognised."""

    kind: str
    what: str
    do: str
    matches: Test
    problem: str = "unknown_format"


def sniff(head: bytes, name: str) -> bool:
    """Whether the document is of one of the formats below."""
    return _format(head, name) is not None


def read(source: Source, options: Options) -> Tables:
    """One `files` row with status `unusable` that names the format."""
    found = _format(source.head(), source.name)
    assert found is not None, "read follows sniff"
    detail = f"found {found.what}; expected a PyTorch profiler trace or another input of this tool; {found.do}"
    return unusable(source.label, detail, found.problem, found.kind)


def _format(head: bytes, name: str) -> Format | None:
    return next((f for f in FORMATS if f.matches(head, name.lower())), None)


def _starts(*magics: bytes) -> Test:
    return lambda head, name: head.startswith(magics)


def _binary(*marks: bytes, endings: tuple[str, ...] = ()) -> Test:
    """Not text, and holding one of the marks or named so."""

    def test(head: bytes, name: str) -> bool:
        return b"\0" in head[:4096] and (any(m in head for m in marks) or name.endswith(endings or ("\0",)))

    return test


def _json(*patterns: str, without: str = "", opening: str = "{[") -> Test:
    """JSON in whose head all patterns stand."""
    wanted = [re.compile(p.encode()) for p in patterns]

    def test(head: bytes, name: str) -> bool:
        start = head.lstrip()[:1]
        if not start or start not in opening.encode() or (without and re.search(without.encode(), head)):
            return False
        return all(p.search(head) for p in wanted)

    return test


def _text(pattern: str) -> Test:
    wanted = re.compile(pattern.encode(), re.MULTILINE)
    return lambda head, name: b"\0" not in head and head.lstrip()[:1] not in (b"{", b"[") and bool(wanted.search(head))


def _pickle(*marks: bytes) -> Test:
    return lambda head, name: bool(re.match(rb"\x80[\x02-\x05]", head)) and (not marks or any(m in head for m in marks))


def _sqlite(*tables: bytes) -> Test:
    magic = b"SQLite format 3\0"
    return lambda head, name: head.startswith(magic) and (not tables or any(t in head for t in tables))


def _is_xplane(head: bytes, name: str) -> bool:
    """XSpace protobuf: field 1 (a plane) first, with a plane's name in it."""
    planes = (
        b"/host:CPU",
        b"/device:GPU:",
        b"/device:TPU:",
        b"/host:metadata",
        b"/host:python-tracer",
        b"Task Environment",
    )
    return head[:1] == b"\x0a" and b"\0" in head[:65536] and any(p in head for p in planes)


def _is_perfetto(head: bytes, name: str) -> bool:
    """Trace protobuf: a chain of length-delimited packets, all of them field 1."""
    at, packets = 0, 0
    while at < len(head) and packets < 4:
        if head[at] != 0x0A:
            return False
        length, shift, at = 0, 0, at + 1
        while at < len(head) and shift < 35:
            byte, at = head[at], at + 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at += length
        packets += 1
    return packets >= 2 and at >= min(len(head), 16) and any(b < 9 for b in head[:4096])


def _other(kind: str, what: str, matches: Test, do: str = _TORCH) -> Format:
    return Format(kind, what, do, matches, "other_profiler")


_KINETO = r'"(schemaVersion|deviceProperties)"'

FORMATS: tuple[Format, ...] = (
    _other("nsys", "an Nsight Systems report", _binary(b"NVIDIA Tegra Profiler", b"Nsight Systems", b"QuadD", endings=(".nsys-rep", ".qdrep", ".qdstrm"))),
    _other("nsys", "an Nsight Systems SQLite export", _sqlite(b"CUPTI_ACTIVITY_KIND", b"TARGET_INFO_", b"NVTX_EVENTS", b"StringIds")),
    _other("rocprof", "a rocprof SQLite database", _sqlite(b"rocpd_")),
    _other("xplane", "an XPlane recording (.xplane.pb) of JAX or TensorFlow", _is_xplane),
    _other("xplane", "a trace of JAX or TensorFlow (XLA trace viewer JSON)", _json(r'"traceEvents"|"displayTimeUnit"', r'highres-ticks|"/(host:CPU|device:[A-Z]+:\d+)', without=_KINETO)),
    _other("msprof", "an Ascend profile (msprof or torch_npu trace_view.json)", _json(r'"ph"', r'"(Ascend Hardware|CANN|AscendCL|AscendPyTorch|Overlap Analysis|AI Core Freq|Physic Stream Id|Task Type)"', without=_KINETO)),
    _other("rocprof", "a rocprofv3 JSON recording", _json(r'"rocprofiler-sdk-tool"')),
    _other("rocprof", "a rocprof JSON trace", _json(r'"traceEvents"', r'CPU H(IP|SA) API', without=_KINETO)),
    _other("rocprof", "a rocprof CSV table", _text(r'\A"?(Index"?,"?KernelName|Kind"?,"?(Agent_Id|Domain|Dispatch_Id|Function|Operation)|Name"?,"?Calls"?,"?TotalDurationNs|Domain"?,"?Function"?,"?Process_Id)')),
    _other("nsys", "an Nsight Systems statistics table", _text(r'\A"?(Start \(ns\)|Time \(%\)"?,"?Total Time \(ns\))')),
    _other("nvprof", "an nvprof log", _text(r"^==\d+== NVPROF")),
    _other("viztracer", "a VizTracer trace", _json(r'"viztracer_metadata"')),
    _other("speedscope", "a speedscope profile", _json(r"speedscope\.app")),
    Format("execution_trace", "a PyTorch execution trace (it has no times)", "give the profiler trace of the same run; " + _LATER, _json(r'\A\s*\{[^{}\[\]]*"schema"\s*:\s*"[^"]*(chakra|1\.0\.)|\[pytorch\|profiler\|execution_trace\|', without=r'"traceEvents"')),
    Format("memory_timeline", "a torch.profiler memory timeline", _LATER, _json(r"\A\s*\[\s*\[\s*-?\d", opening="[")),
    Format("memory_snapshot", "a CUDA memory snapshot", _LATER, _pickle(b"segments", b"device_traces", b"blocks")),
    Format("memory_snapshot", "a CUDA memory snapshot as JSON", _LATER, _json(r'"(segments|device_traces)"\s*:', without=r'"traceEvents"|"ph"')),
    Format("flight_recorder", "a flight recorder dump", _LATER, _pickle(b"pg_config", b"entries", b"profiling_name", b"collective_seq_id")),
    Format("flight_recorder", "a flight recorder dump as JSON", _LATER, _json(r'"(pg_config|collective_seq_id|pg_status)"\s*:', without=r'"traceEvents"|"ph"|"schemaVersion"')),
    Format("pickle", "a Python pickle (never loaded: it could run code)", _OUT, _pickle()),
    Format("nccl_inspector", "an NCCL inspector log", _LATER, _json("inspector_output_format_version", opening="{")),
    Format("nccl_ras", "an NCCL RAS report", _LATER, _json(r'"communicators"\s*:', r'"(nccl_version|ranks|communicators_count)"', without=r'"traceEvents"')),
    Format("nccl_tests", "an nccl-tests result", _LATER, _json(r'\A\s*\{\s*"version"\s*:\s*\d+\s*,\s*"start_time"')),
    Format("nccl_tests", "an nccl-tests result", _LATER, _text(r"^# (Avg bus bandwidth|nThread \d+ nGpus|Out of bounds values)")),
    Format("nccl_log", "an NCCL log", _LATER, _text(r"NCCL (INFO|WARN|TRACE|VERSION|ERROR)\b|^NCCL version ")),
    Format("training_log", "a Hugging Face trainer state", _LATER, _json(r'"log_history"\s*:')),
    Format("training_log", "a log with an out-of-memory message", _LATER, _text(r"OutOfMemoryError|CUDA out of memory|HIP out of memory")),
    Format("training_log", "a training log", _LATER, _text(r"\biteration +\d+ */ *\d+|\bstep[:= ]+\d+[^\n]*\bloss\b|\bloss[:= ]+\d[^\n]*\bstep\b|ProcessGroupNCCL|\[rank ?\d+\]:")),
    Format("stacks", "a stack export of torch.profiler (flame graph text)", _TORCH, _text(r"\A(?:[^\n;]+;){2,}[^\n]* \d+\n")),
    Format("diagnosis", "a diagnosis this tool wrote", _OUT, _json(r'\A\s*\{\s*"schema_version"\s*:\s*\d', r'"tool"\s*:\s*\{[^}]*"diagnose"')),
    Format("html", "an HTML page, not the file itself", "download it again, logged in", _text(r"\A\s*<(!doctype html|html|!DOCTYPE HTML|!DOCTYPE html|HTML)\b")),
    Format("xml", "an XML document (an error answer of a storage service?)", "download the file again", _text(r"\A\s*<\?xml")),
    Format("git_lfs", "a git-lfs pointer, not the file itself", "run `git lfs pull`", _text(r"\Aversion https://git-lfs\.github\.com/spec/")),
    Format("git_annex", "a git-annex pointer, not the file itself", "run `git annex get`", _text(r"\A/annex/objects/")),
    Format("parquet", "a Parquet table", _LATER, _starts(b"PAR1")),
    Format("numpy", "a numpy array", _OUT, _starts(b"\x93NUMPY")),
    Format("checkpoint", "a PyTorch checkpoint or another zip document", _OUT, _starts(b"PK\x03\x04", b"PK\x05\x06")),
    Format("sqlite", "an SQLite database of no known profiler", _OUT, _sqlite()),
    Format("image", "an image", _OUT, _starts(b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"<svg")),
    Format("pdf", "a PDF document", _OUT, _starts(b"%PDF")),
    Format("hdf5", "an HDF5 file", _OUT, _starts(b"\x89HDF")),
    Format("tfevents", "a TensorBoard event file", _LATER, _binary(b"brain.Event:")),
    _other("perfetto", "a Perfetto protobuf trace", _is_perfetto),
    Format("program", "a program or library", _OUT, _starts(b"\x7fELF", b"MZ\x90")),
)  # fmt: skip
