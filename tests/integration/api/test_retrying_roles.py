"""Retrying a job with roles over HTTP: other devices, and another number of instances."""

from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Job
from tests.builders.controlled import audited
from tests.builders.factories import make_document, make_node
from tests.integration.api.test_retrying import ended_job, opened, refused, retry
from tests.systems.apps import Api


def with_roles(api: Api) -> str:
    """A server with its client, which has a secret."""
    with api.db.write() as session:
        make_node(session, "gpus", devices=4, device_type="a100", memory_mb=81920, simulated=True)
        make_node(session, "cpus", devices=4)
    secret = {"environment": {"MY_TOKEN": "secret-of-a-role"}}
    server = {"role": "server", "resource_config": {"gpu_count": 2, "gpu_type": "A100"}}
    client = {"role": "client", "count": 2, "resource_config": {"device_type": "cpu"}, "training_config": secret}
    document = make_document(training_config={"framework": {"type": "CUSTOM", "custom_command": ["true"]}})
    answer = api.post("/v1/jobs", {**document, "resource_config": {}, "tasks": [server, client]})
    job_id = str(api.data(answer, 201)["job_id"])
    with api.db.write() as session:
        session.get_one(Job, job_id).status = JobState.FAILED
    return job_id


def test_devices_and_instances_of_roles_are_changed_by_name(api: Api):
    parent = with_roles(api)
    changes: list[dict[str, Any]] = [
        {"role": "client", "count": 3},
        {"role": "server", "resource_config": {"gpu_count": 1, "gpu_type": "", "device_type": "cpu", "cpu_cores": 1}},
    ]

    child = retry(api, parent, {"modify_resources": True, "new_tasks": changes})

    server, client = child["tasks"]
    assert server["resource_config"] | {"gpu_type": None} == {
        "gpu_count": 1,
        "gpu_type": None,
        "device_type": "cpu",
        "cpu_cores": 1,
    }
    assert (client["count"], client["resource_config"]["gpu_count"]) == (3, 1)
    assert client["training_config"]["environment"] == {"MY_TOKEN": "***"}
    assert opened(api, child["job_id"]) == {"tasks.1.training_config.environment.MY_TOKEN": "secret-of-a-role"}
    audit = [(each["role"], each["count"], each["resources"]) for each in audited(api, "job.retry")[0][1]["roles"]]
    assert audit == [("client", 3, {}), ("server", None, changes[1]["resource_config"])]
    unchanged = retry(api, parent, {"new_tasks": changes})["tasks"]
    asked = [(task["count"], task["resource_config"]) for task in api.get(f"/v1/jobs/{parent}")["tasks"]]
    assert [(task["count"], task["resource_config"]) for task in unchanged] == asked, "only with modify_resources"


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"new_tasks": [{"role": "judge"}]}, "new_tasks.0.role", "no role judge; known: server, client"),
        ({"new_tasks": [{"role": "client"}, {"role": "client"}]}, "new_tasks.1.role", "named twice"),
        ({"new_tasks": [{"role": "client", "count": 64}]}, "tasks", "at most 64"),
        (
            {"new_tasks": [{"role": "client"}, {"role": "server", "resource_config": {"gpu_count": 9}}]},
            "new_tasks.1.resource_config.gpu_count",
            "would fit is 4",
        ),
        (
            {"new_tasks": [{"role": "client", "resource_config": {"gpu_count": 0}}]},
            "new_tasks.0.resource_config.gpu_count",
            "at least 1",
        ),
        ({"new_resource_config": {"gpu_count": 2}}, "new_resource_config.gpu_count", "in new_tasks"),
    ],
)
def test_changes_of_roles_are_checked_as_at_submission(
    sqlite_api: Api, change: dict[str, Any], field: str, says: str
) -> None:
    parent = with_roles(sqlite_api)

    problem = refused(sqlite_api, parent, {"modify_resources": True, **change})

    assert problem["details"][0]["field"] == field
    assert says in problem["message"]


def test_job_without_roles_has_none_to_change(sqlite_api: Api) -> None:
    problem = refused(sqlite_api, ended_job(sqlite_api), {"modify_resources": True, "new_tasks": [{"role": "a"}]})

    assert (problem["details"][0]["field"], "leave new_tasks out" in problem["message"]) == ("new_tasks.0.role", True)
