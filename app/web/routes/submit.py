"""Submitting a job: a form beside the document, checks while it is written, and the submission."""

from typing import Any

from flask import Blueprint, Response, url_for
from marshmallow import fields

from app.domain.errors import LimitExceeded, QuotaExceeded, TrainyardError, Unavailable
from app.domain.spec.model import JobDocument
from app.http.context import backend, caller, holder, plane
from app.http.operation import operation
from app.schemas.documents import RequestSchema
from app.security.permissions import Permission
from app.services.jobs import data_validation, dry_run, submission
from app.services.jobs.data_validation import ValidationLimits
from app.services.jobs.submission import Origin, Submitted
from app.services.preflight.admission import InspectionSettings
from app.services.preflight.inspections import Report
from app.services.queues import queues
from app.web import drafts, job_documents, job_form
from app.web.drafts import DraftFormSchema, StartQuerySchema
from app.web.forms import form
from app.web.job_filters import Given
from app.web.pages import done, page, part
from app.web.roles import role_form, role_instances

blueprint = Blueprint("web_submit", __name__)
# The thread of the server waits as long; the report is kept, so that asking again continues the wait.
_DATA_SECONDS = 20.0


class MethodQuerySchema(RequestSchema):
    training_type = fields.String(load_default="")
    framework = fields.String(load_default="")


class RolesQuerySchema(MethodQuerySchema):
    row = Given()


@blueprint.get("/submit")
@operation("Show the form to submit a job", permission=Permission.MANAGE, query=StartQuerySchema, media="html")
def submit(query: dict[str, Any]) -> Response:
    begun = drafts.start(query)
    training = begun.document.get("training_config") or {}
    framework = (training.get("framework") or {}).get("type", "")
    method = job_form.method(training.get("training_type") or "", framework)
    return page(
        "submit/submit.html",
        text=job_documents.text_of(begun.document),
        origin=begun.origin,
        queues=queues.names(plane().db),
        first=job_form.first(),
        groups=job_form.groups(),
        method=method,
        **_roles(len(begun.document.get("tasks") or ()), method.training_type, framework),
        **drafts.choices(begun.project),
    )


@blueprint.get("/submit/hyperparameters")
@operation("Show the hyperparameters of a method", permission=Permission.MANAGE, query=MethodQuerySchema, media="html")
def hyperparameters(query: dict[str, Any]) -> Response:
    return part("submit/hyperparameters.html", method=job_form.method(query["training_type"], query["framework"]))


@blueprint.get("/submit/roles")
@operation("Show the rows of roles", permission=Permission.MANAGE, query=RolesQuerySchema, media="html")
def roles(query: dict[str, Any]) -> Response:
    return part("submit/roles.html", **_roles(len(query["row"]), query["training_type"], query["framework"]))


@blueprint.post("/submit/check")
@operation(
    "Check a document, and show where its job would run",
    permission=Permission.MANAGE,
    media="html",
    **form(DraftFormSchema),
)
def check(body: dict[str, Any]) -> Response:
    try:
        document, warnings = job_documents.read(drafts.read(body["document"]))
        plan = dry_run.plan(plane(), caller(), document, project=body["project"] or None)
    except TrainyardError as error:
        return drafts.problem(error, "submit/check.html")
    warnings += [each for each in plan.warnings if each not in plan.refusals]
    field = job_form.field_of_input(plan.missing.message) if plan.missing else ""
    asked = role_instances.asked_devices(document)
    return part("submit/check.html", problem=None, plan=plan, warnings=warnings, field=field, asked_devices=asked)


@blueprint.post("/submit/data")
@operation(
    "Read a document's data as its training would", permission=Permission.MANAGE, media="html", **form(DraftFormSchema)
)
def data(body: dict[str, Any]) -> Response:
    try:
        document, _ = job_documents.read(drafts.read(body["document"]))
        report = _preview(document, body["project"] or None)
    except QuotaExceeded as error:
        return drafts.problem(error, "submit/data.html")
    except LimitExceeded as error:
        return part("submit/data.html", problem=None, report=None, busy=str(error))
    except TrainyardError as error:
        return drafts.problem(error, "submit/data.html")
    return part("submit/data.html", problem=None, report=report, busy="")


@blueprint.post("/submit")
@operation("Submit a job", permission=Permission.MANAGE, media="html", **form(DraftFormSchema))
def send(body: dict[str, Any]) -> Response:
    document, warnings = job_documents.read(drafts.read(body["document"]))
    made: list[Submitted] = []
    submission.submit(
        plane(),
        caller(),
        document,
        project=body["project"] or None,
        origin=Origin(foreign={}, warnings=warnings),
        on_written=lambda _, submitted: made.append(submitted),
        alone=True,
    )
    job = made[-1].job
    said = [f"{job.name} is accepted into the queue {job.queue}.", *made[-1].warnings]
    return done(" ".join(said), url_for("web_job.job", job_id=job.id))


def _preview(document: JobDocument, project: str | None) -> Report | None:
    """None: it takes longer."""
    with backend().previews.held(holder()):  # it waits for a coordinator, and must leave threads to others
        try:
            return data_validation.validate(plane(), caller(), document, _patience(), project=project)
        except Unavailable:
            return None


def _patience() -> ValidationLimits:
    preflight = backend().settings.preflight
    inspection = InspectionSettings(rows=preflight.rows, waiting=preflight.waiting) if preflight.enabled else None
    return ValidationLimits(inspection=inspection, seconds=_DATA_SECONDS)


def _roles(count: int, training_type: str, framework: str) -> dict[str, Any]:
    """``made_for`` lets the script see whether the rows are those of the document."""
    made_for = {"training_type": training_type, "framework": framework, "rows": range(count)}
    return {"roles": role_form.rows(count), "new_role": role_form.new_role(framework, count), "made_for": made_for}
