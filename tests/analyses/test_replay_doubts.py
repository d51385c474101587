"""A replay that is withheld is said; one that answers is not."""

from __future__ import annotations

from diagnose.analyses.replay_doubts import replay_doubts
from tests.rules.build import table


def test_only_what_was_withheld() -> None:
    answered = table("rank_what_if", [{"fixed": "nothing", "error_ratio": 0.01}])
    withheld = table("what_if", [{"fixed": "nothing", "reason": "5 forward receives for 12 computations"}])
    (row,) = replay_doubts(withheld, answered).to_pylist()

    assert (
        row["problem"] == "no_replay"
        and row["detail"] == "replay of the pipeline: 5 forward receives for 12 computations"
    )
    assert replay_doubts().num_rows == 0 and replay_doubts(rank_what_if=table("rank_what_if", [])).num_rows == 0
