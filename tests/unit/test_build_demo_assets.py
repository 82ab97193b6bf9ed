"""Making the demo's model and data, where it fails."""

import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_nothing_is_left_when_building_fails(tmp_path):
    command = [sys.executable, "-B", "-m", "examples.build_demo_assets", "--out", str(tmp_path / "demo")]

    ended = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )

    assert "OSError" in ended.stderr
    assert list(tmp_path.iterdir()) == []
