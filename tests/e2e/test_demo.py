"""`trainyard demo` from nothing: what a newcomer runs first, with fewer steps than it takes to learn something."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.systems.forked_agents import ForkedAgents
from tests.systems.running_up import trainyard
from tests.systems.system import NODE_WARM

# Two cold starts of the training libraries, by which the model is made and asked. Ranks and preflight are forked.
pytestmark = [pytest.mark.long, pytest.mark.timeout(330)]

STEPS = 6


def test_demo_trains_a_model_from_nothing_and_leaves_no_process_behind(
    tmp_path: Path, forked_agents: ForkedAgents
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_")}
    if NODE_WARM is None:
        environment["TRAINYARD_NODE_WARM"] = "supervisors"
        forked_agents.serve(tmp_path / "demo" / "data")
    done = subprocess.run(
        trainyard("demo", "--data-dir", str(tmp_path / "demo"), "--steps", str(STEPS)),
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    headings = [
        "Before training",
        "Starting the platform on this machine",
        "Training: ",
        "Loss by step",
        "After training",
    ]
    places = [done.stdout.index(f"\n{heading}") for heading in headings]
    assert places == sorted(places)
    assert "COMPLETED" in done.stdout
    assert re.search(rf"Loss    \d+\.\d+ → \d+\.\d+, .* {STEPS} steps", done.stdout)
    model = re.search(r"^Model   (.+)$", done.stdout, re.MULTILINE)
    assert model is not None
    assert (Path(model[1]) / "model.safetensors").stat().st_size > 0
    assert str(tmp_path / "demo" / "data") in model[1]
    answer = done.stdout.partition("\nAfter training\n")[2]
    assert re.search(r"^POST /v1/completions, model job-\S+; .*\n.+", answer), done.stdout
    assert not list((tmp_path / "demo" / "data" / "run").glob("*.pid"))
    assert not _processes_naming(tmp_path)


def _processes_naming(directory: Path) -> list[str]:
    lines = [path.read_bytes().replace(b"\0", b" ").decode() for path in _command_lines()]
    return [line for line in lines if str(directory) in line]


def _command_lines() -> list[Path]:
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
