"""Jobs of a node that confines them by Landlock, under a supervisor."""

import pytest

from app.domain.lifecycle.states import JobState
from app.host.landlock import lack_of_landlock

SCRIPT = """
import pathlib, os
from trainyard import hooks
hooks.init()
try:
    print("read", pathlib.Path({secret!r}).read_text(), flush=True)
except OSError as error:
    print(type(error).__name__, flush=True)
pathlib.Path(os.environ["TRAINYARD_OUTPUT_DIR"], "result").write_text("made")
"""


@pytest.fixture(scope="module", autouse=True)
def _landlock() -> None:
    if lack := lack_of_landlock():
        pytest.skip(lack.detail)


def test_job_completes_and_reaches_its_own_files_alone(make_world, tmp_path):
    world = make_world(TRAINYARD_NODE_SANDBOX="landlock")
    secret = tmp_path / "secret"
    secret.write_text("canary")
    job_id = world.start(SCRIPT.format(secret=str(secret)), ranks=2)

    job = world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert world.log(job_id) == ["PermissionError"] * 2


def test_rank_that_fails_fails_its_job_as_elsewhere(make_world):
    world = make_world(TRAINYARD_NODE_SANDBOX="landlock")
    job_id = world.start("raise SystemExit(7)")

    world.wait_for_end(job_id)

    assert "7" in world.attempt(job_id).end_reason, world.describe(job_id)
    assert world.processes(job_id) == []
