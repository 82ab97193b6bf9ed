"""Requirements over HTTP: an evaluation and the report of its training say whether the model passed."""

from typing import Any

import pytest

from app.database.engine import Database
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.models import Job, Node
from app.security.permissions import Role
from app.services.attempts import work_orders
from app.services.attempts.work_orders import WorkOrder
from tests.builders.factories import make_document, make_node
from tests.builders.recovering import training
from tests.builders.statements import statements
from tests.builders.sweep_runs import SweepRun
from tests.builders.sweeps import make_sweep_document
from tests.builders.walks import NO_WAIT, save, start_attempt
from tests.systems.apps import Api

DATASET = "/srv/data/q.jsonl"
PLANS = "training_config.evaluations"


def body(*require: dict[str, Any]) -> dict[str, Any]:
    benchmarks = [{"name": "f1", "dataset": DATASET}, {"name": "choices", "dataset": DATASET}]
    model, cpu = {"model_uri": "/srv/models/tiny"}, {"device_type": "cpu"}
    return {"model": model, "benchmarks": benchmarks, "resource_config": cpu, "require": list(require)}


def planning(*require: dict[str, Any], on: str = "end") -> dict[str, Any]:
    benchmarks = [{"name": "f1", "dataset": {"path": DATASET}}]
    plan = {"on": on, "benchmarks": benchmarks, "require": list(require)}
    return make_document(training_config={"evaluations": [plan]})


def measured(value: float | str) -> dict[str, Any]:
    return {"f1": {"metrics": {"f1": {"value": value, "stderr": 0.1}}, "n": 4, "seconds": 1.0, "tokens": 9}}


def measure(db: Database, evaluation_id: str, value: float | str) -> None:
    """Let the evaluation complete with this value of F1."""
    with db.write() as session:
        session.get_one(Job, evaluation_id).status = JobState.QUEUED
        if session.get(Node, "n1") is None:
            make_node(session, "n1")
    work = start_attempt(db, evaluation_id)
    work_orders.enter_phase(db, work, JobState.EVALUATING)
    work_orders.finish(db, work, Outcome(kind="completed", report={"benchmarks": measured(value)}), NO_WAIT)


def test_evaluation_says_whether_it_passed(api: Api) -> None:
    required = [{"metric": "f1", "min": 0.5}, {"metric": "f1", "max": 0.3}]
    made = api.data(api.post("/v1/evaluations", body(*required)), 201)["evaluation_id"]
    waiting = api.get(f"/v1/evaluations/{made}")
    assert (waiting["require"], waiting["passed"], waiting["verdicts"]) == (required, None, [])

    measure(api.db, made, 0.4)

    shown = api.get(f"/v1/evaluations/{made}")
    assert (shown["status"], shown["passed"]) == ("COMPLETED", False)
    assert [(each["min"], each["value"], each["passed"]) for each in shown["verdicts"]] == [
        (0.5, 0.4, False),
        (None, 0.4, False),
    ]
    (event,) = (each for each in api.get(f"/v1/jobs/{made}/events")["events"] if each["type"] == "job.warning")
    assert (event["reason"], event["message"]) == ("REQUIREMENT_NOT_MET", "f1 is 0.4, below 0.5; f1 is 0.4, above 0.3")


def test_value_is_compared_with_that_of_a_baseline(api: Api) -> None:
    base = api.data(api.post("/v1/evaluations", body()), 201)["evaluation_id"]
    required = {"metric": "f1", "baseline": base, "margin": 0.25}
    field = api.problem(api.post("/v1/evaluations", body(required)), 400)["details"][0]["field"]
    assert field == "require.0.baseline"  # it has not completed
    measure(api.db, base, 0.5)

    made = api.data(api.post("/v1/evaluations", body(required)), 201)["evaluation_id"]
    measure(api.db, made, 0.25)

    (verdict,) = api.get(f"/v1/evaluations/{made}")["verdicts"]
    assert verdict == {**required, "min": None, "max": None, "value": 0.25, "baseline_value": 0.5, "passed": True}


def test_baseline_without_a_finite_value_and_one_that_was_cancelled_are_refused(api: Api) -> None:
    odd = api.data(api.post("/v1/evaluations", body()), 201)["evaluation_id"]
    measure(api.db, odd, "NaN")
    cancelled = api.data(api.post("/v1/evaluations", body()), 201)["evaluation_id"]
    with api.db.write() as session:
        job = session.get_one(Job, cancelled)
        job.status, job.report = JobState.CANCELLED, {"benchmarks": measured(0.5)}

    for base in (odd, cancelled):
        problem = api.problem(api.post("/v1/evaluations", body({"metric": "f1", "baseline": base})), 400)
        assert problem["details"][0]["field"] == "require.0.baseline"


def test_deleted_baseline_costs_a_retry_nothing_but_the_verdict(api: Api) -> None:
    base = api.data(api.post("/v1/evaluations", body()), 201)["evaluation_id"]
    measure(api.db, base, 0.5)
    made = api.data(api.post("/v1/evaluations", body({"metric": "f1", "baseline": base})), 201)["evaluation_id"]
    measure(api.db, made, 0.6)
    assert api.call("DELETE", f"/v1/jobs/{base}").status_code == 204

    retried = api.data(api.post(f"/v1/jobs/{made}/retry"), 201)["job_id"]
    measure(api.db, retried, 0.6)

    (verdict,) = api.get(f"/v1/evaluations/{retried}")["verdicts"]
    assert (verdict["value"], verdict["baseline_value"], verdict["passed"]) == (0.6, None, False)
    (event,) = (each for each in api.get(f"/v1/jobs/{retried}/events")["events"] if each["type"] == "job.warning")
    assert event["message"] == f"f1 is 0.6, but {base} has no finite value of it"


def test_sweep_needs_the_baseline_only_when_it_is_created(api: Api) -> None:
    base = api.data(api.post("/v1/evaluations", body()), 201)["evaluation_id"]
    measure(api.db, base, 0.5)
    job = planning({"metric": "f1", "baseline": base})
    del job["name"]
    run = SweepRun(api, job=job, objective={"metric": "loss"}, early_stopping={"name": "none"})

    api.call("DELETE", f"/v1/jobs/{base}")
    run.step()

    assert set(run.states()) == {"RUNNING"}
    document = make_sweep_document(job=job, objective={"metric": "loss"}, early_stopping={"name": "none"})
    (detail,) = api.problem(api.post("/v1/sweeps", document), 400)["details"]
    assert detail["field"] == "job.training_config.evaluations.0.require.0.baseline"


def test_baselines_are_looked_up_by_one_query(api: Api) -> None:
    bases = [api.data(api.post("/v1/evaluations", body()), 201)["evaluation_id"] for _ in range(2)]
    for base in bases:
        measure(api.db, base, 0.5)
    required = [{"metric": "f1", "baseline": each} for each in bases]

    with statements(api.db) as sent:
        api.data(api.post("/v1/evaluations", body(*required)), 201)

    assert sum(each.startswith("SELECT job.id, job.report") for each in sent) == 1


def test_baseline_of_another_project_is_as_unknown_as_any(api: Api) -> None:
    stranger = api.make_key(Role.USER, "other")
    base = api.data(api.post("/v1/evaluations", body()), 201)["evaluation_id"]
    measure(api.db, base, 0.5)

    problem = api.problem(api.post("/v1/evaluations", body({"metric": "f1", "baseline": base}), key=stranger), 400)

    assert f"the project other has no completed evaluation {base}" in problem["message"]


def ended(api: Api, document: dict[str, Any]) -> WorkOrder:
    work = training(api.db, document=document)
    save(api.db, work, 2)
    work_orders.finish(api.db, work, Outcome(kind="completed", end_step=2), NO_WAIT)
    return work


@pytest.mark.both_databases
@pytest.mark.parametrize(("value", "passed"), [(0.4, False), (0.6, True)])
def test_report_of_a_training_has_what_was_measured_of_it(api: Api, value: float, *, passed: bool) -> None:
    work = ended(api, planning({"metric": "f1", "min": 0.5}))
    before = api.get(f"/v1/jobs/{work.job_id}/report")
    (planned,) = before["evaluations"]
    assert (before["passed"], planned["planned"], planned["results"], planned["passed"]) == (None, True, {}, None)

    measure(api.db, planned["evaluation_id"], value)

    report = api.get(f"/v1/jobs/{work.job_id}/report")
    (found,) = report["evaluations"]
    assert (report["status"], report["passed"], found["passed"]) == ("SUCCESS", passed, passed)
    assert found["results"]["f1"]["metrics"]["f1"]["value"] == value


def test_result_has_not_passed_while_a_required_evaluation_is_missing(api: Api) -> None:
    document, at_least = planning({"metric": "f1", "min": 0.5}), {"metric": "choices/accuracy", "min": 0.1}
    choices = [{"name": "choices", "dataset": {"path": DATASET}}]
    document["training_config"]["evaluations"].append({"on": "end", "benchmarks": choices, "require": [at_least]})
    work = ended(api, document)
    with statements(api.db) as sent:
        ids = [each["evaluation_id"] for each in api.get(f"/v1/jobs/{work.job_id}/report")["evaluations"]]
    assert not [each for each in sent if "PARTITION BY" in each]  # places in queues, which no report shows
    by_name = {api.get(f"/v1/evaluations/{each}")["benchmarks"][0]["name"]: each for each in ids}
    measure(api.db, by_name["f1"], 0.6)
    with api.db.write() as session:
        session.get_one(Job, by_name["choices"]).status = JobState.CANCELLED
    assert api.call("DELETE", f"/v1/jobs/{by_name['choices']}").status_code == 204

    report = api.get(f"/v1/jobs/{work.job_id}/report")
    assert ([each["passed"] for each in report["evaluations"]], report["passed"]) == ([True], None)


def test_checkpoints_say_nothing_about_the_result(api: Api) -> None:
    work = ended(api, planning({"metric": "f1", "min": 0.5}, on="checkpoint"))
    (planned,) = api.get(f"/v1/jobs/{work.job_id}/report")["evaluations"]

    measure(api.db, planned["evaluation_id"], 0.9)

    report = api.get(f"/v1/jobs/{work.job_id}/report")
    assert (report["passed"], report["evaluations"][0]["passed"], report["evaluations"][0]["step"]) == (None, True, 2)


@pytest.mark.parametrize(
    ("required", "status", "field", "said"),
    [
        ({"metric": "bleu", "min": 1}, 400, "metric", "known: f1"),
        ({"metric": "f1"}, 400, "metric", "give min, max, or baseline"),
        ({"metric": "f1", "baseline": "job-1"}, 400, "baseline", "GET /v1/evaluations"),
        ({"metric": "f1", "min": "0.5"}, 422, "min", "must be a number"),
        ({"metric": "f1", "min": 1e301}, 422, "min", "1e+300"),
        ({"metric": "f1", "baseline": "job-1", "margin": -1}, 422, "margin", "-1 must be at least 0"),
        ({"metric": "f1", "least": 1}, 422, "least", "nknown"),
        ({"min": 1}, 422, "metric", "required"),
    ],
)
def test_bad_requirements_name_field_and_way_out(
    sqlite_api: Api, required: dict[str, Any], status: int, field: str, said: str
) -> None:
    for path, document, at in (
        ("evaluations", body(required), "require.0"),
        ("jobs", planning(required), f"{PLANS}.0.require.0"),
    ):
        problem = sqlite_api.problem(sqlite_api.post(f"/v1/{path}", document), status)

        fields = [each["field"] for each in problem["details"]]
        assert (f"{at}.{field}" in fields, said in str(problem)) == (True, True), problem
