"""full-recompute: what settings say of recomputation, as a law and not as a measurement."""

from __future__ import annotations

import pytest

from tests.rules.build import finding, quiet, tables


def fires(*values: str):
    rows = [{"key": "train.recompute", "value": value, "source": "/a/b/config.json"} for value in values or ("full",)]
    return tables(settings=rows)


def test_fires_on_full_recomputation():
    found = finding("full-recompute", fires())
    assert (found.severity, found.lost_ns) == ("info", 0)
    assert found.evidence["share_ratio"] == pytest.approx(0.25, abs=1e-4)
    assert "(config.json)" in found.summary
    assert "not measured" in found.summary


@pytest.mark.parametrize("values", [("selective",), ("none",), ('["mlp"]',), ("full", "selective")])
def test_quiet_on_less_and_on_settings_that_disagree(values: tuple[str, ...]):
    quiet("full-recompute", fires(*values))


def test_quiet_without_the_setting():
    quiet("full-recompute", tables(settings=[{"key": "layout.pp", "value": "8", "source": "x"}]))
