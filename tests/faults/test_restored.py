"""A system whose database was restored to an earlier state continues from there."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.systems.installations import counting_job, steps_said
from tests.systems.system import TRAINYARD, System

pytestmark = [pytest.mark.long, pytest.mark.new_database]

STEPS = 120
PARTS = ("api", "coordinator", "node-n1")


def command(system: System, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([TRAINYARD, *arguments], env=system.environment, capture_output=True, text=True, check=False)


def test_a_restored_system_goes_on(make_system: Callable[..., System], database_url: str, tmp_path: Path) -> None:
    system = make_system(database_url=database_url).start("n1")
    job_id = system.submit(counting_job(steps=STEPS, step_seconds=0.1))
    system.wait_for_step(job_id, 15)

    taken = command(system, "db", "backup", str(tmp_path / "copy"))

    forgotten = system.submit(counting_job(steps=1))
    system.wait_for_status(job_id, "COMPLETED")
    system.wait_for_status(forgotten, "COMPLETED")
    refused = command(system, "db", "restore", str(tmp_path / "copy"), "--yes")
    for part in PARTS:
        system.kill(part)
    restored = command(system, "db", "restore", str(tmp_path / "copy"), "--yes")
    system.start_api()
    system.start_coordinator()
    system.start_node("n1")

    assert (taken.returncode, refused.returncode, restored.returncode) == (0, 1, 0), restored.stderr
    assert "1 running job(s) were requeued" in restored.stdout
    job = system.wait_for_status(job_id, "COMPLETED")
    assert job["attempt"] == 2
    assert steps_said(system.log_lines(job_id))[-1][0] == STEPS
    assert system.call("GET", f"/v1/jobs/{forgotten}")[0] == 404
    assert command(system, "db", "check").returncode == 0
