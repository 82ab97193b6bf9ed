"""Sweeps that begin with what earlier ones have found."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.security.permissions import Role
from tests.builders.sweep_runs import SweepRun
from tests.builders.sweeps import make_sweep_document
from tests.systems.apps import Api

Make = Callable[..., SweepRun]
TPE = {"name": "tpe", "seed": 2, "startup_trials": 3}


@pytest.mark.long
def test_results_of_an_earlier_sweep_are_known_from_the_first_trial_on(make_run: Make, api: Api) -> None:
    earlier = make_run(method=TPE, budget={"max_trials": 12, "parallel_trials": 1})
    earlier.run()
    cold = make_run(method={**TPE, "seed": 9}, budget={"max_trials": 2, "parallel_trials": 1})
    warm = make_run(
        method={**TPE, "seed": 9}, budget={"max_trials": 2, "parallel_trials": 1}, warm_start={"sweeps": [earlier.id]}
    )
    cold.run()
    warm.run()

    assert [known["number"] for known in warm.known()] == list(range(-12, 0))
    assert warm.trials()[0].values != cold.trials()[0].values  # it is no random one
    assert warm.sweep().best_number in (0, 1)  # results of others are never its best
    assert len(warm.trials()) == 2  # and cost nothing of its budget
    assert api.get(f"/v1/sweeps/{warm.id}/replay")["is_equal"] is True


@pytest.mark.long
def test_the_best_values_of_another_job_are_tried_first(make_run: Make) -> None:
    earlier = make_run(budget={"max_trials": 7, "parallel_trials": 1})
    earlier.run()
    job = make_sweep_document()["job"]
    job["training_config"]["training_type"] = "LORA"
    run = make_run(
        job=job, budget={"max_trials": 6, "parallel_trials": 1}, warm_start={"sweeps": [earlier.id], "kind": "transfer"}
    )
    run.run()

    best = sorted(earlier.trials(), key=lambda trial: trial.objectives or [9.0])
    assert [trial.values for trial in run.trials()[:5]] == [trial.values for trial in best[:5]]
    assert [trial.source for trial in run.trials()] == [*["enqueued"] * 5, "method"]


def refused(api: Api, status: int, **changes: Any) -> dict[str, Any]:
    details: list[dict[str, Any]] = api.problem(api.post("/v1/sweeps", make_sweep_document(**changes)), status)[
        "details"
    ]
    return details[0]


def test_what_differs_from_an_earlier_sweep_is_named(make_run: Make, api: Api) -> None:
    earlier = make_run(budget={"max_trials": 2, "parallel_trials": 1})
    earlier.run()
    warm = {"warm_start": {"sweeps": [earlier.id]}}
    job = make_sweep_document()["job"]
    job["training_config"]["hyperparameters"]["num_train_epochs"] = "2"
    narrow = {"learning_rate": {"type": "double", "min": 9e-3, "max": 1e-2}, "weight_decay": 0.0}

    other_job = refused(api, 400, job=job, **warm)
    assert other_job["field"] == "warm_start.sweeps.0"
    assert "differs in training_config.hyperparameters.num_train_epochs" in other_job["message"]
    assert "lies outside of this space: values." in refused(api, 400, parameters=narrow, **warm)["message"]
    objective = refused(api, 400, objective={"metric": "eval_loss", "select": "last"}, **warm)
    assert "has the objective eval_loss (minimize, best)" in objective["message"]


def test_where_metrics_are_sent_changes_no_result(make_run: Make) -> None:
    earlier = make_run(budget={"max_trials": 2, "parallel_trials": 1})
    earlier.run()
    job = make_sweep_document()["job"]
    job["tracking"] = [{"kind": "mlflow", "url": "https://mlflow.example"}]

    run = make_run(job=job, budget={"max_trials": 1, "parallel_trials": 1}, warm_start={"sweeps": [earlier.id]})

    assert len(run.known()) == 2


def test_a_sweep_of_another_project_is_missing(make_run: Make, api: Api) -> None:
    earlier = make_run(budget={"max_trials": 1, "parallel_trials": 1})
    key = api.make_key(Role.ADMIN, "team-b")
    document = make_sweep_document(warm_start={"sweeps": [earlier.id]})

    problem = api.problem(api.post("/v1/sweeps", document, key=key), 404)
    assert problem["details"][0]["field"] == "warm_start.sweeps.0"


@pytest.mark.long
def test_a_fork_knows_what_the_first_sweep_has_found_and_keeps_its_secrets(make_run: Make, api: Api) -> None:
    job = make_sweep_document()["job"]
    job["training_config"]["environment"] = {"MY_TOKEN": "s3cret-value"}
    first = make_run(job=job, method=TPE, budget={"max_trials": 5, "parallel_trials": 1})
    first.run()
    wide = {
        "learning_rate": {"type": "double", "min": 1e-6, "max": 1e-1, "scale": "log"},
        "weight_decay": {"type": "categorical", "values": [0.0, 0.1, 0.2]},
    }

    forked = api.data(api.post(f"/v1/sweeps/{first.id}/fork", {"parameters": wide, "budget": {"max_trials": 2}}), 201)

    run = first.another(forked["sweep_id"])
    run.run()
    assert (run.sweep().name, len(run.known()), run.sweep().status) == ("search-fork", 5, "COMPLETED")
    assert len(run.trials()) == 2
    assert run.plane.box.open(run.job(0).sealed_secrets) == {"training_config.environment.MY_TOKEN": "s3cret-value"}
    outside = {"parameters": {**wide, "weight_decay": 0.3}}
    problem = api.problem(api.post(f"/v1/sweeps/{first.id}/fork", outside), 400)
    assert problem["details"][0]["field"] == "warm_start.sweeps.0"


SOURCE = "data_config.sources.0.path"


def with_secret(api: Api, **parameters: Any) -> dict[str, Any]:
    job = make_sweep_document()["job"]
    job["training_config"]["environment"] = {"MY_TOKEN": "s3cret-value"}
    if parameters:
        del job["data_config"]["sources"][0]["path"]
    (api.inputs / "other.jsonl").write_text("{}\n")
    return {"job": job, "parameters": {"learning_rate": {"type": "double", "min": 1e-5, "max": 1e-2}, **parameters}}


@pytest.mark.parametrize(
    ("name", "place"),
    [
        (SOURCE, "https://mine.example.org/data.jsonl"),
        ("resource_config.network", True),
        ("training_config.base_model.model_id", {"type": "categorical", "values": ["mine/a", "mine/b"]}),
    ],
)
def test_a_fork_takes_secrets_of_another_key_to_no_other_place(
    make_run: Make, api: Api, name: str, place: object
) -> None:
    document = with_secret(api)
    first, other = make_run(**document), api.make_key(Role.USER)
    body = {"parameters": {**document["parameters"], name: place}}

    problem = api.problem(api.post(f"/v1/sweeps/{first.id}/fork", body, key=other), 409)

    assert f"parameters.{name} changes a field" in problem["message"]
    assert "create a new sweep with your own secrets" in problem["message"]
    own = api.data(api.post(f"/v1/sweeps/{first.id}/fork", {}, key=other), 201)["sweep_id"]
    assert api.problem(api.post(f"/v1/sweeps/{own}/fork", body, key=other), 409)


def test_a_fork_of_another_key_may_change_what_is_no_place(make_run: Make, api: Api) -> None:
    places = {"type": "categorical", "values": [str(api.inputs / "a.jsonl"), str(api.inputs / "b.jsonl")]}
    for path in places["values"]:
        Path(path).write_text("{}\n")
    document = with_secret(api, **{SOURCE: places})
    first, other = make_run(**document), api.make_key(Role.USER)
    body = {"parameters": {**document["parameters"], "weight_decay": 0.1, "environment.MODE": "x"}}

    assert api.data(api.post(f"/v1/sweeps/{first.id}/fork", body, key=other), 201)
    changed = {**places, "values": places["values"][:1]}
    narrow = {"parameters": {**document["parameters"], SOURCE: changed}}
    assert api.problem(api.post(f"/v1/sweeps/{first.id}/fork", narrow, key=other), 409)


def test_the_key_that_gave_the_secrets_changes_any_place(make_run: Make, api: Api) -> None:
    document = with_secret(api)
    path = f"/v1/sweeps/{make_run(**document).id}/fork"
    body = {"parameters": {**document["parameters"], SOURCE: str(api.inputs / "other.jsonl")}}

    forked = api.data(api.post(path, body), 201)["sweep_id"]

    assert api.data(api.post(f"/v1/sweeps/{forked}/fork", {}), 201)
    assert api.data(api.post(f"/v1/sweeps/{forked}/fork", body), 201)


def test_a_sweep_without_secrets_is_forked_to_any_place(make_run: Make, api: Api) -> None:
    document = with_secret(api)
    del document["job"]["training_config"]["environment"]
    path = f"/v1/sweeps/{make_run(**document).id}/fork"
    body = {"parameters": {**document["parameters"], SOURCE: str(api.inputs / "other.jsonl")}}

    assert api.data(api.post(path, body, key=api.make_key(Role.USER)), 201)
