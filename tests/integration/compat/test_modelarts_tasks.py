"""ModelArts' heterogeneous jobs over HTTP: created, placed, read back, and sent again."""

from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Attempt, Job
from app.models.base import utc_now
from app.services.scheduling import planner
from app.services.telemetry import stored_metrics
from app.services.telemetry.stored_metrics import MetricValue
from app.storage.log_writer import LogWriter
from tests.builders.factories import make_node
from tests.builders.log_blocks import block
from tests.integration.compat.test_modelarts import JOBS, refused, said
from tests.systems.apps import Api

TASKS: list[dict[str, Any]] = [
    {
        "role": "trainer",
        "algorithm": {
            "code_dir": "file:///srv/rl/trainer/",
            "boot_file": "file:///srv/rl/trainer/train.py",
            "environments": {"MY_TOKEN": "s3cret", "MODE": "fast"},
        },
        "task_resource": {"flavor_id": "trainyard.cpu.2"},
    },
    {
        "role": "rollout",
        "algorithm": {"code_dir": "file:///srv/rl/rollout/", "boot_file": "file:///srv/rl/rollout/serve.py"},
        "task_resource": {"flavor_id": "trainyard.cpu.1", "node_count": 2},
    },
]
BODY = {
    "kind": "job",
    "metadata": {"name": "rl", "annotations": {"job_template": "Template RL"}},
    "algorithm": {},
    "tasks": TASKS,
}


@pytest.fixture
def job(sqlite_api: Api) -> str:
    with sqlite_api.db.write() as session:
        make_node(session, "n1")
        make_node(session, "n2")
    found: str = said(sqlite_api.post(JOBS, BODY), 201)["metadata"]["id"]
    return found


def test_a_heterogeneous_job_is_placed_and_observed_by_its_tasks(sqlite_api: Api, job: str) -> None:
    with sqlite_api.db.write() as session:
        row = session.get_one(Job, f"job-{job}")
        row.status, row.queued_at = JobState.QUEUED, utc_now()
    planner.plan_once(sqlite_api.db)
    storage = sqlite_api.app.extensions["trainyard"].plane.storage
    LogWriter(storage, f"job-{job}", 1).append([block(1, "trains"), block(2, "serves", rank=2)])
    with sqlite_api.db.write() as session:
        session.get_one(Attempt, (f"job-{job}", 1)).started_at = now = utc_now()
        of_nodes = {"cpu_percent": 30.0, "system/node-1/cpu_percent": 70.0}
        used = [MetricValue(name=name, step=0, at=now, value=value) for name, value in of_nodes.items()]
        stored_metrics.add_points(session, session.get_one(Job, f"job-{job}"), used)

    shown = {
        task: said(sqlite_api.call("GET", f"{JOBS}/{job}/metrics/{task}"))["metrics"][0]["value"][0]
        for task in ("trainer-0", "rollout-1")
    }
    tasks = said(sqlite_api.call("GET", f"{JOBS}/{job}/tasks"))
    preview = said(sqlite_api.call("GET", f"{JOBS}/{job}/tasks/rollout-1/logs/preview"))

    assert [(task["task"], task["host_ip"]) for task in tasks] == [
        ("trainer-0", "n1"),
        ("rollout-0", "n2"),
        ("rollout-1", "n2"),
    ]
    assert preview["content"] == "serves\n"
    assert shown == {"trainer-0": 30.0, "rollout-1": 70.0}
    refused(sqlite_api.call("GET", f"{JOBS}/{job}/tasks/worker-0/logs/preview"), 400, 2775)


def test_a_returned_heterogeneous_job_can_be_sent_again(sqlite_api: Api, job: str) -> None:
    returned = said(sqlite_api.call("GET", f"{JOBS}/{job}"))
    assert returned["tasks"][0]["algorithm"]["environments"] == {"MODE": "fast", "MY_TOKEN": "***"}
    returned["metadata"]["name"] = "again"
    returned["tasks"][0]["algorithm"]["environments"]["MY_TOKEN"] = "other"

    again = said(sqlite_api.post(JOBS, returned), 201)["metadata"]["id"]

    first, second = (sqlite_api.get(f"/v1/jobs/job-{each}") for each in (job, again))
    for section in ("training_config", "data_config", "resource_config", "scheduling_config", "tasks"):
        assert second[section] == first[section], section


def test_outputs_of_tasks_that_may_be_on_another_node_than_rank_0_are_named(sqlite_api: Api, job: str) -> None:
    outputs = [{"name": "samples", "remote": {"obs": {"obs_url": "/bucket/out/"}}}]
    tasks = [{**each, "algorithm": {**each["algorithm"], "outputs": outputs}} for each in TASKS]

    metadata = {"name": "two", "annotations": {"job_template": "Template RL"}}
    answer = sqlite_api.post(JOBS, {**BODY, "metadata": metadata, "tasks": tasks})

    made = said(answer, 201)["metadata"]["id"]
    (warned,) = [value for name, value in answer.headers if name == "Warning"]
    assert "--samples=$(TRAINYARD_OUTPUT_DIR)" in warned
    assert "rollout may run on another" in warned
    assert "affinity" not in warned, "which ModelArts doesn't have"
    document = sqlite_api.get(f"/v1/jobs/job-{made}")
    document["tasks"][0]["training_config"]["environment"] = {}  # secrets are shown as ***
    sections = ("training_config", "data_config", "resource_config", "output_config", "tasks")
    again = {name: document[name] for name in ("name", *sections)}
    dry = sqlite_api.data(sqlite_api.post("/v1/jobs?dry_run=true", again))
    assert [each for each in dry["warnings"] if each.startswith("tasks.1: ") and "affinity" in each]


def test_a_native_job_with_roles_is_shown_with_tasks(sqlite_api: Api) -> None:
    with sqlite_api.db.write() as session:
        make_node(session, "n1")
    document = {
        "name": "native",
        "training_config": {"framework": {"type": "CUSTOM", "custom_script_path": "/srv/rl/a.py"}},
        "resource_config": {},
        "tasks": [{"role": "a", "count": 2, "resource_config": {"device_type": "cpu"}}],
    }
    job_id = sqlite_api.data(sqlite_api.post("/v1/jobs", document), 201)["job_id"].removeprefix("job-")

    shown = said(sqlite_api.call("GET", f"{JOBS}/{job_id}"))

    (task,) = shown["tasks"]
    assert task["algorithm"] == {"code_dir": "file:///srv/rl", "boot_file": "file:///srv/rl/a.py", "environments": {}}
    assert (task["role"], task["task_resource"]["node_count"]) == ("a", 2)
    assert task["task_resource"]["flavor_id"] == "trainyard.cpu.1"
