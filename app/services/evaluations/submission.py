"""Submission of evaluations: the document of the job that measures, and its checks in the words of the request."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from app.domain.errors import TrainyardError
from app.domain.evaluations.documents import Options, Subject, document
from app.domain.evaluations.rules import refuse_unfit
from app.domain.spec.model import JobDocument, PlannedBenchmark
from app.models import Job
from app.security.permissions import Caller
from app.services.inference import models
from app.services.inference.models import WantedModel
from app.services.inference.submission import as_submitted
from app.services.jobs import dry_run, submission
from app.services.jobs.dry_run import Plan
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored

_SOURCE = re.compile(r"data_config\.sources\.(\d+)(.*)")


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest:
    """A model, what to measure of it, and how the job is to run."""

    model: WantedModel
    benchmarks: Sequence[PlannedBenchmark]
    options: Options


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
    with _named_as_asked(made):
        submission.submit(plane, caller, made, project=project, forwarded=forwarded, on_written=on_written)


def plan(
    plane: ControlPlane,
    caller: Caller,
    request: EvaluationRequest,
    *,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
) -> Plan:
    """A dry run. Raises what `submit` would raise."""
    made = _document(plane, caller, request, project)
    with _named_as_asked(made):
        return dry_run.plan(plane, caller, made, project=project, forwarded=forwarded)


def _document(plane: ControlPlane, caller: Caller, request: EvaluationRequest, project: str | None) -> JobDocument:
    target = project or caller.home_project
    caller.require_project(target)
    with plane.db.read() as session:
        base, model = models.resolve(session, caller, target, request.model)
        trained = session.get_one(Job, model.job_id).document if model.job_id is not None else None
    if trained is not None:
        refuse_unfit(trained, str(model.job_id), request.benchmarks)
    return document(Subject(base=base, model=model, trained=trained), request.benchmarks, request.options)


@contextmanager
def _named_as_asked(made: JobDocument) -> Iterator[None]:
    """Make errors name the field of the request, not that of the document derived from it."""
    try:
        yield
    except TrainyardError as error:
        error.field = _asked(error.field, made) if error.field else error.field
        raise


def _asked(field: str, made: JobDocument) -> str:
    found = _SOURCE.fullmatch(field)
    if found is None or made.inference is None:
        return as_submitted(field)
    users = (i for i, each in enumerate(made.inference.benchmarks) if each.dataset == int(found[1]))
    return f"benchmarks.{next(users, 0)}.dataset{found[2]}"
