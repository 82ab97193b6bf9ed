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
def assets(demo_assets: Path) -> dict[str, str]:
    """The demo's model and data, which are only read: where each is, as the program says that finds all built."""
    command = [sys.executable, "-m", "examples.build_demo_assets", "--out", str(demo_assets)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=120)
    return dict(json.loads(done.stdout.splitlines()[-1]))
