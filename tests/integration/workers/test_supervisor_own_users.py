"""Jobs of a project that demands a host user or a second lock for each attempt, under a supervisor."""

import pytest

from app.domain.lifecycle.states import JobState
from app.host.landlock import lack_of_landlock
from tests.builders.factories import make_project


@pytest.mark.parametrize("capability", ["sandbox:uid", "sandbox:locked", "sandbox:peers"])
@pytest.mark.parametrize("demands", [True, False], ids=["demanded", "not demanded"])
def test_job_does_not_run_without_the_isolation_that_its_project_demands(make_world, demands, capability):
    world = make_world(TRAINYARD_NODE_SANDBOX="process")
    with world.db.write() as session:
        make_project(session).quota = {"required_capabilities": [capability]} if demands else {}
    job_id = world.start("print('ran', flush=True)")

    world.wait(lambda: world.attempt(job_id).ended_at is not None, 20.0, job_id)

    attempt = world.attempt(job_id)
    world.wait(lambda: not world.supervisor_alive(job_id, 1), 5.0, job_id)
    assert (world.log(job_id) == ["ran"]) is not demands
    assert (capability in (attempt.end_reason or "")) is demands, world.describe(job_id)
    assert (world.job(job_id).state is JobState.COMPLETED) is not demands


@pytest.mark.parametrize("demands", [True, False], ids=["demanded", "not demanded"])
def test_agent_is_told_that_the_lock_is_demanded(make_world, demands):
    if lack := lack_of_landlock(in_sandbox=True):
        pytest.skip(lack.detail)
    world = make_world()
    with world.db.write() as session:
        make_project(session).quota = {"required_capabilities": ["sandbox:locked"]} if demands else {}
    job_id = world.start("import json, os\nprint(json.load(open(os.environ['TRAINYARD_SPEC']))['locked'])")

    assert world.wait_for_end(job_id).state is JobState.COMPLETED, world.describe(job_id)
    assert world.log(job_id) == [str(demands)]
