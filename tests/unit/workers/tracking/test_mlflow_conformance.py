"""What a job's run relies on of MLflow's REST API; the double and a real server do it.

`make test-nightly` makes an environment with the real one (`tests/clients/requirements/mlflow.txt`) and starts it.
"""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.doubles.mlflow import running_mlflow
from tests.systems.mlflow_server import running_mlflow_server
from workers.tracking.json_api import JsonApi, ServerRefuses
from workers.tracking.mlflow_run import API, JOB_TAG, MlflowRun, RunFacts


@pytest.fixture(scope="module")
def real_server(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]) -> Iterator[str]:
    with running_mlflow_server(tmp_path_factory.mktemp("mlflow"), owned_pids) as url:
        yield url


# The first of the real ones installs and starts the server.
@pytest.fixture(params=["double", pytest.param("real", marks=pytest.mark.timeout(600))])
def api(request: pytest.FixtureRequest) -> Iterator[JsonApi]:
    if request.param == "real":
        yield api_of(request.getfixturevalue("real_server"))
        return
    with running_mlflow() as server:
        yield api_of(server.url)


def api_of(url: str, token: str = "") -> JsonApi:
    api = JsonApi(base=url.rstrip("/"), username="", token=token, allow=("127.0.0.1",), call_seconds=30)
    api.limit(30)
    return api


def facts(job_id: str, attempt: int = 1, **params: str) -> RunFacts:
    return RunFacts(
        job_id=job_id,
        name="support",
        attempt=attempt,
        experiment=f"experiment of {job_id}",
        started_ms=1_700_000_000_000,
        params=params,
        tags={"trainyard.project": "p", "trainyard.label.team/a": "x"},
    )


@pytest.fixture
def job_id() -> str:
    return f"job-{uuid.uuid4()}"


def points(*steps: int, name: str = "loss", at_ms: int = 1_700_000_001_000) -> list[list[Any]]:
    return [[name, step, at_ms + step, step / 10] for step in steps]


def run_in(api: JsonApi, job_id: str) -> dict[str, Any]:
    """The only run of the job."""
    experiment = api.get(f"{API}/experiments/get-by-name", {"experiment_name": f"experiment of {job_id}"})
    query = {
        "experiment_ids": [experiment["experiment"]["experiment_id"]],
        "filter": f"tags.`{JOB_TAG}` = '{job_id}'",
        "max_results": 10,
    }
    (run,) = api.post(f"{API}/runs/search", query)["runs"]
    return {
        "id": run["info"]["run_id"],
        "status": run["info"]["status"],
        "end_time": run["info"].get("end_time"),
        "params": {each["key"]: each["value"] for each in run["data"].get("params", [])},
        "tags": {each["key"]: each["value"] for each in run["data"]["tags"]},
        "metrics": {each["key"]: (each["step"], each["value"]) for each in run["data"].get("metrics", [])},
    }


def history(api: JsonApi, run_id: str, name: str = "loss") -> list[tuple[int, Any]]:
    found = api.get(f"{API}/metrics/get-history", {"run_id": run_id, "metric_key": name})
    return sorted((point["step"], point["value"]) for point in found.get("metrics", []))


def test_run_has_parameters_tags_metrics_and_the_end(api: JsonApi, job_id: str) -> None:
    run = MlflowRun(api, facts(job_id, learning_rate="2e-4"))
    assert run.open() == 0

    run.send(points(1, 2), 2, 1)
    run.end("COMPLETED", 1_700_000_009_000)

    seen = run_in(api, job_id)
    assert (seen["status"], seen["end_time"]) == ("FINISHED", 1_700_000_009_000)
    assert seen["params"] == {"learning_rate": "2e-4"}
    assert seen["tags"]["trainyard.label.team/a"] == "x"
    assert (seen["tags"]["trainyard.state"], seen["tags"]["trainyard.seq"]) == ("COMPLETED", "2")
    assert history(api, seen["id"]) == [(1, 0.1), (2, 0.2)]


@pytest.mark.parametrize(
    ("state", "status"),
    [("FAILED", "FAILED"), ("CANCELLED", "KILLED"), ("PREEMPTED", "KILLED"), ("PAUSED", "SCHEDULED")],
)
def test_states_have_a_status(api: JsonApi, job_id: str, state: str, status: str) -> None:
    run = MlflowRun(api, facts(job_id))
    run.open()

    run.end(state, 1_700_000_009_000)

    assert run_in(api, job_id)["status"] == status


def test_next_attempt_continues_the_run_and_names_what_is_repeated(api: JsonApi, job_id: str) -> None:
    first = MlflowRun(api, facts(job_id, learning_rate="2e-4"))
    first.open()
    first.send(points(1, 2, 3), 3, 1)
    first.end("PAUSED", 1_700_000_009_000)

    second = MlflowRun(api, facts(job_id, attempt=2, learning_rate="1e-4", lora_r="8"))
    assert second.open() == 3
    assert run_in(api, job_id)["status"] == "RUNNING"
    second.send([["loss", 3, 1_700_000_020_000, 0.25], ["loss", 4, 1_700_000_020_001, 0.2]], 5, 2)

    seen = run_in(api, job_id)
    assert seen["metrics"]["loss"] == (4, 0.2)
    assert seen["tags"]["trainyard.repeated_in_attempt_2"] == "steps 3 to 3"
    assert seen["tags"]["trainyard.changed_parameters"] == "attempt 2: learning_rate=1e-4"
    assert seen["params"] == {"learning_rate": "2e-4", "lora_r": "8"}
    assert (3, 0.25) in history(api, seen["id"])


def test_process_that_begins_anew_in_an_attempt_repeats_nothing(api: JsonApi, job_id: str) -> None:
    first = MlflowRun(api, facts(job_id))
    first.open()
    first.send(points(1, 2), 2, 1)

    again = MlflowRun(api, facts(job_id))
    assert again.open() == 2
    again.send(points(1, 2), 2, 1)  # its answer was lost

    seen = run_in(api, job_id)
    assert "trainyard.repeated_in_attempt_1" not in seen["tags"]
    assert history(api, seen["id"]) == [(1, 0.1), (2, 0.2)]


def test_values_that_are_no_numbers_are_taken(api: JsonApi, job_id: str) -> None:
    run = MlflowRun(api, facts(job_id))
    run.open()

    run.send([["loss", 1, 1_700_000_001_000, "NaN"], ["loss", 2, 1_700_000_001_001, "Infinity"]], 2, 1)

    assert run_in(api, job_id)["tags"]["trainyard.seq"] == "2"
    assert [step for step, _ in history_steps(api, run_in(api, job_id)["id"])] == [1, 2]


def history_steps(api: JsonApi, run_id: str) -> list[tuple[int, str]]:
    found = api.get(f"{API}/metrics/get-history", {"run_id": run_id, "metric_key": "loss"})
    return sorted((point["step"], str(point["value"])) for point in found["metrics"])


def test_names_are_made_acceptable(api: JsonApi, job_id: str) -> None:
    run = MlflowRun(api, facts(job_id, 1, **{"a b(c)": "1"}))
    run.open()

    run.send([["rewards/chosen", 1, 1_700_000_001_000, 0.5], ["ü#?//../x", 1, 1_700_000_001_000, 1.0]], 2, 1)

    seen = run_in(api, job_id)
    assert set(seen["metrics"]) == {"rewards/chosen", "___/x"}
    assert seen["params"] == {"a b_c_": "1"}


def test_names_of_tags_are_made_acceptable(api: JsonApi, job_id: str) -> None:
    long = f"{'x' * 249}/y"
    names = ("trainyard.label.team/", "a//b", "./c", "d/../e", "..f", "g(1)", long)
    run = MlflowRun(api, replace(facts(job_id), tags=dict.fromkeys(names, "v")))

    run.open()

    tags = run_in(api, job_id)["tags"]
    assert {name for name, value in tags.items() if value == "v"} == {
        "trainyard.label.team",
        "a/b",
        "c",
        "d/e",
        "_f",
        "g_1_",
        "x" * 249,
    }


@pytest.mark.parametrize("name", ["team/", "a//b", "./c", "d/../e", "..f", "/g", "g(1)"])
def test_other_names_are_refused_by_the_server(api: JsonApi, job_id: str, name: str) -> None:
    MlflowRun(api, facts(job_id)).open()

    body = {"run_id": run_in(api, job_id)["id"], "tags": [{"key": name, "value": "v"}]}
    with pytest.raises(ServerRefuses) as caught:
        api.post(f"{API}/runs/log-batch", body)

    assert caught.value.refused


def test_late_attempt_leaves_the_state_of_its_successor(api: JsonApi, job_id: str) -> None:
    first = MlflowRun(api, facts(job_id))
    first.open()
    MlflowRun(api, facts(job_id, attempt=2)).open()

    first.end("PAUSED", 1_700_000_009_000)
    MlflowRun(api, facts(job_id)).open()

    seen = run_in(api, job_id)
    assert (seen["status"], seen["tags"]["trainyard.state"]) == ("RUNNING", "RUNNING")
    assert seen["tags"]["trainyard.begun_attempt"] == "2"


def test_largest_batch_is_taken(api: JsonApi, job_id: str) -> None:
    run = MlflowRun(api, facts(job_id, 1, **{f"p{number}": "v" * 600 for number in range(250)}))
    run.open()

    run.send(points(*range(900)), 900, 1)

    seen = run_in(api, job_id)
    assert len(seen["params"]) == 250
    assert len(history(api, seen["id"])) == 900


def test_deleted_run_is_replaced(api: JsonApi, job_id: str) -> None:
    run = MlflowRun(api, facts(job_id))
    run.open()
    run.send(points(1), 1, 1)
    api.post(f"{API}/runs/delete", {"run_id": run_in(api, job_id)["id"]})

    with pytest.raises(ServerRefuses) as caught:
        run.send(points(2), 2, 1)

    assert caught.value.refused
    assert MlflowRun(api, facts(job_id)).open() == 0


def test_unknown_run_is_refused(api: JsonApi) -> None:
    with pytest.raises(ServerRefuses, match="RESOURCE_DOES_NOT_EXIST"):
        api.post(f"{API}/runs/log-batch", {"run_id": "0" * 32, "tags": []})
