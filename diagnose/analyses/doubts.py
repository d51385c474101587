"""What the analyses had to cut, could not link, could not name or had to guess: the derived half of `quality`.

One row per kind of doubt and rank, with the columns of `quality`. A healthy recording has few: work in flight when
the recording began is normal, and said. Nothing here is a finding; it tells how far findings can be trusted.
"""

from __future__ import annotations

import pyarrow as pa

from diagnose import sql
from diagnose.schema import INGESTED

SCHEMA = INGESTED["quality"]

VISIBLE_OVERHEAD_RATIO = 0.05
"""Share of the window from which the profiler's own cost is worth a line: a guess, to be fitted."""

_DOUBTS = f"""
WITH work AS (
  SELECT *, name::VARCHAR AS label, device IS NOT NULL AS on_device FROM kernels
), unknown AS (
  SELECT rank, label, sum(dur_ns)::BIGINT AS dur_ns, count(*) AS n FROM work WHERE class = 'unclassified' GROUP BY ALL
), overhead AS (
  SELECT rank, sum(count)::BIGINT AS n, sum(share_ratio) AS share FROM profiler_cost
  WHERE kind NOT IN ('stacks', 'one_step', 'memory') GROUP BY rank
), alone AS (  -- NCCL starts no kernel for a group of one
  SELECT rank FROM files WHERE world_size = 1
  UNION SELECT rank FROM calls GROUP BY rank HAVING max(group_size) = 1
), called AS (
  SELECT rank, count(*) AS n FROM events
  WHERE kind = 'annotation' AND starts_with(name::VARCHAR, 'nccl:')
    AND rank NOT IN (SELECT rank FROM alone WHERE rank IS NOT NULL)
  GROUP BY rank
), met AS (
  SELECT rank, coalesce(reason, '')::VARCHAR AS reason, count(*) AS n FROM matches
  WHERE (SELECT count(DISTINCT rank) FROM matches) > 1 GROUP BY ALL
)
SELECT 'impossible_duration' AS problem, rank, count(*) AS count,
       format('{{}} and others: cut at the next start on their stream, {{:.3f}} ms left out',
              any_value(label ORDER BY recorded_ns - dur_ns DESC), sum(recorded_ns - dur_ns) / 1e6) AS detail
FROM work WHERE recorded_ns <> dur_ns GROUP BY rank
UNION ALL
SELECT 'in_flight_kernels', rank, count(*), 'launched before the recording began: without operator, step or size'
FROM work WHERE in_flight GROUP BY rank
UNION ALL
SELECT 'unlinked_kernels', rank, count(*), 'no launching call was recorded for them: steps and operators come from time'
FROM work WHERE on_device AND launch_ns IS NULL AND NOT coalesce(in_flight, false) GROUP BY rank
UNION ALL
SELECT 'unclassified_kernels', rank, sum(n)::BIGINT,
       format('{{:.3f}} ms, most of it {{}}', sum(dur_ns) / 1e6, any_value(label ORDER BY dur_ns DESC))
FROM unknown GROUP BY rank
UNION ALL
SELECT 'no_collective_record', rank, count(*),
       format('{{:.3f}} ms of communication without a recorded size: no bandwidth is given for it', sum(dur_ns) / 1e6)
FROM collectives WHERE size_bytes IS NULL GROUP BY rank
UNION ALL
SELECT 'comm_kernels_missing', rank, n,
       'collectives were called, but no communication kernel was recorded: how long it took is unknown'
FROM called WHERE rank IN (SELECT rank FROM work WHERE on_device) AND rank NOT IN (SELECT rank FROM collectives)
UNION ALL
SELECT 'unmatched_calls', rank, sum(n) FILTER (reason <> '')::BIGINT,
       format('{{}} of {{}} communication calls were not found on other ranks: {{}}',
              sum(n) FILTER (reason <> ''), sum(n), string_agg(reason || ' ' || n, ', ' ORDER BY n DESC)
              FILTER (reason <> ''))
FROM met GROUP BY rank HAVING sum(n) FILTER (reason <> '') > 0
UNION ALL
SELECT 'clocks_apart', clocks.rank, shared_count,
       format('its clock is {{:.3f}} ms from that of rank {{}}, known to {{:.3f}} ms; times are corrected',
              -offset_ns / 1e6, reference, error_ns / 1e6)
FROM clocks WHERE offset_ns <> 0
UNION ALL
SELECT 'no_steps', rank, 1, 'no step is marked: figures per step cannot be given, the whole recording is analysed'
FROM (SELECT DISTINCT rank FROM work WHERE rank NOT IN (SELECT rank FROM steps))
UNION ALL
SELECT 'guessed_steps', rank, count(*), 'steps are a guess, from communication that repeats'
FROM steps WHERE source = 'collectives' GROUP BY rank
UNION ALL
SELECT 'one_step', rank, 1, 'one step is no average: profile three or more'
FROM steps GROUP BY rank HAVING count(*) = 1
UNION ALL
SELECT 'incomplete_step', rank, count(*), format('step {{}} is cut by the end of the recording', any_value(step))
FROM steps WHERE NOT complete GROUP BY rank
UNION ALL
SELECT 'cold_call', rank, cold_count,
       format('{{}} of {{}} {{}} calls come after a pause of at least {{:.3f}} ms and take {{:.3f}} ms, the others '
              '{{:.3f}} ms (median): warm-up, not the cost of the operation', cold_count, calls_count, op::VARCHAR,
              coalesce(pause_ns, 0) / 1e6, cold_ns / 1e6, median_ns / 1e6)
FROM cold_calls
UNION ALL
SELECT 'profiler_overhead', rank, n,
       format('in {{:.1f}} % of the recording the host was in the profiler; the device may have worked on', share * 100)
FROM overhead WHERE share > {VISIBLE_OVERHEAD_RATIO}
"""


def doubts(  # noqa: PLR0913, PLR0917  (one parameter per table)
    kernels: pa.Table,
    collectives: pa.Table,
    steps: pa.Table,
    profiler_cost: pa.Table,
    files: pa.Table,
    matches: pa.Table,
    clocks: pa.Table,
    events: pa.Table,
    calls: pa.Table,
    cold_calls: pa.Table,
) -> pa.Table:
    """One row per doubt and rank; `count` is how many events or steps it concerns."""
    with sql.over(
        kernels=kernels,
        collectives=collectives,
        steps=steps,
        profiler_cost=profiler_cost,
        files=files,
        matches=matches,
        clocks=clocks,
        events=events,
        calls=calls,
    ) as connection:
        rows = connection.sql(
            f"""SELECT problem, path, rank, count, detail FROM ({_DOUBTS}) AS doubts
                LEFT JOIN (SELECT rank, arg_min(path, (kind <> 'kineto', path)) AS path FROM files
                           WHERE status <> 'unusable' GROUP BY rank)
                USING (rank) ORDER BY rank, problem"""
        ).fetchall()
    columns = zip(*rows, strict=True) if rows else [()] * 5
    return SCHEMA.build(dict(zip(("problem", "path", "rank", "count", "detail"), columns, strict=True)))
