"""Jobs that train nothing, as every vocabulary shows them."""

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Job
from tests.builders.inference_requests import make_batch, make_features
from tests.builders.serving import make_replica, make_service
from tests.systems.apps import Api

MEASURED: dict[str, object] = {
    "model": {"model_uri": "/srv/models/base"},
    "benchmarks": [{"name": "loss", "dataset": "/srv/data/train.jsonl"}],
}


def evaluating(api: Api, body: dict[str, object]) -> str:
    if "benchmarks" in body:
        job_id = str(api.data(api.post("/v1/evaluations", body), 201)["evaluation_id"])
    else:
        job_id = str(api.data(api.post("/v1/inference", body), 201)["job_id"])
    with api.db.write() as session:
        session.get_one(Job, job_id).status = JobState.EVALUATING
    return job_id


SHOWN = pytest.mark.parametrize(
    ("path", "running"),
    [
        ("/compat/cyxwiz/v1/jobs/job-{}", '"status":"RUNNING"'),
        ("/v2/default/training-jobs/{}", '"phase":"Running"'),
        ("/api/v1/workloads/trainings/{}", '"actualPhase":"Running"'),
        ("/apis/ome.io/v1beta1/namespaces/default/trainingjobs/job-{}", '"name":"job-{}"'),
    ],
)


@SHOWN
@pytest.mark.parametrize("body", [make_batch(), make_features(), MEASURED], ids=["batch", "features", "evaluation"])
def test_job_that_trains_nothing_is_shown_and_runs(
    sqlite_api: Api, path: str, running: str, body: dict[str, object]
) -> None:
    number = evaluating(sqlite_api, body).removeprefix("job-")

    answer = sqlite_api.call("GET", path.format(number))

    assert answer.status_code == 200
    assert running.replace("{}", number) in answer.get_data(as_text=True)


@SHOWN
def test_replica_that_serves_is_shown_and_runs(sqlite_api: Api, path: str, running: str) -> None:
    with sqlite_api.db.write() as session:
        number = make_replica(session, make_service(session), state=JobState.SERVING).id.removeprefix("job-")

    answer = sqlite_api.call("GET", path.format(number))

    assert answer.status_code == 200
    assert running.replace("{}", number) in answer.get_data(as_text=True)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/compat/cyxwiz/v1/jobs"),
        ("POST", "/v2/default/training-job-searches"),
        ("GET", "/api/v1/workloads"),
        ("GET", "/apis/ome.io/v1beta1/namespaces/default/trainingjobs"),
    ],
)
def test_lists_have_it(sqlite_api: Api, method: str, path: str) -> None:
    number = evaluating(sqlite_api, make_batch()).removeprefix("job-")

    answer = sqlite_api.call(method, path, json={} if method == "POST" else None)

    assert answer.status_code == 200
    assert number in answer.get_data(as_text=True)
