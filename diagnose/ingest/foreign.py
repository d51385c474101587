"""Files that are not read: named for what they are, with what to do instead, in one line each.

Two groups: recordings of other tools (nsys, msprof, XPlane, rocprof, ...), and evidence of PyTorch and NCCL that a
later version will read. Recognised by content; a name only breaks the tie between binary formats without a known magic.
Not here: plain text of no known kind, which the other ingesters get to see first.
"""

from __future__ import annotations

from typing import NamedTuple

from diagnose.ingest import Options, Source, _signs, unusable
from diagnose.schema import Tables

_TORCH = "record the run with torch.profiler and give that trace"
_LATER = "it is not read by this version, so leave it out"
_OUT = "leave it out"


class Format(NamedTuple):
    """A kind of file: slug, what it is, what to do, how it is recognised."""

    kind: str
    what: str
    do: str
    matches: _signs.Test
    problem: str = "unknown_format"


def sniff(head: bytes, name: str) -> bool:
    """Whether the document is of one of the formats below."""
    return format_of(head, name) is not None


def read(source: Source, options: Options) -> Tables:
    """One `files` row with status `unusable` that names the format."""
    found = format_of(source.head(), source.name)
    assert found is not None, "read follows sniff"
    detail = f"found {found.what}; expected a PyTorch profiler trace or another input of this tool; {found.do}"
    return unusable(source.label, detail, found.problem, found.kind)


def format_of(head: bytes, name: str) -> Format | None:
    """The first format whose signs the document bears."""
    return next((f for f in FORMATS if f.matches(head, name.lower())), None)


def _other(kind: str, what: str, matches: _signs.Test) -> Format:
    return Format(kind, what, _TORCH, matches, "other_profiler")


_KINETO = r'"(schemaVersion|deviceProperties|distributedInfo)"'
_TRACE = r'"(traceEvents|ph|schemaVersion|deviceProperties|distributedInfo)"'
_ASCEND = r'"(Ascend Hardware|CANN|AscendCL|AscendPyTorch|Overlap Analysis|AI Core Freq|Physic Stream Id)"'
_XLA = r'highres-ticks|"/(host:CPU|device:[A-Z]+:\d+)'
_ROCPROF_CSV = (
    r'\A"?(Index"?,"?KernelName|Kind"?,"?(Agent_Id|Domain|Dispatch_Id|Function|Operation)|'
    r'Name"?,"?Calls"?,"?TotalDurationNs|Domain"?,"?Function"?,"?Process_Id)'
)
_PROFILERS = (
    _other("nsys", "an Nsight Systems report", _signs.binary(
        b"NVIDIA Tegra Profiler", b"Nsight Systems", b"QuadD", endings=(".nsys-rep", ".qdrep", ".qdstrm"))),
    _other("nsys", "an Nsight Systems SQLite export", _signs.sqlite(
        b"CUPTI_ACTIVITY_KIND", b"TARGET_INFO_", b"NVTX_EVENTS", b"StringIds")),
    _other("nsys", "an Nsight Systems statistics table", _signs.text(
        r'\A"?(Start \(ns\)|Time \(%\)"?,"?Total Time \(ns\))')),
    _other("rocprof", "a rocprofv3 (rocpd) database", _signs.sqlite(b"rocpd_")),
    _other("rocprof", "a rocprofv3 JSON recording", _signs.json(r'"rocprofiler-sdk-tool"')),
    _other("rocprof", "a rocprof JSON trace", _signs.json(r'"traceEvents"', r"CPU H(IP|SA) API", without=_KINETO)),
    _other("rocprof", "a rocprof CSV table", _signs.text(_ROCPROF_CSV)),
    _other("xplane", "an XPlane recording (.xplane.pb) of JAX or TensorFlow", _signs.is_xplane),
    _other("xplane", "a trace of JAX or TensorFlow (XLA trace viewer JSON)", _signs.json(
        r'"(traceEvents|displayTimeUnit)"', _XLA, without=_KINETO)),
    _other("msprof", "an Ascend profile (msprof, or trace_view.json of torch_npu)", _signs.json(
        r'"ph"', _ASCEND, without=_KINETO)),
    _other("nvprof", "an nvprof log", _signs.text(r"^==\d+== NVPROF")),
    _other("viztracer", "a VizTracer trace", _signs.json(r'"viztracer_metadata"')),
    _other("speedscope", "a speedscope profile", _signs.json(r"speedscope\.app")),
    _other("perfetto", "a Perfetto protobuf trace", _signs.is_perfetto),
    Format("stacks", "a stack export of torch.profiler (flame graph text)", "give the trace of the same run",
        _signs.text(r"\A(?:[^\n;]+;){2,}[^\n]* \d+\n")),
)  # fmt: skip

_SNAPSHOT = (b"segments", b"device_traces", b"total_size")
_DUMP = (b"pg_config", b"entries", b"profiling_name", b"collective_seq_id")

_EVIDENCE = (
    Format("execution_trace", "a PyTorch execution trace (it has no times)", "give the profiler trace of that run",
        _signs.json(r'\A\s*\{[^{}\[\]]*"schema"\s*:\s*"|execution_trace\|process', r'"nodes"\s*:', without=_TRACE)),
    Format("memory_timeline", "a torch.profiler memory timeline", _LATER, _signs.json(
        r"\A\s*\[\s*\[\s*-?\d", opening="[")),
    Format("pickle", "a Python pickle (never loaded: it could run code)", _OUT, _signs.pickle(
        without=(*_SNAPSHOT, *_DUMP))),
)  # fmt: skip

_MISTAKES = (
    Format("diagnosis", "a diagnosis that this tool wrote", _OUT, _signs.json(
        r'\A\s*\{\s*"schema_version"\s*:\s*\d', r'"tool"\s*:\s*\{[^}]*"diagnose"')),
    Format("html", "an HTML page, not the file itself", "download the file again, logged in", _signs.text(
        r"\A\s*<(!(doctype|DOCTYPE) |html|HTML)")),
    Format("xml", "an XML document (an error answer of a storage service?)", "download the file again", _signs.text(
        r"\A\s*<\?xml")),
    Format("git_lfs", "a git-lfs pointer, not the file itself", "run `git lfs pull`", _signs.text(
        r"\Aversion https://git-lfs\.github\.com/spec/")),
    Format("git_annex", "a git-annex pointer, not the file itself", "run `git annex get`", _signs.text(
        r"\A/annex/objects/")),
    Format("numpy", "a numpy array", _OUT, _signs.starts(b"\x93NUMPY")),
    Format("checkpoint", "a PyTorch checkpoint or another zip document", _OUT, _signs.starts(b"PK\3\4", b"PK\5\6")),
    Format("sqlite", "an SQLite database of no known profiler", _OUT, _signs.sqlite()),
    Format("image", "an image", _OUT, _signs.starts(b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"<svg")),
    Format("pdf", "a PDF document", _OUT, _signs.starts(b"%PDF")),
    Format("hdf5", "an HDF5 file", _OUT, _signs.starts(b"\x89HDF")),
    Format("program", "a program or library", _OUT, _signs.starts(b"\x7fELF", b"MZ\x90")),
)  # fmt: skip

FORMATS: tuple[Format, ...] = (*_PROFILERS, *_EVIDENCE, *_MISTAKES)
"""All formats, in the order in which they are tried."""
