"""Creating sweeps and evaluations by form: what it begins with, what it says of a document, and what it makes."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import select
from werkzeug.test import TestResponse

from app.domain.lifecycle.states import JobState
from app.models import Job, Sweep
from app.services.preflight import admission
from app.services.preflight.admission import AdmissionFailure
from app.services.recipes import recipes
from app.services.sweeps.reading import plans
from app.services.sweeps.search.suggestions import SearchUnavailable
from tests.builders.factories import make_document, make_job
from tests.builders.shards import batch_document
from tests.builders.sweeps import make_sweep, make_sweep_document
from tests.integration.web.conftest import Browser, Page
from tests.integration.web.test_submit import document_of

PARTIAL = {"HX-Request": "true"}
EVALUATION: Mapping[str, Any] = {
    "name": "measured",
    "model": {"model_uri": "org/model"},
    "benchmarks": [{"name": "perplexity", "dataset": "/srv/data/val.jsonl"}],
}


def sweep_document(**changes: Any) -> dict[str, Any]:
    return {**make_sweep_document(), "name": "search", **changes}


def checked(web: Browser, kind: str, document: object) -> Page:
    web.get(f"/ui/{kind}/new")
    answer = web.post(f"/ui/{kind}/new/check", {"document": json.dumps(document)}, headers=PARTIAL)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    return Page(answer.get_data(as_text=True))


def test_a_sweep_that_could_be_created_shows_its_first_trials(web: Browser):
    page = checked(web, "sweeps", sweep_document())

    assert "It can be created" in page.text
    assert "learning_rate = " in page.text
    with web.api.db.read() as session:
        assert session.scalars(select(Sweep)).all() == []


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"parameters": {}}, "parameters", "name 1 to"),
        (
            {"parameters": {"learning_rte": {"type": "double", "min": 0.1, "max": 0.2}}},
            "parameters.learning_rte",
            "did",
        ),
        ({"objective": {"metric": "eval_los"}}, "objective.metric", "did you mean"),
        ({"budget": {"parallel_trials": 1}}, "budget.max_trials", "is missing"),
        ({"job": {"name": 3}}, "job", ""),
        ({"unknown": 1}, "unknown", "unknown field"),
    ],
)
def test_what_is_wrong_with_a_sweep_is_said_at_its_field(web: Browser, changes: Any, field: str, message: str):
    page = checked(web, "sweeps", sweep_document(**changes))

    assert f'data-field="{field}' in page.html
    assert message in page.text


def test_a_method_without_its_library_is_said_and_is_no_error_of_the_server(
    web: Browser, monkeypatch: pytest.MonkeyPatch
):
    def missing(*_: object) -> None:
        raise SearchUnavailable("method tpe needs optuna, which is not installed here")

    monkeypatch.setattr(plans, "plan", missing)

    assert "needs optuna" in checked(web, "sweeps", sweep_document()).text


def test_creating_a_sweep_goes_to_its_page(web: Browser):
    web.get("/ui/sweeps/new")
    answer = web.post("/ui/sweeps/new", {"document": json.dumps(sweep_document())})

    with web.api.db.read() as session:
        sweep = session.scalars(select(Sweep)).one()
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/ui/sweeps/{sweep.id}")
    assert (sweep.name, sweep.project) == ("search", "default")


def test_a_sweep_of_a_job_is_of_its_document_around_its_learning_rate(web: Browser):
    document = make_document()
    document["training_config"]["hyperparameters"] = {"learning_rate": "0.001"}
    with web.api.db.write() as session:
        job = make_job(session, document={**document, "name": "base"})
        job.latest_metrics = {"loss": 1.0, "my<metric>": 2.0}
        job_id = job.id

    page = web.get(f"/ui/sweeps/new?clone={job_id}")

    found = document_of(page)
    assert found["name"] == "base-sweep"
    assert found["job"]["training_config"]["training_type"] == document["training_config"]["training_type"]
    assert "name" not in found["job"]
    assert found["parameters"] == {"learning_rate": {"type": "double", "min": 0.0001, "max": 0.01, "scale": "log"}}
    assert '<option value="my&lt;metric&gt;">' in page.html
    assert f"/ui/sweeps/new?clone={job_id}" in web.get(f"/ui/jobs/{job_id}").links
    assert "It can be created" in checked(web, "sweeps", found).text


@pytest.mark.long
def test_every_recipe_can_be_tuned(web: Browser):
    for each in recipes():
        found = document_of(web.get(f"/ui/sweeps/new?recipe={each.name}"))
        source = {"path": "/srv/data/train.jsonl"}
        found["job"]["data_config"]["sources"] = [source]
        if found["objective"]["metric"].startswith("eval_") and not found["job"]["data_config"].get("validation_split"):
            found["job"]["data_config"]["sources"] = [source, {"path": "/srv/data/val.jsonl", "split": "validation"}]
        page = checked(web, "sweeps", found)
        assert "It can be created" in page.text, (each.name, page.text)


def test_rows_are_of_the_parameters_that_are_named(web: Browser):
    page = web.get(
        "/ui/sweeps/new/parameters?training_type=LORA&framework=HF_TRAINER&row=lora_r&row=data_config.batch_size&row=<b>"
    )

    assert 'data-path="parameters.lora_r.min"' in page.html
    assert 'data-path="parameters.data_config.batch_size.values"' in page.html
    assert "Rank of the adapter's matrices" in page.text
    assert "<b>" not in page.html
    assert web.get("/ui/sweeps/new/parameters?framework=none&row=a&row=a").html.count("<fieldset") == 1
    assert "Nothing varies yet." in web.get("/ui/sweeps/new/parameters?framework=none").text
    many = web.get("/ui/sweeps/new/parameters?" + "&".join(f"row=p{number}" for number in range(50)))
    assert many.html.count("<fieldset") == 40
    assert "10 more parameters stand in the document" in many.text


def test_an_evaluation_is_planned_and_nothing_is_stored(web: Browser):
    page = checked(web, "evaluations", EVALUATION)

    assert "Place in the queue 1, in default" in page.text
    with web.api.db.read() as session:
        assert session.scalars(select(Job)).all() == []


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"benchmarks": [{"name": "rouge_x", "dataset": "/srv/a"}]}, "benchmarks.0.name", "rouge_l"),
        ({"benchmarks": [{"name": "perplexity", "dataset": ""}]}, "benchmarks.0.dataset", "must not be empty"),
        ({"benchmarks": [{"name": "perplexity"}]}, "benchmarks.0.dataset", "is required"),
        ({"benchmarks": []}, "benchmarks", ""),
        ({"model": {}}, "model", ""),
        ({"resource_config": {"gpu_count": 0}}, "resource_config.gpu_count", "1"),
    ],
)
def test_what_is_wrong_with_an_evaluation_is_said_at_its_field(web: Browser, changes: Any, field: str, message: str):
    page = checked(web, "evaluations", {**EVALUATION, **changes})

    assert f'data-field="{field}' in page.html, page.text
    assert message in page.text


def test_a_missing_model_is_said_at_its_field(web: Browser, monkeypatch: pytest.MonkeyPatch):
    missing = AdmissionFailure(cause="MODEL_NOT_FOUND", message="base model /srv/m does not exist")
    monkeypatch.setattr(admission, "missing_input", lambda *_: missing)

    page = checked(web, "evaluations", EVALUATION)

    assert 'data-field="model.model_uri" data-message="base model /srv/m does not exist"' in page.html


def test_creating_an_evaluation_goes_to_its_page(web: Browser):
    web.get("/ui/evaluations/new")
    answer = web.post("/ui/evaluations/new", {"document": json.dumps(EVALUATION)})

    with web.api.db.read() as session:
        job = session.scalars(select(Job)).one()
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/ui/evaluations/{job.id}")
    assert (job.name, job.kind) == ("measured", "evaluation")


def test_an_evaluation_of_a_job_is_of_its_result_or_a_checkpoint_on_its_validation_data(web: Browser):
    document = make_document()
    document["data_config"]["sources"] = [{"path": "/t.jsonl"}, {"path": "/v.jsonl", "split": "validation"}]
    with web.api.db.write() as session:
        completed = make_job(session, document=document, state=JobState.COMPLETED).id
        running = make_job(session, document=document, state=JobState.TRAINING).id

    found = document_of(web.get(f"/ui/evaluations/new?job={completed}"))
    assert found["model"] == {"job_id": completed}
    assert found["benchmarks"] == [{"name": "perplexity", "dataset": "/v.jsonl"}]
    of_running = document_of(web.get(f"/ui/evaluations/new?job={running}"))
    assert of_running["model"] == {"job_id": running, "checkpoint": "latest"}
    chosen = document_of(web.get(f"/ui/evaluations/new?job={running}&checkpoint=ckpt-1"))
    assert chosen["model"]["checkpoint"] == "ckpt-1"
    assert f"/ui/evaluations/new?job={completed}" in web.get(f"/ui/jobs/{completed}").links
    assert f"/ui/evaluations/new?job={running}" not in web.get(f"/ui/jobs/{running}").links
    assert document_of(web.get("/ui/evaluations/new?model=org/m"))["model"] == {"model_uri": "org/m"}


def test_rows_are_of_as_many_benchmarks_as_there_are(web: Browser):
    page = web.get("/ui/evaluations/new/benchmarks?row=0&row=1")

    assert 'data-path="benchmarks.1.name"' in page.html
    assert 'data-path="benchmarks.2.name"' not in page.html
    assert "Nothing is measured yet." in web.get("/ui/evaluations/new/benchmarks").text


def test_only_trainings_that_the_caller_sees_are_tuned_and_evaluated(web: Browser, member: Browser):
    with web.api.db.write() as session:
        foreign = make_job(session, project="other").id
        batch = make_job(session, document=batch_document()).id

    for path in (f"/ui/sweeps/new?clone={foreign}", f"/ui/evaluations/new?job={foreign}"):
        member.get(path, 404)
    assert "for trainings" in web.get(f"/ui/sweeps/new?clone={batch}", 400).text
    assert "makes no model" in web.get(f"/ui/evaluations/new?job={batch}", 400).text


def test_a_member_creates_in_the_own_project_only(member: Browser):
    for kind, document in (("sweeps", sweep_document()), ("evaluations", EVALUATION)):
        member.get(f"/ui/{kind}/new")
        answer = member.post(f"/ui/{kind}/new", {"document": json.dumps(document), "project": "other"})
        assert answer.status_code == 404


def test_a_viewer_creates_nothing_and_sees_no_way_to_it(viewer: Browser):
    for kind in ("sweeps", "evaluations"):
        viewer.get(f"/ui/{kind}/new", 403)
        assert f"/ui/{kind}/new" not in viewer.get(f"/ui/{kind}").links
        assert viewer.post(f"/ui/{kind}/new", {"document": "{}"}).status_code == 403


def test_rows_are_of_as_many_constraints_and_evaluations_as_there_are(web: Browser):
    constraints = web.get("/ui/sweeps/new/constraints?row=0&row=1")
    planned = web.get("/ui/sweeps/new/evaluations?training_type=LORA&framework=HF_TRAINER&row=0")

    assert 'data-path="constraints.1.at_most"' in constraints.html
    assert 'data-path="constraints.2.metric"' not in constraints.html
    assert 'data-path="job.training_config.evaluations.0.benchmarks.0.parameters"' in planned.html
    assert 'data-made="LORA HF_TRAINER 0"' in planned.html
    many = web.get("/ui/sweeps/new/constraints?" + "&".join(f"row={number}" for number in range(50)))
    assert many.html.count("<fieldset") == 16


def test_a_condition_needs_another_parameter(web: Browser):
    alone = web.get("/ui/sweeps/new/parameters?row=lora_r")
    both = web.get("/ui/sweeps/new/parameters?row=lora_r&row=use_dora")

    assert "only_if" not in alone.html
    assert 'data-path="parameters.lora_r.only_if" data-kind="cases"' in both.html
    assert "such as use_dora=a, b" in both.text


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"require": ["learning_rate <"]}, "require.0"),
        ({"constraints": [{"metric": "loss"}]}, "constraints.0"),
        (
            {"parameters": {"learning_rate": {"type": "double", "min": 0.1, "max": 1, "only_if": {"x": [1]}}}},
            "parameters.learning_rate.only_if",
        ),
    ],
)
def test_what_is_wrong_with_a_condition_is_said_at_its_field(web: Browser, changes: Any, field: str):
    assert f'data-field="{field}' in checked(web, "sweeps", sweep_document(**changes)).html


def test_an_objective_that_is_a_benchmark_is_planned_beside_it(web: Browser):
    document = sweep_document(objective={"metric": "benchmark:choices/accuracy"})

    assert "no evaluation of the trials measures choices" in checked(web, "sweeps", document).text
    plan = {"benchmarks": [{"name": "choices", "dataset": "/srv/data/val.jsonl", "parameters": {"normalize": "chars"}}]}
    document["job"]["training_config"]["evaluations"] = [plan]
    wrong = checked(web, "sweeps", document)
    assert 'data-field="job.training_config.evaluations.0.benchmarks.0.parameters.normalize"' in wrong.html, wrong.text
    del plan["benchmarks"][0]["parameters"]
    assert "It can be created" in checked(web, "sweeps", document).text


def created(web: Browser, fields: dict[str, Any]) -> TestResponse:
    web.get("/ui/sweeps/new")
    return web.post("/ui/sweeps/new", fields)


def forked(web: Browser, sweep_id: str, document: object, path: str = "/check", **request: Any) -> TestResponse:
    web.get(f"/ui/sweeps/{sweep_id}/fork")
    return web.post(f"/ui/sweeps/{sweep_id}/fork{path}", {"document": json.dumps(document)}, **request)


def test_a_fork_begins_with_what_its_parent_has(web: Browser):
    answer = created(web, {"document": json.dumps(sweep_document(require=["learning_rate < 1"]))})
    first = answer.headers["Location"].rpartition("/")[2]
    assert f"/ui/sweeps/{first}/fork" in web.get(f"/ui/sweeps/{first}").links

    document = document_of(web.get(f"/ui/sweeps/{first}/fork"))

    assert document["name"] == "search-fork"
    assert document["require"] == ["learning_rate < 1"]
    assert (document["method"]["seed"], document["early_stopping"]) == (2, {"name": "none"})
    assert document["budget"] == {"max_trials": 4, "parallel_trials": 2, "running": "finish"}
    assert "job" not in document
    page = Page(forked(web, first, document, headers=PARTIAL).get_data(as_text=True))
    assert "It can be created" in page.text
    wrong = Page(forked(web, first, {**document, "parameters": {}}, headers=PARTIAL).get_data(as_text=True))
    assert 'data-field="parameters"' in wrong.html


def test_what_is_taken_out_of_a_fork_is_gone(web: Browser):
    budget = {"max_trials": 4, "max_seconds": 600}
    answer = created(web, {"document": json.dumps(sweep_document(budget=budget, labels={"a": "b"}))})
    first = answer.headers["Location"].rpartition("/")[2]
    document = document_of(web.get(f"/ui/sweeps/{first}/fork"))
    assert document["labels"] == {"a": "b"}
    del document["budget"]["max_seconds"], document["labels"]

    answer = forked(web, first, document, "")

    assert answer.status_code == 303
    with web.api.db.read() as session:
        fork = session.get(Sweep, answer.headers["Location"].rpartition("/")[2])
        assert fork is not None
        assert fork.spec["warm_start"]["sweeps"] == [first]
        assert (fork.spec["budget"]["max_trials"], fork.spec["budget"]["max_seconds"], fork.labels) == (4, None, {})


def test_only_sweeps_that_the_caller_sees_and_manages_are_forked(web: Browser, member: Browser, viewer: Browser):
    with web.api.db.write() as session:
        foreign, own = make_sweep(session, project="other").id, make_sweep(session).id

    member.get(f"/ui/sweeps/{foreign}/fork", 404)
    assert forked(member, own, {}, "").status_code == 400
    assert member.post(f"/ui/sweeps/{foreign}/fork", {"document": "{}"}).status_code == 404
    viewer.get(f"/ui/sweeps/{own}/fork", 403)
    assert f"/ui/sweeps/{own}/fork" not in viewer.get(f"/ui/sweeps/{own}").links
