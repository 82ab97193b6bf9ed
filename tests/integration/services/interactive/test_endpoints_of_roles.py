"""Which node's sandbox has a rank, where nodes have instances of several roles."""

from collections.abc import Mapping
from typing import Any

import pytest

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.models import Attempt, InteractiveEndpoint
from app.security.permissions import Caller, Role
from app.services.attempts import interactive_endpoints
from app.services.interactive import ports
from tests.builders.factories import make_attempt, make_document, make_job, make_node
from tests.systems.apps import Api

# The trainer's ranks are 0 to 2 on both nodes, those of rollouts 3 and 4.
INSTANCES = (
    {"role": "trainer", "index": 0, "part": 0, "first_rank": 0, "ranks": 2},
    {"role": "trainer", "index": 1, "part": 1, "first_rank": 2, "ranks": 1},
    {"role": "rollout", "index": 0, "part": 0, "first_rank": 3, "ranks": 1},
    {"role": "rollout", "index": 1, "part": 1, "first_rank": 4, "ranks": 1},
)


TASKS = [
    {"role": "trainer", "count": 2, "training_config": {"config": {"num_proc_per_node": 2}}},
    {"role": "rollout", "count": 2},
]
CALLER = Caller(key_id="cli", role=Role.ADMIN, project="default")


def make_reached_job(
    database: Database, instances: tuple[Mapping[str, Any], ...], document: dict[str, Any] | None = None
) -> str:
    with database.write() as session:
        job = make_job(session, document=document, state=JobState.TRAINING)
        make_attempt(session, job, make_node(session))
        attempt = session.get_one(Attempt, (job.id, job.attempt))
        attempt.instances = [dict(each) for each in instances] or None
        for part, ranks in ((0, 3), (1, 2)):
            endpoint = InteractiveEndpoint(
                job_id=job.id,
                part=part,
                attempt=job.attempt,
                fence=job.fence,
                first_rank=part * 3,
                ranks=ranks,
                address=f"10.0.0.{part}",
                port=7000,
            )
            session.add(endpoint)
        return job.id


@pytest.mark.parametrize(("rank", "part"), [(0, 0), (1, 0), (2, 1), (3, 0), (4, 1)])
def test_a_rank_of_a_role_is_found_on_the_node_of_its_instance(database: Database, rank: int, part: int):
    job_id = make_reached_job(database, INSTANCES)

    with database.read() as session:
        found = interactive_endpoints.of(session, job_id, rank=rank)

    assert found is not None
    assert found.part == part


@pytest.mark.parametrize(("rank", "part"), [(0, 0), (2, 0), (3, 1), (4, 1)])
def test_without_roles_ranks_of_a_node_follow_each_other(database: Database, rank: int, part: int):
    job_id = make_reached_job(database, ())

    with database.read() as session:
        found = interactive_endpoints.of(session, job_id, rank=rank)

    assert found is not None
    assert found.part == part


@pytest.mark.parametrize("instances", [INSTANCES, ()])
def test_a_rank_that_no_node_has_is_not_found(database: Database, instances: tuple[Mapping[str, Any], ...]):
    job_id = make_reached_job(database, instances)

    with database.read() as session:
        assert interactive_endpoints.of(session, job_id, rank=5) is None


@pytest.mark.parametrize(
    ("port", "part"),
    [({}, 0), ({"role": "trainer"}, 0), ({"role": "trainer", "index": 1}, 1), ({"role": "rollout", "index": 1}, 1)],
)
def test_a_port_of_an_instance_is_that_of_its_node(api: Api, port: dict[str, Any], part: int):
    training = {"framework": {"type": "CUSTOM", "custom_command": ["true"]}}
    config = {"ports": [{"name": "web", "port": 8080, **port}]}
    document = make_document(training_config=training, interactive_config=config, tasks=TASKS, resource_config={})
    instances = (
        {"role": "trainer", "index": 0, "part": 0, "first_rank": 0, "ranks": 2},
        {"role": "trainer", "index": 1, "part": 1, "first_rank": 2, "ranks": 2},
        {"role": "rollout", "index": 0, "part": 0, "first_rank": 4, "ranks": 1},
        {"role": "rollout", "index": 1, "part": 1, "first_rank": 5, "ranks": 1},
    )
    job_id = make_reached_job(api.db, instances, document)

    opened = ports.by_caller(api.app.extensions["trainyard"].plane, CALLER, job_id, "web")

    assert opened.endpoint is not None, opened.why
    assert (opened.endpoint.part, opened.endpoint.address) == (part, f"10.0.0.{part}")
