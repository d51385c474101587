"""Where the public corpus of real traces lies, for tests that walk it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ask


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Folder of the corpus; skips where there is none."""
    folder = ask.corpus_folder()
    if not folder.is_dir():
        pytest.skip(f"no corpus of real traces at {folder}; set DIAGNOSE_CORPUS to run this test")
    return folder
