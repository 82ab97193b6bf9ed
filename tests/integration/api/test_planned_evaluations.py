"""Trainings with planned evaluations over HTTP: errors and warnings name the plan, and retries keep the mark."""

from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Job
from tests.builders.factories import make_document, make_job, make_node
from tests.builders.shards import batch_document
from tests.systems.apps import Api

PLANS = "training_config.evaluations"


def planning(**resources: Any) -> dict[str, Any]:
    match = {"name": "exact_match", "dataset": {"path": "/srv/data/q.jsonl"}}
    plan = {"on": "end", "benchmarks": [match], **({"resource_config": resources} if resources else {})}
    return make_document(training_config={"evaluations": [plan]})


def test_rule_that_an_evaluation_would_break_refuses_the_training(api: Api) -> None:
    problem = api.problem(api.post("/v1/jobs", planning(gpu_type="H100")), 400)

    assert problem["details"][0]["field"] == f"{PLANS}.0.resource_config.gpu_type"
    assert "device_type is cpu" in problem["message"]


def test_evaluation_that_no_node_could_hold_is_a_warning(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, devices=1)

    (warning,) = api.data(api.post("/v1/jobs", planning(ram_min_mb=10_000_000)), 201)["warnings"]

    assert warning.startswith(f"{PLANS}.0.resource_config.ram_min_mb: ")
    assert warning.endswith("; the evaluation waits until a node can hold it")
    assert api.data(api.post("/v1/jobs", planning()), 201)["warnings"] == []


@pytest.mark.parametrize("planned", [True, False])
def test_retried_evaluation_is_as_planned_as_the_first_one(api: Api, *, planned: bool) -> None:
    document = batch_document(benchmarks=1, inference={"planned": planned})
    document["data_config"]["sources"] = [{"path": "/srv/data/q.jsonl"}]
    with api.db.write() as session:
        trained = make_job(session, state=JobState.COMPLETED).id
        document["inference"]["model"] = {"job_id": trained}
        failed = make_job(session, state=JobState.FAILED, document=document, evaluated_job_id=trained).id

    child = api.data(api.post(f"/v1/jobs/{failed}/retry", {}), 201)["job_id"]

    assert api.get(f"/v1/jobs/{trained}")["evaluations"] == [failed, child]
    assert api.get(f"/v1/jobs/{child}")["evaluations"] is None
    with api.db.read() as session:
        job = session.get_one(Job, child)
        assert job.document.inference is not None
        assert (job.document.inference.planned, job.evaluated_job_id) == (planned, trained)
