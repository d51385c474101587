"""config-difference: settings that differ from a described reference, and nothing else."""

from __future__ import annotations

from tests.rules.build import finding, quiet, tables


def fires(**more: str):
    given = {"layout.pp": "8", "layout.tp": "8", "train.recompute": "full", "tflops_per_gpu": "300.0"}
    other = {"reference.layout.pp": "2", "reference.layout.tp": "8", "reference.train.recompute": "none"}
    every = given | other | {"reference.tflops_per_gpu": "420.0"} | more
    return tables(settings=[{"key": k, "value": v, "source": "config.json"} for k, v in every.items()])


def test_fires_with_the_settings_that_differ():
    found = finding("config-difference", fires())
    assert found.severity == "info"
    assert "pp 8 against 2, train.recompute full against none;" in found.summary
    assert found.evidence["settings_count"] == 2


def test_quiet_on_equal_settings_and_without_a_reference():
    quiet("config-difference", fires(**{"reference.layout.pp": "8", "reference.train.recompute": "full"}))
    quiet("config-difference", tables(settings=[{"key": "layout.pp", "value": "8", "source": "x"}]))
