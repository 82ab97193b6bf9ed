"""What the trainer tests share: a tiny model with dropout and a few real records."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainers.supervision import ROOT


@pytest.fixture(scope="session")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's model and records, the model with dropout: only then do random numbers matter."""
    directory = tmp_path_factory.mktemp("assets") / "demo"
    command = [sys.executable, "-m", "examples.build_demo_assets", "--out", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    path = directory / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "attention_dropout": 0.1}))
    for name, count in (("train", 60), ("chat", 60), ("validation", 12)):
        file = directory / f"{name}.jsonl"
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:count]))
    return directory
