"""Creating an evaluation: a form beside the document, checks while it is written, and the creation."""

from typing import Any

from flask import Blueprint, Response, url_for
from marshmallow import fields

from app.domain.errors import InvalidRequest, TrainyardError
from app.domain.spec.inference import TRAINING
from app.domain.spec.rules.evaluations import MOST_BENCHMARKS
from app.http.context import caller, plane
from app.http.operation import operation
from app.http.request_body import validated
from app.schemas.documents import RequestSchema
from app.schemas.evaluations import CreateEvaluationSchema
from app.security.permissions import Permission
from app.services.evaluations import submission
from app.services.evaluations.submission import EvaluationRequest
from app.services.jobs import details, lookup
from app.services.jobs.details import JobDetails
from app.services.jobs.submission import Submitted
from app.services.queues import queues
from app.web import drafts, evaluation_form, job_documents
from app.web.drafts import DraftFormSchema
from app.web.forms import form
from app.web.job_filters import Given
from app.web.pages import done, page, part

blueprint = Blueprint("web_evaluations_new", __name__)
_DOCUMENT = CreateEvaluationSchema()


class NewQuerySchema(RequestSchema):
    job = fields.String(load_default="")
    checkpoint = fields.String(load_default="")
    model = fields.String(load_default="")
    project = fields.String(load_default="")


class EvaluationRowsQuerySchema(RequestSchema):
    row = Given()


@blueprint.get("/evaluations/new")
@operation("Show the form to create an evaluation", permission=Permission.EVALUATE, query=NewQuerySchema, media="html")
def new(query: dict[str, Any]) -> Response:
    job = _job(query["job"]) if query["job"] else None
    document = evaluation_form.document_of(job, query["checkpoint"], query["model"])
    return page(
        "evaluations/new.html",
        text=job_documents.text_of(document),
        origin=[f"Measures the model of the job {job.job.name}."] if job is not None else [],
        groups=evaluation_form.groups(),
        more=evaluation_form.more(),
        known=evaluation_form.known_benchmarks(),
        queues=queues.names(plane().db),
        rows=evaluation_form.rows(len(document["benchmarks"])),
        start=evaluation_form.BENCHMARK,
        **drafts.choices(job.job.project if job is not None else query["project"]),
    )


@blueprint.get("/evaluations/new/benchmarks")
@operation("Show the rows of benchmarks", permission=Permission.EVALUATE, query=EvaluationRowsQuerySchema, media="html")
def benchmarks(query: dict[str, Any]) -> Response:
    shown = evaluation_form.rows(min(len(query["row"]), MOST_BENCHMARKS))
    return part("evaluations/benchmarks.html", rows=shown, start=evaluation_form.BENCHMARK)


@blueprint.post("/evaluations/new/check")
@operation(
    "Check the document of an evaluation, and show where it would run",
    permission=Permission.EVALUATE,
    media="html",
    **form(DraftFormSchema),
)
def check(body: dict[str, Any]) -> Response:
    try:
        plan = submission.plan(plane(), caller(), _read(body["document"]), project=body["project"] or None)
    except TrainyardError as error:
        return drafts.problem(error, "submit/check.html")
    warnings = [each for each in plan.warnings if each not in plan.refusals]
    field = evaluation_form.field_of_input(plan.missing.message) if plan.missing else ""
    return part("submit/check.html", problem=None, plan=plan, warnings=warnings, field=field)


@blueprint.post("/evaluations/new")
@operation("Create an evaluation", permission=Permission.EVALUATE, media="html", **form(DraftFormSchema))
def send(body: dict[str, Any]) -> Response:
    made: list[Submitted] = []
    submission.submit(
        plane(),
        caller(),
        _read(body["document"]),
        project=body["project"] or None,
        on_written=lambda _, submitted: made.append(submitted),
    )
    job = made[-1].job
    said = [f"{job.name} is accepted into the queue {job.queue}.", *made[-1].warnings]
    return done(" ".join(said), url_for("web_evaluations.evaluation", evaluation_id=job.id))


def _job(job_id: str) -> JobDetails:
    """Raises NotFound, and InvalidRequest for a job that makes no model."""
    with plane().db.read() as session:
        found = details.details(session, lookup.find(session, caller(), job_id))
    if found.document.kind != TRAINING:
        raise InvalidRequest(
            f"{job_id} is of kind {found.document.kind} and makes no model; choose a training to evaluate"
        )
    return found


def _read(text: str) -> EvaluationRequest:
    """Raises InvalidRequest or BadShape with every problem."""
    found: EvaluationRequest = validated(_DOCUMENT, drafts.read(text))
    return found
