"""Documents of sweeps that are refused: each answer names the field, and nothing is written."""

from typing import Any

import pytest
from sqlalchemy import func, select

from app.models import Sweep, SweepEvent
from tests.builders.factories import make_node
from tests.builders.sweeps import make_sweep_document
from tests.systems.apps import Api

RATE = {"type": "double", "min": 1e-5, "max": 1e-2, "scale": "log"}
ASHA = {"name": "asha", "min": 100, "max": 900}


def with_parameter(name: str, **raw: Any) -> dict[str, Any]:
    return {"parameters": {"learning_rate": RATE, name: raw}}


def job_with(**hyperparameters: str) -> dict[str, Any]:
    job = make_sweep_document()["job"]
    job["training_config"]["hyperparameters"] = hyperparameters
    return {"job": job}


def with_training(**changes: Any) -> dict[str, Any]:
    job: dict[str, Any] = make_sweep_document()["job"]
    job["training_config"].update(changes)
    return job


def without_validation() -> dict[str, Any]:
    job = make_sweep_document()["job"]
    del job["data_config"]["validation_split"]
    return {"job": job}


REFUSED: dict[str, tuple[dict[str, Any], int, str, str]] = {
    "no parameters": ({"parameters": {}}, 400, "parameters", "name 1 to 256 parameters"),
    "an unknown name": (
        with_parameter("learning_rat", type="double", min=0.1, max=1.0),
        400,
        "parameters.learning_rat",
        "learning_rate",
    ),
    "a range outside of the table": (
        {"parameters": {"learning_rate": {"type": "double", "min": -1.0, "max": 1.0}}},
        400,
        "parameters.learning_rate",
        "",
    ),
    "min above max": ({"parameters": {"learning_rate": {**RATE, "min": 1.0}}}, 400, "parameters.learning_rate.min", ""),
    "log from 0": ({"parameters": {"learning_rate": {**RATE, "min": 0.0}}}, 400, "parameters.learning_rate.min", ""),
    "a grid over a range": ({"method": {"name": "grid"}}, 400, "parameters.learning_rate.step", "step"),
    "only_if of an unknown name": (
        with_parameter("weight_decay", type="double", min=0, max=1, only_if={"x": [1]}),
        400,
        "parameters.weight_decay.only_if.x",
        "",
    ),
    "only_if in a circle": (
        {
            "parameters": {
                "adam_beta1": {"type": "categorical", "values": [0.8, 0.9], "only_if": {"adam_beta2": [0.9]}},
                "adam_beta2": {"type": "categorical", "values": [0.9, 0.99], "only_if": {"adam_beta1": [0.9]}},
            }
        },
        400,
        "parameters.adam_beta1.only_if",
        "circle",
    ),
    "a condition that is none": ({"require": ["learning_rate + 1"]}, 400, "require.0", ""),
    "a condition that is never met": ({"require": ["learning_rate > 5"]}, 400, "require", "learning_rate > 5"),
    "a metric that is not measured": ({"objective": {"metric": "eval_bleu"}}, 400, "objective.metric", "eval_loss"),
    "rungs above max_steps": (
        {**job_with(max_steps="500"), "early_stopping": ASHA},
        400,
        "early_stopping.max",
        "max_steps",
    ),
    "early stopping without evaluations": (
        {**without_validation(), "early_stopping": ASHA},
        400,
        "objective.metric",
        "validation",
    ),
    "early stopping without rungs": ({"early_stopping": {"name": "asha"}}, 400, "early_stopping.min", ""),
    "cmaes over categories": (
        {
            "method": {"name": "cmaes"},
            **with_parameter("lr_scheduler_type", type="categorical", values=["linear", "cosine"]),
        },
        400,
        "method.name",
        "",
    ),
    "rungs in tokens": (
        {"early_stopping": {"name": "asha", "unit": "tokens", "min": 10, "max": 90, "losers": "pause"}},
        400,
        "early_stopping.unit",
        "use steps or epochs, or set losers to stop",
    ),
    "bohb without rungs": ({"method": {"name": "bohb"}}, 400, "method.name", "hyperband"),
    "nothing that counts": ({"warm_start": {"count": True}}, 400, "warm_start.count", "no sweep is named"),
    "an unknown method": ({"method": {"name": "bayes"}}, 422, "method.name", "tpe"),
    "no trials at a time": ({"budget": {"max_trials": 4, "parallel_trials": 0}}, 422, "budget.parallel_trials", "free"),
    "a budget of nothing": ({"budget": {"max_trials": 0}}, 422, "budget.max_trials", ""),
    "a budget without an end": ({"budget": {"parallel_trials": 2}}, 400, "budget.max_trials", ""),
    "too many objectives": ({"objective": [{"metric": "eval_loss"}] * 5}, 422, "objective", "1 to 4"),
    "values outside of the space": (
        {"enqueue": [{"learning_rate": 1.0, "weight_decay": 0.0}]},
        400,
        "enqueue.0.learning_rate",
        "",
    ),
    "the name as a parameter": (with_parameter("name", type="categorical", values=["a"]), 400, "parameters.name", ""),
    "a token as a parameter": (
        with_parameter("output_config.hub_token", type="categorical", values=["a", "b"]),
        400,
        "parameters.output_config.hub_token",
        "",
    ),
    "a job with a wrong field": (
        {"job": {**make_sweep_document()["job"], "resource_config": {"gpu_count": "x"}}},
        422,
        "job.resource_config.gpu_count",
        "integer",
    ),
    "a job without a trainer": ({"job": {"labels": {}}}, 400, "job.training_config.training_type", ""),
    "labels that are none": ({"job": {**make_sweep_document()["job"], "labels": ["a"]}}, 400, "job", ""),
    "hyperparameters that are none": ({"job": with_training(hyperparameters=5)}, 400, "job", ""),
    "an unknown field": ({"trunks": True}, 422, "trunks", ""),
    "free and deterministic": (
        {"deterministic": True, "budget": {"max_trials": 2, "parallel_trials": "free"}},
        400,
        "budget.parallel_trials",
        "",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_document_is_refused_and_its_field_named(api: Api, case: str) -> None:
    changes, status, field, words = REFUSED[case]
    with api.db.write() as session:
        make_node(session, devices=4)

    problem = api.problem(api.post("/v1/sweeps", make_sweep_document(**changes)), status)

    assert problem["details"][0]["field"] == field
    assert words in problem["details"][0]["message"]
    with api.db.read() as session:
        written = [session.scalar(select(func.count()).select_from(each)) for each in (Sweep, SweepEvent)]
    assert written == [0, 0]


def test_a_dry_run_says_what_would_be_tried_and_writes_nothing(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, devices=4)
    document = make_sweep_document(
        early_stopping={"name": "asha", "min": 3, "max": 27, "reduction": 3}, budget={"max_trials": 27}
    )

    plan = api.data(api.post("/v1/sweeps?dry_run=true", document))

    assert (plan["valid"], plan["grid_size"], len(plan["suggestions"])) == (True, None, 5)
    assert plan["rungs"] == [{"rung": 3, "trials": 27.0}, {"rung": 9, "trials": 9.0}, {"rung": 27, "trials": 3.0}]
    assert plan["device_hours_at_most"] is None
    document["job"]["scheduling_config"] = {"max_runtime_seconds": 400}
    assert api.data(api.post("/v1/sweeps?dry_run=true", document))["device_hours_at_most"] == 3.0
    document["budget"]["max_device_hours"] = 2
    assert api.data(api.post("/v1/sweeps?dry_run=true", document))["device_hours_at_most"] == 2.0
    with api.db.read() as session:
        assert session.scalar(select(func.count()).select_from(Sweep)) == 0


def test_a_repeated_request_creates_one_sweep(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, devices=4)
    sent = [
        api.post("/v1/sweeps", make_sweep_document(), headers={"Idempotency-Key": "once"}).get_json()["data"][
            "sweep_id"
        ]
        for _ in range(2)
    ]

    assert sent[0] == sent[1]
    assert api.get("/v1/sweeps")["total_count"] == 1


@pytest.mark.parametrize("path", ["/v1/sweeps/sweep-x", "/v1/sweeps/nothing/trials", "/v1/sweeps/nothing/best"])
def test_a_sweep_that_is_not_there_is_missing(api: Api, path: str) -> None:
    assert api.problem(api.call("GET", path), 404)["code"] == "NOT_FOUND"


def test_a_trial_that_is_not_there_is_missing(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, devices=4)
    sweep_id = api.data(api.post("/v1/sweeps", make_sweep_document()), 201)["sweep_id"]

    for number in ("0", "x", "99999999999999"):
        assert api.problem(api.call("GET", f"/v1/sweeps/{sweep_id}/trials/{number}"), 404)["code"] == "NOT_FOUND"
