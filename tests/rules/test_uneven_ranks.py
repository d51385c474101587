"""uneven-ranks: the fullest rank decides."""

from __future__ import annotations

from diagnose.schema import Tables
from tests.rules.build import finding, outcome, tables, turns_exactly_at
from tests.rules.memory_rows import GIB


def job(*gib: float, first: int = 0, device_gib: float = 80, failed: int | None = None) -> Tables:
    rows = [
        {"rank": first + rank, "device": 0, "source": "snapshot", "index": 3, "allocated_bytes": int(size * GIB)}
        for rank, size in enumerate(gib)
    ]
    files = [{"rank": row["rank"], "gpu_memory_bytes": int(device_gib * GIB)} for row in rows]
    moments = [] if failed is None else [{"rank": failed, "device": 0, "moment": "oom", "tried_bytes": GIB}]
    return tables(memory=rows, files=files, memory_moments=moments)


def fires() -> Tables:
    return job(40, 40, 40, 60, device_gib=70)


def test_names_the_rank() -> None:
    found = finding("uneven-ranks", fires())
    assert (found.ranks, found.lost_bytes, found.evidence["figure"]) == ((3,), 20 * GIB, "allocated")


def test_one_rank_has_nobody_to_compare_with() -> None:
    assert outcome("uneven-ranks", job(40)).status == "skipped"


def test_unknown_ranks_may_be_one_and_the_same() -> None:
    assert outcome("uneven-ranks", job(40, 80, first=-2)).status == "skipped"


def test_thresholds() -> None:
    turns_exactly_at("uneven-ranks", fires(), min_more_ratio=0.5)


def test_with_room_to_spare_it_is_only_mentioned() -> None:
    """Pipeline stages differ by design."""
    assert finding("uneven-ranks", job(40, 40, 40, 64, device_gib=80)).severity == "info"
    assert finding("uneven-ranks", job(40, 40, 40, 64.1, device_gib=80)).severity == "warning"
    assert finding("uneven-ranks", job(40, 40, 40, 60, device_gib=80, failed=1)).severity == "warning"


def test_a_difference_that_no_device_notices_is_none() -> None:
    kib = 1 / 2**20

    assert outcome("uneven-ranks", job(40 * kib, 40 * kib, 60 * kib)).status == "clear"
    assert outcome("uneven-ranks", job(4, 4, 4, 5 - kib)).status == "clear"
    assert outcome("uneven-ranks", job(4, 4, 4, 5)).status == "found"
