"""What a person does to a job: pause, resume, save, cancel, retry, and change its priority and labels."""

from functools import partial
from typing import Any

from flask import Blueprint, Response, url_for
from marshmallow import fields, validate

from app.domain.errors import InvalidRequest
from app.domain.lifecycle.states import TERMINAL, JobState
from app.http.context import caller, plane
from app.http.operation import operation
from app.http.request_body import validated
from app.schemas.documents import RequestSchema
from app.schemas.jobs import ChangeJobSchema, SubmitJobSchema
from app.schemas.queries import QueryFlag, QueryWhole
from app.security.permissions import Permission
from app.services.attempts import checkpoints
from app.services.jobs import retries, start_points, updates
from app.services.jobs.control import commands
from app.services.jobs.retries import Retry
from app.web.forms import form
from app.web.job_frame import find_job
from app.web.pages import done, page

blueprint = Blueprint("web_job_actions", __name__)
_DOCUMENT, _CHANGES = SubmitJobSchema(), ChangeJobSchema()
NEWEST, BEGINNING = "newest", "beginning"  # where a retry starts; else from a checkpoint
_PAUSES = "The job saves a checkpoint and pauses. A script of your own runs on until the place where it saves."
_SAVES = "The job saves a checkpoint and continues; a script of your own does so at the place where it saves."
_MOST_CHECKPOINTS = 100  # of a list to choose from


class PauseJobFormSchema(RequestSchema):
    save_checkpoint = QueryFlag(load_default=True)
    force = QueryFlag(load_default=False)


class ResumeFormSchema(RequestSchema):
    checkpoint_id = fields.String(load_default="", validate=validate.Length(max=128))
    from_best = QueryFlag(load_default=False)


class CancelFormSchema(RequestSchema):
    reason = fields.String(load_default="", validate=validate.Length(max=1000))


class RetryFormSchema(RequestSchema):
    start = fields.String(load_default=NEWEST, validate=validate.Length(max=128))
    gpu_count = QueryWhole(0, 65536)
    node_count = QueryWhole(1, 65536)
    gpu_type = fields.String(validate=validate.Length(max=1024))
    gpu_memory_min_mb = QueryWhole(0, 2**40)


class ChangeFormSchema(RequestSchema):
    """``labels`` has one on each line, as key=value."""

    priority = QueryWhole(0, 10)
    labels = fields.String(load_default="", validate=validate.Length(max=32_768))
    preemptible = QueryFlag(load_default=False)


@blueprint.post("/jobs/<job_id>/pause")
@operation("Pause a job", permission=Permission.MANAGE, media="html", **form(PauseJobFormSchema))
def pause(job_id: str, body: dict[str, Any]) -> Response:
    job = commands.pause(plane(), caller(), job_id, saves=body["save_checkpoint"], force=body["force"])
    if job.status == "PAUSED":
        return _shown(job_id, "The job is paused.")
    return _shown(job_id, _PAUSES if body["save_checkpoint"] else "The job pauses.")


@blueprint.post("/jobs/<job_id>/resume")
@operation("Resume a job, or take its pause back", permission=Permission.MANAGE, media="html", **form(ResumeFormSchema))
def resume(job_id: str, body: dict[str, Any]) -> Response:
    job = commands.resume(plane(), caller(), job_id, **body)
    if job.state is not JobState.QUEUED:
        return _shown(
            job_id, "The pause is taken back. A job that has saved already returns to its queue, and continues."
        )
    return _shown(job_id, "The job waits for devices and then continues.")


@blueprint.post("/jobs/<job_id>/save")
@operation("Save a checkpoint of a running job", permission=Permission.MANAGE, media="html", **form())
def save(job_id: str, body: dict[str, Any]) -> Response:  # noqa: ARG001 – it has no fields
    commands.save_now(plane(), caller(), job_id)
    return _shown(job_id, _SAVES)


@blueprint.post("/jobs/<job_id>/cancel")
@operation("Cancel a job", permission=Permission.MANAGE, media="html", **form(CancelFormSchema))
def cancel(job_id: str, body: dict[str, Any]) -> Response:
    job = commands.cancel(plane(), caller(), job_id, reason=body["reason"])
    return _shown(job_id, "The job is cancelled." if job.status == "CANCELLED" else "The job stops now.")


@blueprint.get("/jobs/<job_id>/retry")
@operation("Show the form to retry a job with changes", permission=Permission.MANAGE, media="html")
def retry_form(job_id: str) -> Response:
    found = find_job(job_id)
    with plane().db.read() as session:
        saved = [each for each in checkpoints.list_for(session, job_id) if not each.diverged]
    asked = found.document.resource_config
    return page(
        "job/retry.html",
        job=found,
        saved=saved[::-1][:_MOST_CHECKPOINTS],
        asked=asked,
        gpu_type=_as_text(asked.gpu_type),
    )


@blueprint.post("/jobs/<job_id>/retry")
@operation("Retry an ended job as a new job", permission=Permission.MANAGE, media="html", **form(RetryFormSchema))
def retry(job_id: str, body: dict[str, Any]) -> Response:
    start, resources = body.pop("start"), _resources(job_id, body)
    wanted = Retry(
        checkpoint_id=start if start not in (NEWEST, BEGINNING) else "",
        from_start=start == BEGINNING,
        resources=resources,
    )
    child = retries.retry(plane(), caller(), job_id, wanted, complete=partial(validated, _DOCUMENT))
    with plane().db.read() as session:
        begins = start_points.of_first_attempt(session, child)
    where = f"from step {begins.step:,}" if begins is not None else "from the beginning"
    return _shown(child.id, f"This new job does the work again, {where}.")


@blueprint.get("/jobs/<job_id>/change")
@operation("Show the form to change a job", permission=Permission.MANAGE, media="html")
def change_form(job_id: str) -> Response:
    job = find_job(job_id)
    return page("job/change.html", job=job, has_ended=job.job.state in TERMINAL)


@blueprint.post("/jobs/<job_id>/change")
@operation("Change a job", permission=Permission.MANAGE, media="html", **form(ChangeFormSchema))
def change(job_id: str, body: dict[str, Any]) -> Response:
    given = body if find_job(job_id).job.state not in TERMINAL else {}
    changes = validated(_CHANGES, {**given, "labels": _labels(body["labels"])})
    updates.change(plane(), caller(), job_id, changes)
    return _shown(job_id, "The job is changed.")


def _shown(job_id: str, message: str) -> Response:
    return done(message, url_for("web_job.job", job_id=job_id))


def _resources(job_id: str, given: dict[str, Any]) -> dict[str, Any]:
    """The fields of the form that are not as the job has them."""
    asked = find_job(job_id).document.resource_config
    if "gpu_type" in given:
        names = [each.strip() for each in given["gpu_type"].split(",") if each.strip()]
        given = {**given, "gpu_type": names[0] if len(names) == 1 else names}
        if _as_text(given["gpu_type"]) == _as_text(asked.gpu_type):
            del given["gpu_type"]
    return {name: value for name, value in given.items() if value != getattr(asked, name)}


def _as_text(names: Any) -> str:  # noqa: ANN401 – a name, several, or none
    return names if isinstance(names, str) else ", ".join(names or ())


def _labels(text: str) -> dict[str, str]:
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, equals, value = line.partition("=")
        if not equals:
            raise InvalidRequest(f"the line {line[:80]!r} is no label; write key=value", field="labels")
        found[key.strip()] = value.strip()
    return found
