"""Records of a thousand ranks, written by the simulator: seen at a glance and diagnosed."""

from __future__ import annotations

from pathlib import Path

from diagnose import pipeline
from diagnose.live import ranks, watching
from fixtures.simulate import hook_records

RANKS, SLOW = 1000, 417


def test_a_thousand_ranks_attach_and_diagnose(tmp_path: Path) -> None:
    hook_records.write(tmp_path, RANKS, 40, slow_rank=SLOW)

    found = ranks.of_run(tmp_path)
    rows = watching.rows(found)
    assert (len(rows), found.problems) == (RANKS, [])
    slow = watching.slowest(rows)
    assert slow is not None and slow["rank"] == SLOW

    diagnosis = pipeline.run([tmp_path], workers=1)
    (finding,) = [f for f in diagnosis.findings if f.rule == "slow-rank"]
    assert finding.ranks == (SLOW,)
    assert 25e6 < finding.lost_ns < 31e6, "30 ms less what the next rank's noise takes"


def test_a_healthy_job_of_many_ranks_has_no_slow_rank(tmp_path: Path) -> None:
    hook_records.write(tmp_path, 64, 60)

    assert watching.slowest(watching.rows(ranks.of_run(tmp_path))) is None
    assert pipeline.run([tmp_path], workers=1).findings == []
