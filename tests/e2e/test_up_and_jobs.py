"""What becomes of running jobs when `trainyard up` is stopped or killed."""

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.host.processes import processes_of_attempt
from tests.systems.installations import counting_job
from tests.systems.running_up import RunningUp, is_alive, trainyard, wait_until
from tests.systems.servers import free_port


class Installation:
    """One data directory, on which `up` is started again and again on the same port."""

    def __init__(self, folder: Path, owned_pids: set[int]) -> None:
        self._folder = folder
        self._owned_pids = owned_pids
        self._port = str(free_port())
        self._inputs = folder / "inputs"
        (self._inputs / "model").mkdir(parents=True)
        (self._inputs / "model" / "config.json").write_text("{}")
        (self._inputs / "data.jsonl").write_text('{"text": "a line"}\n')
        shutil.copy(Path(__file__).parents[1] / "scripts" / "count.py", self._inputs)
        self.up = self.start()

    def start(self, *, tensorboard: bool = False) -> RunningUp:
        roots = {"TRAINYARD_STORAGE_ROOTS": str(self._inputs)}
        self.up = RunningUp(
            self._folder / "data", "--port", self._port, environment=roots, tensorboard=tensorboard
        ).wait_until_ready()
        self._owned_pids.add(self.up.process.pid)
        return self.up

    def submit(self, *, steps: int, step_seconds: float, save_every: int) -> str:
        document = counting_job(steps=steps, step_seconds=step_seconds)
        document["training_config"]["hyperparameters"]["save_every"] = str(save_every)
        path = self._folder / "job.json"
        path.write_text(json.dumps(document))
        return self.command("submit", str(path)).stdout.strip()

    def command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "TRAINYARD_DATA_DIR": str(self.up.data_dir)}
        return subprocess.run(
            trainyard(*arguments), env=environment, capture_output=True, text=True, timeout=90, check=True
        )

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(self.up.get(f"/v1/jobs/{job_id}")[1])

    def wait_for_step(self, job_id: str, step: int) -> None:
        wait_until(lambda: self.job(job_id)["current_step"] >= step, 40)

    def steps_said(self, job_id: str) -> list[int]:
        log = self.command("logs", job_id, "--tail", "10000").stdout
        return [int(step) for step in re.findall(r"step (\d+)", log)]


def tags_on_tensorboard(up: RunningUp, job_id: str) -> set[str]:
    """As its server tells a browser."""
    board = up.get(f"/v1/jobs/{job_id}/tensorboard")[1]
    request = urllib.request.Request(f"{board['url']}data/plugin/scalars/tags")
    request.add_header("Authorization", f"Bearer {board['token']}")
    found: set[str] = set()

    def has_read_them() -> bool:
        with urllib.request.urlopen(request, timeout=60) as answer:
            found.update(tag for run in json.load(answer).values() for tag in run)
        return bool(found)

    wait_until(has_read_them, 30)
    return found


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]) -> Iterator[Installation]:
    """Running, also after each test."""
    made = Installation(tmp_path_factory.mktemp("installation"), owned_pids)
    yield made
    made.up.stop()


@pytest.mark.long
def test_a_stop_saves_running_jobs_and_the_next_start_goes_on(installation: Installation) -> None:
    job_id = installation.submit(steps=300, step_seconds=0.03, save_every=1000)
    installation.wait_for_step(job_id, 20)

    assert installation.up.stop() == 0

    assert not processes_of_attempt(job_id, 1)
    installation.start(tensorboard=True)
    watched = installation.command("watch", job_id)
    assert "COMPLETED" in watched.stdout
    assert installation.job(job_id)["attempt"] == 2
    assert "train/loss" in tags_on_tensorboard(installation.up, job_id)
    said = installation.steps_said(job_id)
    assert said == list(range(1, 301)), "every step once: nothing lost, nothing done again"


@pytest.mark.long
def test_a_kill_leaves_the_job_running_and_the_next_start_adopts_it(installation: Installation) -> None:
    job_id = installation.submit(steps=200, step_seconds=0.05, save_every=50)
    installation.wait_for_step(job_id, 20)
    pids = installation.up.pids()

    installation.up.stop(signal.SIGKILL)
    wait_until(lambda: not any(is_alive(pid) for pid in pids.values()))
    assert processes_of_attempt(job_id, 1), "the supervisor lives on"
    installation.start()

    assert "COMPLETED" in installation.command("watch", job_id).stdout
    assert installation.job(job_id)["attempt"] == 1
    assert installation.steps_said(job_id) == list(range(1, 201))
