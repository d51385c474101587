"""Where the public corpus of real traces lies, for tests that walk it."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

from tests import ask


# CI tries the same examples every time, so that it only fails for a change; at a desk they are new ones each time.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Folder of the corpus; skips where there is none."""
    folder = ask.corpus_folder()
    if not folder.is_dir():
        pytest.skip(f"no corpus of real traces at {folder}; set DIAGNOSE_CORPUS to run this test")
    return folder
