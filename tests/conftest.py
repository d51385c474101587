"""Where the public corpus of real traces lies, for tests that walk it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Folder of the corpus: $DIAGNOSE_CORPUS, else ../shared/corpus beside the checkout. Skips where there is none."""
    folder = Path(os.environ.get("DIAGNOSE_CORPUS") or Path(__file__).parents[2] / "shared" / "corpus")
    if not folder.is_dir():
        pytest.skip(f"no corpus of real traces at {folder}; set DIAGNOSE_CORPUS to run this test")
    return folder
