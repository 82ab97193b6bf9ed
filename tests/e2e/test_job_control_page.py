"""docs/tutorials/job-control.md as a reader follows it: its commands, in their order, on a real `trainyard up`."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systems.running_up import RunningUp

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "job-control.md"
SECONDS = 150.0


@pytest.fixture
def up(tmp_path: Path) -> Iterator[RunningUp]:
    """Started from the directory in which the commands are typed."""
    running = RunningUp(tmp_path / "data").wait_until_ready()
    yield running
    running.stop()


def commands() -> str:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return "\n".join(["set -euo pipefail", *blocks])


def test_job_is_paused_resumed_retried_and_cancelled_by_curl(up: RunningUp, tmp_path: Path) -> None:
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "url": f"{up.url}/v1", "key": up.key}

    followed = subprocess.run(
        ["bash", "-c", commands()],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert followed.returncode == 0, followed.stdout + followed.stderr
    said = followed.stdout
    shown = [(line["status"], line["requested"]) for line in briefs(said)]
    pausing = ("TRAINING", "pause")
    for step in (pausing, ("PAUSED", "None"), ("QUEUED", "None"), ("TRAINING", "None"), ("CANCELLED", "None")):
        assert step in shown
    order = [shown.index(step) for step in (pausing, ("PAUSED", "None"), ("QUEUED", "None"), ("CANCELLED", "None"))]
    assert order == sorted(order)
    assert "cannot be resumed; only a PAUSED job can" in said
    children = re.findall(
        r"job-[0-9a-f-]+",
        next(line["child_job_ids"] for line in reversed(briefs(said)) if line["child_job_ids"] != "[]"),
    )
    assert len(children) == 2
    assert '"total_count":2' in said
    assert "continues from ckpt-" in said
    assert up.get("/v1/jobs")[1]["jobs"] == [], "the last commands clean up"


def briefs(said: str) -> list[dict[str, str]]:
    """What the page's `brief` has printed of jobs."""
    return [dict(re.findall(r"(\w+)=(\[.*?\]|\S+)", line)) for line in said.splitlines() if line.startswith("status=")]
