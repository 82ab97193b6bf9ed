"""`trainyard up` on a machine without bubblewrap: jobs wait until running without a sandbox is allowed explicitly."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.doubles.bubblewraps import path_without
from tests.systems.installations import counting_job
from tests.systems.running_up import RunningUp, trainyard, wait_until

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parents[1] / "scripts" / "count.py"


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    (tmp_path / "inputs" / "model").mkdir(parents=True)
    (tmp_path / "inputs" / "model" / "config.json").write_text("{}")
    (tmp_path / "inputs" / "data.jsonl").write_text('{"text": "a line"}\n')
    (tmp_path / "inputs" / "count.py").write_bytes(SCRIPT.read_bytes())
    return tmp_path / "inputs"


def command(up: RunningUp, environment: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    asked = {**os.environ, **environment, "TRAINYARD_DATA_DIR": str(up.data_dir)}
    return subprocess.run(trainyard(*arguments), env=asked, capture_output=True, text=True, timeout=90, check=False)


def test_jobs_wait_until_the_risk_is_accepted_and_the_doctor_tells_of_it(tmp_path: Path, inputs: Path) -> None:
    machine = {"PATH": path_without(tmp_path / "programs", "bwrap", "apt-get"), "TRAINYARD_STORAGE_ROOTS": str(inputs)}
    (tmp_path / "job.json").write_text(json.dumps(counting_job(steps=2, step_seconds=0.01)))

    up = RunningUp(tmp_path / "data", environment=machine).wait_until_ready()
    try:
        job_id = command(up, machine, "submit", str(tmp_path / "job.json")).stdout.strip()
        wait_until(lambda: "has no sandbox for jobs" in (up.get(f"/v1/jobs/{job_id}")[1]["pending_reason"] or ""))
        refusing = json.loads(command(up, machine, "doctor", "--json").stdout)
    finally:
        up.stop()
    output = up.output
    accepting = RunningUp(tmp_path / "data", "--no-sandbox", environment=machine).wait_until_ready()
    try:
        wait_until(lambda: accepting.get(f"/v1/jobs/{job_id}")[1]["status"] == "COMPLETED", 40)
        accepted = json.loads(command(accepting, machine, "doctor", "--json").stdout)
    finally:
        accepting.stop()

    assert "Jobs cannot start here: bubblewrap is not installed. Either install it" in output
    assert "accept the risk with --no-sandbox" in output
    assert "Jobs run without a sandbox, with all permissions of this user." in accepting.output
    assert not (tmp_path / "data" / "run" / "no-sandbox").exists()
    levels = [{each["check"]: each["level"] for each in doctor["checks"]} for doctor in (refusing, accepted)]
    assert (levels[0]["nodes"], levels[1]["nodes"], levels[1]["sandbox"]) == ("failed", "warning", "warning")


def test_the_demo_does_not_begin_what_would_wait(tmp_path: Path) -> None:
    machine = {"PATH": path_without(tmp_path / "programs", "bwrap", "apt-get")}

    said = subprocess.run(
        trainyard("demo", "--data-dir", str(tmp_path / "demo")),
        env={**os.environ, **machine},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert said.returncode == 1
    assert "bubblewrap is not installed" in said.stderr
    assert "--no-sandbox" in said.stderr
    assert not (tmp_path / "demo").exists()
