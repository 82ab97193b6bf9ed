"""Jobs of a project that demands a host user for each attempt, under a supervisor."""

import pytest

from app.domain.lifecycle.states import JobState
from tests.builders.factories import make_project


@pytest.mark.parametrize("demands", [True, False], ids=["demanded", "not demanded"])
def test_job_whose_project_demands_a_user_of_its_own_does_not_run_without(make_world, demands):
    world = make_world(TRAINYARD_NODE_SANDBOX="process")
    with world.db.write() as session:
        make_project(session).quota = {"required_capabilities": ["sandbox:uid"]} if demands else {}
    job_id = world.start("print('ran', flush=True)")

    world.wait(lambda: world.attempt(job_id).ended_at is not None, 20.0, job_id)

    attempt = world.attempt(job_id)
    world.wait(lambda: not world.supervisor_alive(job_id, 1), 5.0, job_id)
    assert (world.log(job_id) == ["ran"]) is not demands
    assert ("sandbox:uid" in (attempt.end_reason or "")) is demands, world.describe(job_id)
    assert (world.job(job_id).state is JobState.COMPLETED) is not demands
