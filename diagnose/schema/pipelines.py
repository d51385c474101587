"""Ingested table of pipeline-parallel work: what each stage did for each micro-batch, as a timeline recorded it.

A *stage* holds a contiguous part of the layers, or several such parts (`chunk`) under interleaved and bidirectional
schedules. A *replica* is one copy of the whole pipeline (data parallel). Work of a stage that is for no micro-batch
(optimizer, gradient synchronisation) has a null `microbatch`. Times are those of the source: a send or receive counts
from its launch and so includes waiting for the peer. Analyses read the derived table `stage_work`: these rows, and
what marks in traces say of the same kind.
"""

from __future__ import annotations

from diagnose.schema.tables import INT32, INT64, LABEL, TableSchema, table

COMPUTE_PHASES = ("forward", "backward", "backward_input", "weight")
"""Phases in which a stage computes for a micro-batch; `backward` is input and weight gradient together."""
PEER_PHASES = ("send_forward", "recv_forward", "send_backward", "recv_backward")
"""Exchange with the next or previous stage; `_forward` carries activations, `_backward` their gradients."""
TAIL_PHASES = (
    "parameter_sync", "gradient_sync", "late_gradient_sync", "layernorm_sync", "embedding_sync", "gradient_clip",
    "optimizer", "gc", "loss", "other",
)  # fmt: skip
"""Work of a stage around its micro-batches."""
PHASES = (*COMPUTE_PHASES, *PEER_PHASES, *TAIL_PHASES)

PIPELINES: dict[str, TableSchema] = {
    "microbatches": table(
        "work of one micro-batch on one pipeline stage, as a pipeline timeline recorded it",
        ("file", INT32, "index in files"),
        ("rank", INT32, "global rank; negative and distinct where no evidence gives one"),
        ("step", INT64, "step number as recorded"),
        ("stage", INT32, "pipeline stage of the rank, from 0"),
        ("chunk", INT32, "model chunk on the stage (virtual stage), from 0; null where it does not apply"),
        ("replica", INT32, "data-parallel index of this copy of the pipeline; null where unknown"),
        ("microbatch", INT32, "number of the micro-batch in its replica's step, from 0; null: for none, or unknown"),
        ("seq", INT32, "n-th piece of work of this phase on this rank in this step, from 0"),
        ("phase", LABEL, "one of PHASES: forward, backward, send_forward, gradient_sync, optimizer, ..."),
        ("ts_ns", INT64, "start; absolute, or from an origin that all ranks of the step share"),
        ("dur_ns", INT64, "its duration as recorded"),
        ("source", LABEL, "primus | bytedance"),
    ),
}  # fmt: skip
