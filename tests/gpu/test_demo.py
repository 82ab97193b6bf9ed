"""The README's first command on a machine with a GPU."""

import subprocess
from pathlib import Path

import pytest

from tests.gpu.driver import computing_pids
from tests.systems.system import TRAINYARD

pytestmark = pytest.mark.gpu


def test_the_demo_trains_on_the_gpus_there_are(tmp_path: Path) -> None:
    command = [TRAINYARD, "demo", "--data-dir", str(tmp_path / "demo"), "--steps", "300"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "times lower" in done.stdout
    assert "After training" in done.stdout
    assert computing_pids() == set()
