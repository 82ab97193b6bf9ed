"""Pages of evaluations: the list, one beside its base, and its actions."""

from typing import Any

from app.domain.lifecycle.states import JobState
from app.models import Job
from app.services.attempts.evaluation_verdicts import VERDICTS
from app.services.evaluations import bases, listing
from tests.builders.batch_runs import CALLER
from tests.builders.factories import make_document, make_job
from tests.builders.shards import batch_document
from tests.integration.api.test_comparing_evaluations import measured
from tests.integration.web.conftest import Browser


def test_the_list_has_results_and_filters(web: Browser, viewer: Browser):
    evaluation = measured(web.api, [1, 0])
    with web.api.db.write() as session:
        make_job(session, document={**batch_document(benchmarks=1), "name": "still running"}, state=JobState.TRAINING)

    page = viewer.get("/ui/evaluations")
    assert f"/ui/evaluations/{evaluation}" in page.links
    assert "exact_match 0.5" in page.text
    assert "still running" in page.text
    assert "still running" not in viewer.get("/ui/evaluations?status=COMPLETED&name=&job_id=").text
    assert viewer.get("/ui/evaluations", headers={"HX-Request": "true"}).html.lstrip().startswith("<div id=")


def test_an_evaluation_stands_beside_the_base_that_was_chosen(web: Browser):
    base, better = measured(web.api, [0] * 10 + [1] * 10), measured(web.api, [1] * 8 + [0] * 2 + [1] * 10)

    alone = web.get(f"/ui/evaluations/{better}")
    assert "exact_match exact_match 0.9 0.1 20" in alone.text
    beside = web.get(f"/ui/evaluations/{better}?base={base}")
    assert "exact_match exact_match 0.9 0.1 0.5 +0.4" in beside.text
    assert "An interval that holds 0 may be chance" in beside.text
    # None is chosen with an empty value, as forms send it.
    assert "+0.4" not in web.get(f"/ui/evaluations/{better}?base=").text
    assert "no evaluation nonsense" in web.get(f"/ui/evaluations/{better}?base=nonsense").text


def test_the_base_model_of_the_job_is_chosen_by_itself(web: Browser):
    base = measured(web.api, [0, 0, 1, 1])
    other = measured(web.api, [0, 1, 1, 1])
    mine = measured(web.api, [1, 1, 1, 1])
    with web.api.db.write() as session:
        trained = make_job(session, document=make_document(training_config={"base_model": {"model_id": "org/m"}}))
        _measures(session.get_one(Job, base), "org/m")
        _measures(session.get_one(Job, other), "org/another")
        of_job = session.get_one(Job, mine)
        of_job.evaluated_job_id = trained.id
        of_job.spec = {**of_job.spec, "inference": {**of_job.spec["inference"], "model": {"job_id": trained.id}}}

    with web.api.db.read() as session:
        evaluation = listing.one(session, CALLER, mine)
        found = bases.bases(session, evaluation)
        assert [each.job.id for each in found] == [base, other]
        assert bases.likeliest(session, evaluation, found) == base
    assert f"base={base}" not in web.get(f"/ui/evaluations/{mine}").html
    assert "0.5 +0.5" in web.get(f"/ui/evaluations/{mine}").text


def test_requirements_have_verdicts(web: Browser):
    evaluation = measured(web.api, [1, 0])
    verdict = {
        "metric": "exact_match",
        "min": 0.75,
        "max": None,
        "baseline": None,
        "margin": 0.0,
        "value": 0.5,
        "baseline_value": None,
        "passed": False,
    }
    with web.api.db.write() as session:
        job = session.get_one(Job, evaluation)
        job.report = {**(job.report or {}), VERDICTS: [verdict]}

    page = web.get(f"/ui/evaluations/{evaluation}")
    assert "Requirements: ✕ not passed" in page.text
    assert "at least 0.75" in page.text


def test_one_that_runs_can_be_cancelled_and_one_that_ended_deleted(member: Browser, web: Browser, viewer: Browser):
    with web.api.db.write() as session:
        waiting = make_job(session, document=batch_document(benchmarks=1), state=JobState.QUEUED).id
    ended = measured(web.api, [1, 0])
    viewer.get(f"/ui/evaluations/{ended}")
    for evaluation, action in ((waiting, "cancel"), (ended, "delete")):
        assert viewer.post(f"/ui/evaluations/{evaluation}/{action}").status_code == 403
    member.get(f"/ui/evaluations/{waiting}")

    assert member.act(f"/ui/evaluations/{waiting}/cancel") == "The evaluation is being cancelled."
    assert member.act(f"/ui/evaluations/{ended}/delete") == "The evaluation and its files are deleted."
    assert "CANCELLED" in member.get(f"/ui/evaluations/{waiting}").text
    member.get(f"/ui/evaluations/{ended}", 404)


def test_other_projects_are_not_seen_and_names_are_text(web: Browser, member: Browser):
    with web.api.db.write() as session:
        document = {**batch_document(benchmarks=1), "name": "<b>secret</b>"}
        foreign = make_job(session, document=document, project="other").id
    mine = measured(web.api, [1, 0])

    assert "<b>secret" not in web.get("/ui/evaluations").html
    assert "<b>secret" not in web.get(f"/ui/evaluations/{foreign}").html
    assert "secret" not in member.get("/ui/evaluations").text
    member.get(f"/ui/evaluations/{foreign}", 404)
    assert "no evaluation" in member.get(f"/ui/evaluations/{mine}?base={foreign}").text
    web.get(f"/ui/evaluations/{make_training(web)}", 404)


def make_training(web: Browser) -> str:
    with web.api.db.write() as session:
        return make_job(session).id


def _measures(job: Job, model_id: str) -> None:
    training: dict[str, Any] = job.spec["training_config"]
    job.spec = {**job.spec, "training_config": {**training, "base_model": {"model_id": model_id}}}
