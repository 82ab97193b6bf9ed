"""What the conformance tests share: a tiny model with dropout and a few real records."""

from pathlib import Path

import pytest

from tests.trainers.in_process import make_assets


@pytest.fixture(scope="session")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's model and records, the model with dropout: only then do random numbers matter."""
    return make_assets(tmp_path_factory.mktemp("assets") / "demo")
