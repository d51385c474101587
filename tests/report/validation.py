"""`check(document)`: hold a diagnosis to the published schema; any test that has one may call it."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import jsonschema

SCHEMA: dict[str, Any] = json.loads(resources.files("diagnose").joinpath("diagnosis.schema.json").read_text("utf-8"))


def check(document: dict[str, Any]) -> None:
    """Raise jsonschema.ValidationError where `document` (of `Diagnosis.to_dict()`) departs from the schema."""
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(document, allow_nan=False)))
