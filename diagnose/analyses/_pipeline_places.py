"""Which stage of a pipeline a rank is, and in which copy of the pipeline, by the pipeline groups of the job.

Groups inside another one (the embedding group of the first and last stage) are no pipelines.
"""

from __future__ import annotations

import pyarrow as pa

Places = dict[int, tuple[int, int]]
"""Rank -> (stage, copy of the pipeline)."""


def pipeline_places(groups: pa.Table | None) -> Places:
    """Places of the ranks of pipeline groups of several ranks; a group lists its stages in order."""
    rows = [] if groups is None else groups.to_pylist()
    found = {tuple(g["ranks"]) for g in rows if g["dim"] == "pp" and g["ranks"] and len(g["ranks"]) > 1}
    largest: dict[int, int] = {}
    for ranks in found:
        for rank in ranks:
            largest[rank] = max(largest.get(rank, 0), len(ranks))
    pipes = sorted(ranks for ranks in found if all(len(ranks) == largest[rank] for rank in ranks))
    return {rank: (stage, copy) for copy, ranks in enumerate(pipes) for stage, rank in enumerate(ranks)}


def stages_of_groups(groups: pa.Table | None) -> int:
    """Stages of the longest pipeline group; 0 where none is known."""
    return max((stage + 1 for stage, _ in pipeline_places(groups).values()), default=0)
