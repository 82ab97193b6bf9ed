"""Submission of evaluations: the document of the job that measures, and its checks in the words of the request."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from app.domain.evaluations.documents import EvaluationOptions, Subject, document
from app.domain.evaluations.rules import refuse_unfit
from app.domain.spec.inference import GENERATE
from app.domain.spec.model import JobDocument, PlannedBenchmark
from app.models import Job
from app.security.permissions import Caller
from app.services.evaluations import judges
from app.services.inference import models, service_models
from app.services.inference.models import WantedModel
from app.services.inference.submission import as_submitted, fields_as_submitted
from app.services.jobs import dry_run, submission
from app.services.jobs.dry_run import DryRunPlan
from app.services.jobs.submission import Origin
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored

_SOURCE = re.compile(r"data_config\.sources\.(\d+)(.*)")


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest:
    """A model, what to measure of it, and how the job is to run."""

    model: WantedModel
    benchmarks: Sequence[PlannedBenchmark]
    options: EvaluationOptions


def submit(
    plane: ControlPlane,
    caller: Caller,
    request: EvaluationRequest,
    *,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
    on_written: OnWritten = not_stored,
) -> None:
    """Store the job that measures. Raises as `models.resolve` and a submission, with the fields of the request."""
    made = _document(plane, caller, request, project)

    def retold(text: str) -> str:
        return _asked(text, made)

    with fields_as_submitted(retold):
        origin = Origin(foreign={}, retold=retold)
        submission.submit(
            plane, caller, made, project=project, forwarded=forwarded, origin=origin, on_written=on_written
        )


def plan(
    plane: ControlPlane,
    caller: Caller,
    request: EvaluationRequest,
    *,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
) -> DryRunPlan:
    """A dry run. Raises what `submit` would raise."""
    made = _document(plane, caller, request, project)
    with fields_as_submitted(lambda field: _asked(field, made)):
        found = dry_run.plan(plane, caller, made, project=project, forwarded=forwarded)
    return replace(found, warnings=[_asked(line, made) for line in found.warnings])


def _document(plane: ControlPlane, caller: Caller, request: EvaluationRequest, project: str | None) -> JobDocument:
    target = project or caller.home_project
    caller.require_project(target)
    with plane.db.read() as session:
        base, model = models.resolve(session, caller, target, request.model)
        service_models.refuse_other_task(session, target, model, GENERATE)
        trained = session.get_one(Job, model.job_id).document if model.job_id is not None else None
        judges.refuse_missing(session, caller, target, request.benchmarks)
    if trained is not None:
        refuse_unfit(trained, str(model.job_id), request.benchmarks)
    return document(Subject(base=base, model=model, trained=trained), request.benchmarks, request.options)


def _asked(field: str, made: JobDocument) -> str:
    """A field of the stored document, or a text that begins with one, in the words of the request."""
    found = _SOURCE.fullmatch(field)
    if found is None or made.inference is None:
        return as_submitted(field)
    users = (i for i, each in enumerate(made.inference.benchmarks) if each.dataset == int(found[1]))
    return f"benchmarks.{next(users, 0)}.dataset{found[2]}"
