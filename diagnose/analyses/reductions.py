"""Calls that carry gradients: which collectives these are, told once for all rules about gradient traffic.

A gradient reduction is an all-reduce or reduce-scatter of a data-parallel or unnamed group, outside the forward pass,
of more than a few scalars. Calls of an unnamed group that also reduces in the forward pass are left out: that is how
tensor parallelism looks, and its communication has other cures. Not every such call is a gradient (a large metric
would count), and without sizes small ones cannot be told apart: `evidence` says how far to trust it.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.schema import FLOAT, INT32, INT64, LABEL, table

SCHEMA = table(
    "gradient reduction of one rank",
    ("event_id", INT64, "row of events"),
    ("rank", INT32, "global rank"),
    ("step", INT64, "step; null outside"),
    ("group", LABEL, "process group name; null where unknown"),
    ("dim", LABEL, "dp | other"),
    ("op", LABEL, "all_reduce | reduce_scatter"),
    ("size_bytes", INT64, "message size; null where unknown"),
    ("dtype", LABEL, "element type; null where unknown"),
    ("dur_ns", INT64, "duration"),
    ("hidden_ns", INT64, "of it, under compute"),
    ("exposed_ns", INT64, "of it, exposed; without waiting where calls are matched across ranks"),
    ("beside_ns", INT64, "of it, beside another call that is counted as exposed"),
    ("wait_ns", INT64, "waiting for the last peer; null until matched"),
    ("busbw_bytes_per_s", FLOAT, "bus bandwidth; null where unknown"),
    ("blocked_by", LABEL, "why not hidden, as in collectives"),
    ("module", LABEL, "FSDP unit, module or named range"),
    ("evidence", LABEL, "why it counts as one: dimension | phase (backward) | assumed (neither is recorded)"),
)

SCALARS_BYTES = 16 * 1024
"""At most this is a loss, a gradient norm or an overflow flag, not a gradient; a guess, to be fitted."""


def reductions(collectives: pa.Table) -> pa.Table:
    """The rows of `collectives` that are gradient reductions, in their order."""
    op, dim, phase = (pc.cast(collectives[name], pa.string()) for name in ("op", "dim", "phase"))
    large = pc.fill_null(pc.greater(collectives["size_bytes"], SCALARS_BYTES), True)
    reduces = pc.and_(pc.is_in(op, pa.array(["all_reduce", "reduce_scatter"])), large)
    reduces = pc.and_(pc.fill_null(reduces, False), pc.fill_null(pc.is_in(dim, pa.array(["dp", "other"])), False))
    forward = pc.fill_null(pc.equal(phase, "forward"), False)
    unnamed = pc.fill_null(pc.equal(dim, "other"), False)
    group = pc.fill_null(pc.cast(collectives["group"], pa.string()), "")
    tensor_like = pc.unique(group.filter(pc.and_(pc.and_(reduces, forward), unnamed)))
    as_tensor_parallel = pc.and_(unnamed, pc.is_in(group, tensor_like))
    kept = collectives.filter(pc.and_(reduces, pc.invert(pc.or_(forward, as_tensor_parallel))))
    told_by_phase = pc.fill_null(pc.equal(pc.cast(kept["phase"], pa.string()), "backward"), False)
    told_by_dim = pc.equal(pc.cast(kept["dim"], pa.string()), "dp")
    evidence = pc.if_else(told_by_dim, "dimension", pc.if_else(told_by_phase, "phase", "assumed"))
    exposed = pc.min_element_wise(kept["exposed_ns"], kept["transfer_ns"], skip_nulls=True)
    beside = pc.subtract(kept["dur_ns"], pc.add(kept["hidden_ns"], kept["exposed_ns"]))
    own = {"exposed_ns": exposed, "beside_ns": beside, "evidence": evidence}
    return SCHEMA.build({**{name: kept[name] for name in SCHEMA.arrow.names if name not in own}, **own})
