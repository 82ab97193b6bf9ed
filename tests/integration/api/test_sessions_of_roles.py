"""Sessions in instances of roles: a role, an instance and a rank within it name a rank of the job."""

from typing import Any

import pytest
from sqlalchemy import select

from app.models import AuditEntry, InteractiveSession, Job
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
    ("place", "rank", "instance"),
    [
        ({"role": "trainer"}, 0, ("trainer", 0)),
        ({"role": "rollout"}, 2, ("rollout", 0)),
        ({"role": "rollout", "index": 1}, 4, ("rollout", 1)),
        ({"role": "rollout", "index": 1, "rank": 1}, 5, ("rollout", 1)),
        ({"rank": 4}, 4, ("rollout", 1)),
    ],
)
def test_a_role_and_an_instance_of_it_name_a_rank_of_the_job(
    api: Api, place: dict[str, Any], rank: int, instance: tuple[str, int]
):
    job_id = running_job(api, **ROLES)
    with api.db.write() as session:
        make_endpoint(session, session.get_one(Job, job_id), ranks=6)

    for body in ({**EXEC, **place}, {"kind": "port_forward", "port": 80, **place}):
        made = opened(api, job_id, body)["session"]
        assert made["rank"] == rank
        listed = api.get(f"/v1/jobs/{job_id}/sessions")["sessions"][0]
        for each in (made, listed, started(api, made["session_id"])):
            assert (each["role"], each["index"]) == instance
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


def started(api: Api, session_id: str) -> dict[str, Any]:
    """What the audit trail has of its start."""
    with api.db.read() as session:
        lines = session.scalars(select(AuditEntry).where(AuditEntry.action == "session.start"))
        (data,) = (line.data for line in lines if line.data["session"] == session_id)
    return dict(data)


def test_a_session_of_a_job_without_roles_names_none(api: Api):
    made = opened(api, open_job(api), EXEC)["session"]

    assert (made["role"], made["index"]) == (None, None)
    assert "role" not in started(api, made["session_id"])


def test_a_job_without_roles_has_none_to_name(api: Api):
    problem = refused(api, open_job(api), {**EXEC, "role": "trainer"}, 400)

    assert "the job has no roles; omit role" in problem["message"]
