"""Chunks of interleaved stages whose source counts work but does not number it (Megatron-LM's `forward_step` frames).

Megatron-LM's interleaved schedule is known by its warm-up: stage s of p with v chunks does 2(p-s-1) + (v-1)p + 1
forwards before its first backward, and then one of each in turn. Its n-th forward is then chunk (n mod pv) div p of
micro-batch (n div pv)p + n mod p, its n-th backward the same with the chunks in reverse. Any other order is left as it
is.
Source: Megatron-LM core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving.
"""

from __future__ import annotations

import numpy as np

from diagnose.analyses._columns import Flags, Ints


def chunks_by_order(pipe: Ints, stage: Ints, backward: Flags, number: Ints) -> tuple[Ints, Ints] | None:
    """(chunk, micro-batch) of each piece; None where no pipe has that order. Chunk -1: the piece's pipe has another.

    Pieces are in order of pipe, stage and time; `number` counts forwards and backwards of each stage of a pipe.
    """
    chunk, microbatch = np.full(len(pipe), -1), number.copy()
    starts = np.flatnonzero(np.append(True, pipe[1:] != pipe[:-1])) if len(pipe) else np.zeros(0, np.int64)
    known: dict[bytes, int] = {}
    for low, high in zip(starts, np.append(starts[1:], len(pipe)), strict=True):
        mine = slice(low, high)
        key = np.column_stack([stage[mine], backward[mine]]).tobytes()
        chunks = known.setdefault(key, _chunks(stage[mine], backward[mine]))
        if chunks < 2:
            continue
        stages = len(np.unique(stage[mine]))
        turn = number[mine] % (stages * chunks)
        ahead = turn // stages
        chunk[mine] = np.where(backward[mine], chunks - 1 - ahead, ahead)
        microbatch[mine] = number[mine] // (stages * chunks) * stages + turn % stages
    return (chunk, microbatch) if (chunk >= 0).any() else None


def _chunks(stage: Ints, backward: Flags) -> int:
    """Chunks per stage that explain the order of one pipe; 1 where none do."""
    places = np.unique(stage)
    orders = [backward[stage == place] for place in places]
    count, forwards = len(places), {int((~order).sum()) for order in orders}
    if count < 2 or len(forwards) != 1 or any(order.sum() * 2 != len(order) for order in orders):
        return 1
    total = forwards.pop()
    ahead = [int(np.argmax(order)) for order in orders]
    chunks, rest = divmod(ahead[-1] - 1, count)
    chunks += 1
    if rest or chunks < 2 or ahead[-1] >= total or total % (count * chunks):
        return 1
    wanted = [min(total, 2 * (count - 1 - i) + (chunks - 1) * count + 1) for i in range(count)]
    in_turn = all(_alternates(order, lead) for order, lead in zip(orders, ahead, strict=True))
    return chunks if ahead == wanted and in_turn else 1


def _alternates(order: Flags, ahead: int) -> bool:
    """Whether backward and forward follow each other from the first backward to the last forward."""
    last_forward = len(order) - 1 - int(np.argmax(~order[::-1]))
    middle = order[ahead : last_forward + 1]
    return bool((middle[1:] != middle[:-1]).all())
