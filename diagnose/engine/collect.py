"""What to record so that a table, or a column of it, has content: the one place that says so.

Each text names one input that a user can produce.
"""

from __future__ import annotations

NEEDED = "; needed: "
"""Between what is missing and what would provide it, in every reason."""

_TRACE = "a torch.profiler trace with CUDA activities (activities=[CPU, CUDA]) over a few steps"
_STEPS = f"{_TRACE}, with profiler.step() called at the end of every training step"
_MEMORY = "a CUDA memory snapshot (torch.cuda.memory._record_memory_history(), then _dump_snapshot())"
_ROUTER = (
    "router statistics per layer and expert (tokens_per_expert, tokens and top-k of every router: "
    "diagnose.live.moe.observe, or JSON lines of your own)"
)
_LOG = "a training log or live hook record over many steps"
_MEMORY_LOG = "a log of allocated and reserved GPU memory per step, over many steps"
_SHAPES = "a torch.profiler trace recorded with record_shapes=True on a GPU whose peak is known"
_GROUPS = "a trace whose distributedInfo lists the process groups (PyTorch 2.4 or later)"

_TABLES = {
    "arrivals": "traces of all ranks over the same steps",
    "allocations": "a trace recorded with profile_memory=True, or " + _MEMORY,
    "boundaries": "traces of all ranks over the same steps, or a pipeline timeline",
    "bubbles": "a pipeline timeline or traces of one rank per stage, or a log that prints stages and batch sizes",
    "calls": "a trace with collective metadata (PyTorch 2.3 or later), an NCCL log or a flight recorder dump",
    "collectives": _TRACE,
    "compared_ranks": "traces of all ranks over the same steps",
    "copies": _TRACE,
    "crossings": _GROUPS,
    "dispatch": _ROUTER,
    "events": _TRACE,
    "dispatch_bytes": _TRACE,
    "exchanges": _TRACE,
    "expert_rounds": _TRACE,
    "experts": _ROUTER,
    "gemms": _SHAPES,
    "groups": _GROUPS,
    "hangs": "flight recorder dumps of all ranks (TORCH_NCCL_DUMP_ON_TIMEOUT=1 and TORCH_FR_BUFFER_SIZE=2000)",
    "idle": _TRACE,
    "kernel_totals": _TRACE,
    "kernels": _TRACE,
    "holes": _MEMORY,
    "lifetimes": "a trace recorded with profile_memory=True, or " + _MEMORY,
    "late_ranks": "traces of all ranks over the same steps",
    "link_expectations": "traces of all ranks, a GPU that is known, and cluster.inter_bytes_per_s in job.toml",
    "members": _GROUPS,
    "links": "an NCCL log of all ranks (NCCL_DEBUG=INFO)",
    "memory": _MEMORY,
    "memory_growth": _MEMORY_LOG,
    "memory_moments": _MEMORY + ", or the out-of-memory message",
    "memory_parts": _MEMORY,
    "oom_messages": "the log with the out-of-memory message",
    "mfu": _SHAPES,
    "pairs": "a table of bandwidth between pairs of hosts (CSV: a,b,busbw_gbs)",
    "phases": _STEPS,
    "pipeline": "a pipeline timeline, or traces of one rank per pipeline stage over the same steps",
    "profiler_cost": _TRACE,
    "rank_what_if": "traces of all ranks over the same steps",
    "recompute": _STEPS,
    "reductions": _TRACE,
    "router": _ROUTER,
    "router_load": _ROUTER,
    "moe_setup": _ROUTER,
    "expert_balance": _ROUTER,
    "series": _LOG,
    "settings": "the job's environment variables (`env > env.txt` on a worker) or a job.toml",
    "slowdowns": _LOG,
    "spans": _TRACE,
    "mean_steps": _TRACE,
    "pauses": "a torch.profiler trace with with_stack=True, or step records of all ranks over many steps",
    "stalls": _LOG,
    "stages": "a pipeline timeline, or traces of one rank per pipeline stage over the same steps",
    "step_time": _STEPS,
    "steps": _STEPS,
    "syncs": _TRACE,
    "transports": "an NCCL log of all ranks (NCCL_DEBUG=INFO)",
    "trends": _LOG,
    "uneven_work": "traces of all ranks over several steps, or records of the live hook of all ranks",
    "what_if": "traces of all ranks over the same steps",
    "window_time": _TRACE,
}

_COLUMNS = {
    "collectives.busbw_bytes_per_s": "collective metadata with sizes (PyTorch 2.3 or later records it)",
    "collectives.dtype": "collective metadata with element types (PyTorch 2.3 or later records it)",
    "collectives.group_size": "collective metadata with group sizes (PyTorch 2.3 or later records it)",
    "collectives.size_bytes": "collective metadata with sizes (PyTorch 2.3 or later records it)",
    "reductions.dtype": "collective metadata with element types (PyTorch 2.3 or later records it)",
    "reductions.size_bytes": "collective metadata with sizes (PyTorch 2.3 or later records it)",
    "clocks.offset_ns": "traces of all ranks over the same steps",
    "collectives.wait_ns": "traces of all ranks over the same steps",
    "copies.pageable": "a trace whose copies name the host memory kind (CUPTI and recent roctracer do)",
    "gemms.efficiency_ratio": _SHAPES,
    "groups.node_count": "a job.toml with [cluster] nodes and gpus_per_node, or host names in the inputs",
    "kernels.event_id": "a trace that holds device work: kernels were not recorded here",
    "kernels.launch_ns": "a trace with both CPU and CUDA activities (a job without GPUs launches no kernels)",
    "kernels.phase": "a trace with CPU activities, whose autograd operators tell forward from backward",
}

OF_MEMORY = ("lifetimes", "memory", "memory_moments", "memory_parts", "memory_growth", "holes", "oom_messages")
"""Tables that a recording of time does not fill: there, none of a kind does mean that it was not recorded."""

OF_SEVERAL_RANKS = ("boundaries", "compared_ranks", "uneven_work")
"""Tables that a recording of one rank, or on clocks that cannot be compared, leaves empty."""

_SYMPTOMS = {
    "comm_saturation": _TRACE,
    "drifting_throughput": _LOG,
    "low_speedup": "traces of the job's other ranks over the same steps",
    "moe_drop": _ROUTER,
    "oom_despite_headroom": _MEMORY + ", or the out-of-memory message",
}


def for_table(table: str, otherwise: str = "") -> str:
    """What would fill `table`; `otherwise` where this module does not know."""
    return _TABLES.get(table) or otherwise or f"an input that fills the table {table}"


def for_column(name: str, otherwise: str = "") -> str:
    """What would fill the column `table.column`; `otherwise` where this module does not know."""
    return _COLUMNS.get(name) or otherwise or for_table(name.partition(".")[0])


def for_symptom(symptom: str) -> str:
    """The file that would settle a symptom about which nothing else is known."""
    return _SYMPTOMS[symptom]
