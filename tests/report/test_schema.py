"""The published JSON schema: valid itself, met by the product, closed at its top levels, frozen key by key."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import jsonschema
import pytest

from diagnose.findings import SEVERITIES, SYMPTOMS, Finding, Symptom
from tests.report.example import GOLDEN, example
from tests.report.validation import SCHEMA, check


def test_the_schema_itself_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_the_example_meets_the_schema_and_the_golden_file() -> None:
    document = json.loads(example().to_json())

    check(document)
    assert document == json.loads(GOLDEN.read_text("utf-8")), "run: python -m tests.report.example"


def test_frozen_keys() -> None:
    assert list(SCHEMA["properties"]) == [
        "schema_version", "tool", "inputs", "job", "quality", "step_time", "window", "symptoms", "questions",
        "findings", "outcomes", "memory", "plan", "plan_reason",
    ]  # fmt: skip
    assert SCHEMA["required"] == [key for key in SCHEMA["properties"] if key != "plan_reason"]  # came later
    for name, kind in (("finding", Finding), ("symptom", Symptom)):
        assert list(SCHEMA["$defs"][name]["properties"]) == [f.name for f in dataclasses.fields(kind)]
    assert SCHEMA["$defs"]["finding"]["properties"]["severity"]["enum"] == list(SEVERITIES)
    assert SCHEMA["$defs"]["symptom_id"]["enum"] == list(SYMPTOMS)


def _set(document: dict[str, Any], path: str, value: Any) -> None:
    *way, last = path.split(".")
    for key in way:
        document = document[int(key) if key.isdigit() else key]  # type: ignore[index]
    document[last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("extra", 1),
        ("schema_version", 2),
        ("tool.build", "x"),
        ("inputs.0.status", "fine"),
        ("job.extra", 1),
        ("step_time.median_ns", 1.5),
        ("step_time.parts.0.dur_ns", -1),
        ("findings.0.lost_ns", None),
        ("findings.0.severity", "fatal"),
        ("symptoms.0.status", "maybe"),
        ("symptoms.0.symptom", "moe_drop"),  # then comm_saturation is missing
        ("outcomes.0.extra", 1),
        ("job.layout.dp.value", "16"),
    ],
)
def test_what_the_schema_refuses(path: str, value: Any) -> None:
    document = copy.deepcopy(example().to_dict())
    _set(document, path, value)

    with pytest.raises(jsonschema.ValidationError):
        check(document)
