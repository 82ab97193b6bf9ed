"""These tests run the whole system."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.installations import make_system, shared_system

__all__ = ["make_system", "shared_system"]

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def assets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The demo's model and data: built once, and only read."""
    folder = tmp_path_factory.mktemp("assets")
    command = [sys.executable, "-m", "examples.build_demo_assets", "--out", str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=120)
    return dict(json.loads(done.stdout.splitlines()[-1]))
