"""Device work by name: the top-kernel list.

Durations are summed, so kernels that ran side by side count twice and shares are of the summed time, not of the
window. The duration of a communication kernel includes waiting for its peers. Impossible durations were cut before.
"""

from __future__ import annotations

import pyarrow as pa

from diagnose import sql
from diagnose.schema import FLOAT, INT32, INT64, LABEL, table

SCHEMA = table(
    "kernel name on one rank",
    ("rank", INT32, "global rank"),
    ("name", LABEL, "kernel name"),
    ("class", LABEL, "as in kernels"),
    ("category", LABEL, "as in kernels"),
    ("calls_count", INT64, "times it ran"),
    ("dur_ns", INT64, "total"),
    ("median_ns", INT64, "median of one call (the lower of two middle ones)"),
    ("max_ns", INT64, "longest call"),
    ("share_ratio", FLOAT, "of all device work time of the rank; null where that is 0"),
    ("module", LABEL, "module or named range with most of its time; null where most has none"),
    ("source", LABEL, "source line with most of its time, where recorded"),
)

# A null module competes as an empty one: a label that holds little of the time would mislead.
_QUERY = """
WITH work AS (
    SELECT rank, name, class, category, dur_ns, coalesce(module, '') AS module, coalesce(source, '') AS source
    FROM kernels
), modules AS (
    SELECT rank, name, class, category, module, sum(dur_ns) AS time FROM work GROUP BY ALL
), sources AS (
    SELECT rank, name, class, category, source, sum(dur_ns) AS time FROM work GROUP BY ALL
), totals AS (
    SELECT rank, name, class, category, count(*) AS calls_count, sum(dur_ns) AS dur_ns,
        quantile_disc(dur_ns, 0.5) AS median_ns, max(dur_ns) AS max_ns
    FROM work GROUP BY ALL
), top_modules AS (
    SELECT rank, name, class, category, nullif(max_by(module, (time, module)), '') AS module FROM modules GROUP BY ALL
), top_sources AS (
    SELECT rank, name, class, category, nullif(max_by(source, (time, source)), '') AS source FROM sources GROUP BY ALL
)
SELECT t.*, t.dur_ns / nullif(sum(t.dur_ns) OVER (PARTITION BY t.rank), 0) AS share_ratio, m.module, s.source
FROM totals t
JOIN top_modules m ON (t.rank, t.name, t.class, t.category) IS NOT DISTINCT FROM (m.rank, m.name, m.class, m.category)
JOIN top_sources s ON (t.rank, t.name, t.class, t.category) IS NOT DISTINCT FROM (s.rank, s.name, s.class, s.category)
ORDER BY t.rank, t.dur_ns DESC, t.name
"""


def kernel_totals(kernels: pa.Table) -> pa.Table:
    """One row per kernel name and rank, longest total first."""
    with sql.over(kernels=kernels) as connection:
        found: pa.Table = connection.sql(_QUERY).to_arrow_table()
    return found.select(SCHEMA.arrow.names).cast(SCHEMA.arrow)
