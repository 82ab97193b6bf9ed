"""The document of examples/sweeps through a real `trainyard up`, by the command line, with few short trials."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli.local.demo_sweep import document, shortened
from tests.systems.running_up import RunningUp, trainyard
from tests.systems.system import NODE_WARM

# Four trainings of nine steps; the first waits for the imports of the fork servers.
pytestmark = [pytest.mark.examples, pytest.mark.timeout(300)]

STEPS, TRIALS = 9, 4


@pytest.fixture
def up(tmp_path: Path, demo_assets: Path) -> Iterator[RunningUp]:
    environment = {"TRAINYARD_STORAGE_ROOTS": str(demo_assets), "TRAINYARD_NODE_WARM": NODE_WARM or "auto"}
    running = RunningUp(tmp_path / "data", environment=environment).wait_until_ready()
    yield running
    running.stop()


def command(up: RunningUp, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "TRAINYARD_DATA_DIR": str(up.data_dir)}
    return subprocess.run(
        trainyard("sweep", *arguments), env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def test_the_best_trial_is_found_watched_and_replayed(up: RunningUp, tmp_path: Path, demo_assets: Path) -> None:
    sweep = shortened(document(demo_assets, None), STEPS)
    sweep["budget"]["max_trials"] = TRIALS
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))

    watched = command(up, "submit", str(tmp_path / "sweep.json"), "--watch")

    assert watched.returncode == 0, watched.stdout + watched.stderr + up.output
    sweep_id = watched.stdout.split()[1]
    trials = json.loads(command(up, "trials", sweep_id, "--json").stdout)["trials"]
    values = [trial["objectives"][0] for trial in trials if trial["state"] == "COMPLETED"]
    [best] = json.loads(command(up, "best", sweep_id, "--json").stdout)["trials"]
    assert [trial["number"] for trial in trials] == list(range(TRIALS))
    assert {trial["state"] for trial in trials} <= {"COMPLETED", "STOPPED"}
    assert best["objectives"] == [min(values)]
    assert best["document"]["training_config"]["hyperparameters"]["lora_r"] == str(best["values"]["lora_r"])
    assert all(
        ("warmup_ratio" in each["values"]) == (each["values"]["lr_scheduler_type"] == "cosine") for each in trials
    )
    assert command(up, "replay", sweep_id).returncode == 0
    assert f"best {min(values):.4g} (#{best['number']})" in watched.stdout
