"""What the names of host events say: which are modules, user source lines, backward nodes.

A name is evidence only of what its writer meant: PyTorch's own ranges are known here, any other annotation counts as
a range of the user. Source of the names: torch.distributed.fsdp, torch.profiler, torch.optim (1.13 to 2.13).
"""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses._columns import Flags, Ints, flags

_NEVER_MODULE = (
    r"^(ProfilerStep|nccl:|gloo:|mpi:|xccl:|Optimizer\.|enumerate\(DataLoader\)|## Call |Torch-Compiled|TorchDynamo"
    r"|Pregraph|AOTDispatcher|Inductor|CompiledFxGraph|Iteration|PyTorch Profiler|\[pytorch"
    r"|unknown$|DistributedDataParallel\.forward|torch\.distributed\.ddp\.|step ?[#_]?\d+$)"
)
_FSDP_UNIT = r"^(?:FSDP::[^(]*\((?P<unit>[^)]+)\)|FSDP::\w+_prefetch for (?P<target>[^ ]+)).*$"
_FSDP_ANY = r"^(FSDP::|FullyShardedDataParallel\.)"
BACKWARD_NODE = r"^autograd::engine::evaluate_function|Backward\d*(\[.*\])?$|^CompiledFunctionBackward"
BACKWARD_RANGE = (
    r"^FSDP::(post_|pre_|root_post_)?backward|^FullyShardedDataParallel\._(pre|post)_backward|^Backward \d+$"
    r"|^PP:\d+[BW]\d*$"
)
FORWARD_RANGE = (
    r"^FSDP::(root_)?(pre|post)_forward|^FullyShardedDataParallel\.(_pre_|_post_)?forward|^DistributedDataParallel\.forward"
    r"|^Forward \d+$|^PP:\d+F\d*$"
)
COMMUNICATION_OP = r"^(c10d::|_c10d_functional::|record_param_comms|nccl:|gloo:|xccl:|hccl:)"
"""Operators that schedules also call between the passes: where they stand proves no phase."""

RANGE_RECORDED_AS_OP = r"^(ProfilerStep#|Optimizer\.|enumerate\(DataLoader\))"
"""Ranges that recordings before 2022 keep among the operators."""

_FRAME = r"^(?P<path>.+)\((?P<line>\d+)\): (?P<function>.*)$"
_LIBRARY_PATH = (
    r"^<|^(torch|torchgen|functorch|triton|numpy|importlib|_bootstrap)/|(site|dist)-packages/|/lib/python\d|^lib/python\d"
    r"|/torch/(nn|optim|autograd|utils|distributed|_dynamo|_inductor|profiler|cuda|amp)/"
)


def names_module(names: list[str]) -> Flags:
    """Annotations that name a module, an FSDP unit or a range of the user."""
    text = pa.array(names, pa.string())
    unit = pc.match_substring_regex(text, _FSDP_UNIT.replace("(?P<unit>", "(").replace("(?P<target>", "("))
    framework = pc.or_(pc.match_substring_regex(text, _NEVER_MODULE), pc.match_substring_regex(text, _FSDP_ANY))
    return flags(pc.or_(unit, pc.invert(framework)))


def module_labels(names: list[str]) -> tuple[list[str], Ints]:
    """(distinct labels, index of the label of each name): the FSDP unit, the module, or the range as named."""
    text = pa.array(names, pa.string())
    parts = pc.extract_regex(text, _FSDP_UNIT)
    if not names:
        return [], np.zeros(0, dtype=np.int64)
    unit, target = (pc.struct_field(parts, field) for field in ("unit", "target"))
    unit = pc.if_else(pc.equal(unit, ""), target, unit)
    module = pc.replace_substring_regex(text, r"^nn\.Module: ", "")
    coded = pc.coalesce(unit, module).dictionary_encode()
    return coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def user_lines(names: list[str]) -> Flags:
    """Python frames `file(line): function` of files that belong neither to Python nor to an installed library."""
    parts = pc.extract_regex(pa.array(names, pa.string()), _FRAME)
    path = pc.struct_field(parts, "path")
    top = pc.replace_substring_regex(path, r"(\.py)?(/.*)?$", "")
    standard = pc.is_in(top, value_set=pa.array(sorted(sys.stdlib_module_names - {"test", "profile", "code"})))
    library = pc.or_(pc.match_substring_regex(path, _LIBRARY_PATH), standard)
    return flags(pc.and_(pc.is_valid(path), pc.invert(library)))


def matches(names: list[str], pattern: str) -> Flags:
    """Flag per name: the pattern (RE2) is found in it."""
    return flags(pc.match_substring_regex(pa.array(names, pa.string()), pattern))
