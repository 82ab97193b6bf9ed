"""Sessions in instances of roles: a role, an instance and a rank within it name a rank of the job."""

from typing import Any

import pytest

from app.models import InteractiveSession, Job
from tests.builders.interactive import make_endpoint, open_job, running_job
from tests.integration.api.test_sessions import EXEC, opened, refused
from tests.systems.apps import Api

TWO_PROCESSES = {"config": {"num_proc_per_node": 2}}
ROLES: dict[str, Any] = {
    "training_config": {"framework": {"type": "CUSTOM", "custom_command": ["true"]}},
    "resource_config": {},
    "tasks": [
        {"role": "trainer", "resource_config": {"gpu_count": 2}},
        {"role": "rollout", "count": 2, "resource_config": {"gpu_count": 2}, "training_config": TWO_PROCESSES},
    ],
}


@pytest.mark.parametrize(
    ("place", "rank"),
    [
        ({"role": "trainer"}, 0),
        ({"role": "rollout"}, 2),
        ({"role": "rollout", "index": 1}, 4),
        ({"role": "rollout", "index": 1, "rank": 1}, 5),
        ({"rank": 4}, 4),
    ],
)
def test_a_role_and_an_instance_of_it_name_a_rank_of_the_job(api: Api, place: dict[str, Any], rank: int):
    job_id = running_job(api, **ROLES)
    with api.db.write() as session:
        make_endpoint(session, session.get_one(Job, job_id), ranks=6)

    for body in ({**EXEC, **place}, {"kind": "port_forward", "port": 80, **place}):
        made = opened(api, job_id, body)["session"]
        assert made["rank"] == rank
        with api.db.read() as session:
            assert session.get_one(InteractiveSession, made["session_id"]).request.get("rank", rank) == rank


@pytest.mark.parametrize(
    ("place", "field", "message"),
    [
        ({"role": "other"}, "role", "the job has no role other; known: trainer, rollout"),
        ({"role": "rollout", "index": 2}, "index", "has 2 instances, 0 to 1"),
        ({"role": "trainer", "index": 1}, "index", "has one instance, 0"),
        ({"role": "rollout", "index": 1, "rank": 2}, "rank", "each instance of the role rollout has 2 ranks, 0 to 1"),
        ({"index": 1}, "index", "give role, or omit index"),
        ({"rank": 6}, "rank", "has 6 ranks, 0 to 5"),
    ],
)
def test_a_place_that_the_job_does_not_have(api: Api, place: dict[str, Any], field: str, message: str):
    job_id = running_job(api, **ROLES)
    with api.db.write() as session:
        make_endpoint(session, session.get_one(Job, job_id), ranks=6)

    problem = refused(api, job_id, {**EXEC, **place}, 400)

    assert (problem["details"][0]["field"], message in problem["message"]) == (field, True)


def test_a_job_without_roles_has_none_to_name(api: Api):
    problem = refused(api, open_job(api), {**EXEC, "role": "trainer"}, 400)

    assert "the job has no roles; omit role" in problem["message"]
