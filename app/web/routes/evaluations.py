"""Evaluations, beside what they are compared with."""

from collections.abc import Sequence
from typing import Any

from flask import Blueprint, Response, url_for
from marshmallow import fields

from app.domain.errors import TrainyardError
from app.domain.lifecycle.states import TERMINAL, JobState
from app.http.context import caller, plane
from app.http.errors import problem_of
from app.http.operation import operation
from app.http.pagination import page_request
from app.schemas.documents import RequestSchema
from app.schemas.queries import OrderBy, one_of
from app.schemas.strict_fields import Text
from app.security.permissions import Permission
from app.services.evaluations import bases, commands, comparing, listing
from app.services.evaluations.listing import EvaluationDetails
from app.web.forms import form
from app.web.lists import WebListSchema, listed
from app.web.pages import done, is_partial, page, part

blueprint = Blueprint("web_evaluations", __name__)
_STATES = (JobState.PENDING, JobState.QUEUED, JobState.TRAINING, *sorted(TERMINAL))


class EvaluationListSchema(WebListSchema):
    order_by = OrderBy("created_at", "priority", "name", "status")
    status = one_of(_STATES)
    project = Text(longest=63)
    name = Text(longest=128)
    job_id = Text(longest=64)


class EvaluationPageSchema(RequestSchema):
    of_form = True
    base = fields.String()


@blueprint.get("/evaluations")
@operation("List evaluations", permission=Permission.VIEW, query=EvaluationListSchema, media="html")
def evaluations(query: dict[str, Any]) -> Response:
    filters = {**query, "status": [query["status"]]} if "status" in query else query
    with plane().db.read() as session:
        found = listing.page(session, caller(), {**filters, "labels": []}, page_request(query))
    shown = listed(found, query)
    template = "evaluations/list.html" if is_partial() else "evaluations/evaluations.html"
    answer = part if is_partial() else page
    return answer(template, evaluations=shown, query=query, states=_STATES)


@blueprint.get("/evaluations/<evaluation_id>")
@operation("Show an evaluation beside its base", permission=Permission.VIEW, query=EvaluationPageSchema, media="html")
def evaluation(evaluation_id: str, query: dict[str, Any]) -> Response:
    with plane().db.read() as session:
        found = listing.one(session, caller(), evaluation_id)
        others = bases.bases(session, found)
        base_id = query.get("base", bases.likeliest(session, found, others))
    comparison, failure = _compared(base_id, found)
    values: dict[str, Any] = {
        "evaluation": found,
        "bases": _named(others),
        "base_id": base_id,
        "comparison": comparison,
        "failure": failure,
        "has_ended": found.job.state in TERMINAL,
    }
    if is_partial():
        return part("evaluations/evaluation_part.html", **values)
    return page("evaluations/evaluation.html", **values)


@blueprint.post("/evaluations/<evaluation_id>/cancel")
@operation("Cancel an evaluation", permission=Permission.EVALUATE, media="html", **form())
def cancel(evaluation_id: str, body: dict[str, Any]) -> Response:
    del body
    commands.cancel(plane(), caller(), evaluation_id)
    return done(
        "The evaluation is being cancelled.", url_for("web_evaluations.evaluation", evaluation_id=evaluation_id)
    )


@blueprint.post("/evaluations/<evaluation_id>/delete")
@operation("Delete an evaluation with its files", permission=Permission.EVALUATE, media="html", **form())
def delete(evaluation_id: str, body: dict[str, Any]) -> Response:
    del body
    commands.delete(plane(), caller(), evaluation_id)
    return done("The evaluation and its files are deleted.", url_for("web_evaluations.evaluations"))


def _compared(base_id: str, found: EvaluationDetails) -> tuple[dict[tuple[str, str], Any], str]:
    """By (benchmark, metric) how the evaluation differs from the base, or why they cannot be compared."""
    if not base_id:
        return {}, ""
    if found.job.state is not JobState.COMPLETED:
        return {}, "It is compared when it has completed."
    try:
        with plane().db.read() as session:
            evaluated = comparing.load(session, caller(), [base_id, found.job.id])
        compared = comparing.compare(plane().storage, evaluated, base_id)
    except TrainyardError as error:
        return {}, problem_of(error).message
    return {(row["benchmark"], row["metric"]): row for row in compared["comparisons"]}, ""


def _named(found: Sequence[EvaluationDetails]) -> list[tuple[str, str]]:
    """(id, text) for a choice."""
    return [
        ("", "None"),
        *((each.job.id, f"{each.job.name} – {model_name(each)}, {each.job.id[-8:]}") for each in found),
    ]


def model_name(found: EvaluationDetails) -> str:
    """Of what was measured: a job's result or checkpoint, or a model of the hub or a directory."""
    if found.section.model.job_id is None:
        return found.details.document.training_config.base_model.model_id
    step = found.job.evaluated_step
    return f"{'result' if step is None else f'step {step}'} of job {found.section.model.job_id[-8:]}"
