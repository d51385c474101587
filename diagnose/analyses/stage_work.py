"""Work of pipeline stages for their micro-batches on one clock: recorded by timelines, or recognised from marks.

Rows of `microbatches`, else of marks in traces (`_pipeline_marks`), else of sends and receives (`_exchange_work`). A
stage that the source does not name is the rank's place in its pipeline group; where no group is known, stages are told
by the order in which ranks begin their first forward. Ranks of one stage are copies of it, numbered by rank.
Micro-batches without a number are counted in order of time within stage, chunk and phase, which is right where a stage
takes them in turn (all schedules that do not reorder do), or by Megatron-LM's interleaved order
(`_unnumbered_chunks`). What cannot be told stays null.
Marks that any training loop has (`forward`, Megatron-LM's `forward_step`) count only on ranks of a pipeline group.
Times of traces are moved to the reference rank's clock where `clocks` knows the offset; timelines have origins of their
own.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Ints, codes, dictionary, integers
from diagnose.analyses._marked_work import work_in_traces
from diagnose.analyses._pipeline_work import counted
from diagnose.analyses._unnumbered_chunks import chunks_by_order
from diagnose.schema import INGESTED, INT32, INT64, LABEL, table
from diagnose.schema.pipelines import COMPUTE_PHASES

SCHEMA = table(
    "work of one micro-batch on one pipeline stage",
    ("rank", INT32, "global rank"),
    ("step", INT64, "step"),
    ("replica", INT32, "copy of the pipeline (data parallel)"),
    ("stage", INT32, "pipeline stage, from 0"),
    ("chunk", INT32, "model chunk on the stage; null where it has one"),
    ("microbatch", INT32, "micro-batch of the replica's step, from 0; null for work of none"),
    ("seq", INT32, "n-th of its phase on this rank in this step"),
    ("phase", LABEL, "as in microbatches: forward, backward, backward_input, weight, send_forward, ..."),
    ("ts_ns", INT64, "start on the common clock"),
    ("dur_ns", INT64, "duration"),
    ("source", LABEL, "primus | bytedance | marks | exchanges"),
)


def stage_work(
    microbatches: pa.Table | None = None,
    events: pa.Table | None = None,
    steps: pa.Table | None = None,
    kernels: pa.Table | None = None,
    groups: pa.Table | None = None,
    clocks: pa.Table | None = None,
    collectives: pa.Table | None = None,
) -> pa.Table:
    """Rows sorted by step, replica, stage and start."""
    if microbatches is None or not microbatches.num_rows:
        seen = None if events is None else work_in_traces(events, steps, kernels, groups, clocks, collectives)
        microbatches = seen if seen is not None else INGESTED["microbatches"].empty()
    rows = microbatches.filter(microbatches["rank"].is_valid())
    if not rows.num_rows:
        return SCHEMA.empty()
    rank, step, ts = (integers(rows[name]) for name in ("rank", "step", "ts_ns"))
    stage = integers(rows["stage"], -1)
    if (stage < 0).any():
        stage = _stages_by_start(rows, rank, stage, ts)
    replica = integers(rows["replica"], -1)
    if (replica < 0).any():
        replica = _replicas(rank, stage, replica)
    order = np.lexsort((ts, stage, replica, step))
    rank, step, replica, stage = rank[order], step[order], replica[order], stage[order]
    rows = rows.take(pa.array(order))
    chunk, microbatch = _unfolded(rows, np.column_stack([step, replica]), stage, _numbered(rows, rank))
    columns: dict[str, object] = {
        "rank": rank, "step": step, "replica": replica, "stage": _or_null(stage), "ts_ns": ts[order],
        "chunk": _or_null(chunk), "microbatch": _or_null(microbatch),
    }  # fmt: skip
    return SCHEMA.build(columns | {name: rows[name] for name in ("dur_ns", "seq", "phase", "source")})


def _or_null(values: Ints) -> pa.Array:
    return pa.array(values, pa.int32(), mask=values < 0)


def _unfolded(rows: pa.Table, pipes: Ints, stage: Ints, microbatch: Ints) -> tuple[Ints, Ints]:
    """(chunk, micro-batch): as given, or told by the order of work where no chunk is given at all."""
    chunk = integers(rows["chunk"], -1)
    mine = np.flatnonzero(_is(rows, ("forward", "backward")))
    if (chunk >= 0).any() or _is(rows, ("backward_input", "weight")).any() or not len(mine):
        return chunk, microbatch
    pipe = np.unique(pipes[mine], axis=0, return_inverse=True)[1].reshape(-1)
    backward = _is(rows, ("backward",))[mine]
    key = np.column_stack([pipe, stage[mine], backward])
    number = counted(np.unique(key, axis=0, return_inverse=True)[1].reshape(-1))
    found = chunks_by_order(pipe, stage[mine], backward, number)
    if found is not None:
        told = found[0] >= 0
        chunk[mine[told]], microbatch[mine[told]] = found[0][told], found[1][told]
    return chunk, microbatch


def _is(rows: pa.Table, phases: tuple[str, ...]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    wanted = np.array([name in phases for name in dictionary(rows["phase"])])
    return np.asarray(wanted[codes(rows["phase"])], bool)


def _stages_by_start(rows: pa.Table, rank: Ints, stage: Ints, ts: Ints) -> Ints:
    """Stages of ranks that do not know theirs: those left over, in the order of the ranks' first forward.

    Ranks that begin together with the first one are copies of the first stage, and then every stage has as many. A rank
    without a forward has no stage.
    """
    forward = _is(rows, ("forward",))
    ranks = np.unique(rank[(stage < 0) & forward])
    if not len(ranks):
        return stage
    known = set(stage[stage >= 0].tolist())
    first = np.array([ts[(rank == r) & forward].min() for r in ranks])
    together = first.min() + int(np.median(integers(rows["dur_ns"])[forward])) // 2
    copies = int((first <= together).sum())
    copies = copies if len(ranks) % copies == 0 and not known else 1
    free = iter(n // copies for n in range(len(ranks) + len(known)) if n not in known)
    given = {int(ranks[i]): next(free) for i in np.argsort(first, kind="stable")}
    return np.where(stage < 0, [given.get(r, -1) for r in rank.tolist()], stage)


def _replicas(rank: Ints, stage: Ints, replica: Ints) -> Ints:
    """Ranks of the same stage are copies of it, in order of rank (files without a rank: in order of input)."""
    cells = np.unique(np.column_stack([stage, np.where(rank < 0, -rank, rank), rank]), axis=0)
    number = np.arange(len(cells)) - np.searchsorted(cells[:, 0], cells[:, 0])
    of_rank = dict(zip(cells[:, 2].tolist(), number.tolist(), strict=True))
    return np.where(replica < 0, [of_rank[r] for r in rank.tolist()], replica)


def _numbered(rows: pa.Table, rank: Ints) -> Ints:
    """Micro-batch of each row; counted where a cell of compute work has no numbers."""
    given = integers(rows["microbatch"], -1)
    compute = _is(rows, COMPUTE_PHASES)
    missing = (given < 0) & compute
    if missing.any():
        keys = np.column_stack([rank, integers(rows["step"]), integers(rows["chunk"], -1), codes(rows["phase"])])[
            missing
        ]
        _, cell = np.unique(keys, axis=0, return_inverse=True)
        order = np.argsort(cell, kind="stable")
        starts = np.searchsorted(cell[order], np.arange(cell.max() + 1))
        count = np.empty(len(cell), np.int64)
        count[order] = np.arange(len(cell)) - starts[cell[order]]
        given[missing] = count
    return given
