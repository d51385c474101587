"""Which group each call belongs to: one number per name and set of ranks, and how many ranks that are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnose.analyses._columns import Flags, Ints, codes, dense, dictionary, integers


def groups_of(calls: pa.Table, members: pa.Table, ranks: Ints, rank: Ints) -> tuple[Ints, Ints, Flags]:
    """(dense code of (name, ranks), number of ranks or -1, whether named) per row.

    One name may stand for other ranks on another rank, so the ranks count as part of the name where they are known.
    """
    names, name = dictionary(calls["group"]), codes(calls["group"])
    place_of = {r: i for i, r in enumerate(ranks.tolist())}
    known: dict[tuple[int, str], tuple[bytes, int]] = {}
    columns = (members[c].to_pylist() for c in ("rank", "group", "size"))
    lists = members["ranks"].combine_chunks() if members.num_rows else members["ranks"]
    for row, (owner, text, count) in enumerate(zip(*columns, strict=True)):
        listed = lists[row].values
        who = b"" if listed is None else np.asarray(listed).tobytes()
        if owner in place_of and (who or (place_of[owner], text) not in known):
            known[place_of[owner], text] = (who, len(listed) if who else (count if count is not None else -1))
    pair = (name + 1) * len(ranks) + rank
    used, index = dense(pair, (len(names) + 1) * len(ranks))
    seen: dict[tuple[int, bytes], int] = {}
    code_of, size_of = np.empty(len(used), np.int64), np.full(len(used), -1, np.int64)
    for i, value in enumerate(used.tolist()):
        text, owner = value // len(ranks) - 1, value % len(ranks)
        who, size_of[i] = known.get((owner, names[text]), (b"", -1)) if text >= 0 else (b"", -1)
        code_of[i] = seen.setdefault((text, who), len(seen))
    recorded = integers(calls["group_size"], -1)
    size = np.where(size_of[index] >= 0, size_of[index], recorded)
    return code_of[index], size, name >= 0
