"""Submitting a batch or features job: its model is resolved, the rest is the submission of a job."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

from app.domain.errors import TrainyardError
from app.domain.spec.inference import EMBED, FEATURES, Inference
from app.domain.spec.model import JobDocument
from app.domain.spec.rules.inference import without_effect
from app.security.permissions import Caller
from app.services.inference import models, service_models
from app.services.inference.models import WantedModel
from app.services.jobs import dry_run, submission
from app.services.jobs.dry_run import DryRunPlan
from app.services.jobs.submission import Origin
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored

# Prefix of a field of the stored document → that of the request.
_SUBMITTED = (
    ("training_config.base_model.model_id", "model.model_uri"),
    ("training_config.base_model", "model"),
    ("training_config.environment", "environment"),
    ("output_config.output_path", "output.path"),
    ("output_config.max_output_size_mb", "output.max_size_mb"),
    ("output_config", "output"),
    ("inference.", ""),
)
# The same in the text of an error.
_WORDS = {
    "model_id": "model_uri",
    "output_path": "output.path",
    "max_output_size_mb": "output.max_size_mb",
    "training_config.base_model": "model",
    "training_config.environment": "environment",
}
_WORD = re.compile(rf"(?<![\w./'-])(?:{'|'.join(map(re.escape, _WORDS))})(?![\w/-])")


@dataclass(frozen=True, kw_only=True)
class NewInference:
    """A submitted job; ``document`` lacks the sections of the model."""

    document: JobDocument
    model: WantedModel


def submit(
    plane: ControlPlane,
    caller: Caller,
    new: NewInference,
    *,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
    origin: Origin | None = None,
    on_written: OnWritten = not_stored,
) -> None:
    """Store a new PENDING job; ``origin`` is of an API dialect that names fields as the request does.

    Raises as `models.resolve` and the submission of a job.
    """
    document = _completed(plane, caller, new, project)
    origin = _with_warnings(origin or Origin(foreign={}), document)
    with fields_as_submitted():
        submission.submit(
            plane, caller, document, project=project, forwarded=forwarded, origin=origin, on_written=on_written
        )


def plan(
    plane: ControlPlane,
    caller: Caller,
    new: NewInference,
    *,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
) -> tuple[DryRunPlan, Sequence[str]]:
    """(what a submission would lead to, its warnings). Raises what `submit` would raise."""
    document = _completed(plane, caller, new, project)
    with fields_as_submitted():
        found = dry_run.plan(plane, caller, document, project=project, forwarded=forwarded)
    return found, [*_warnings(document), *map(as_submitted, found.warnings)]


def with_model(
    plane: ControlPlane,
    caller: Caller,
    document: JobDocument,
    wanted: WantedModel,
    *,
    project: str,
    tasks: Sequence[str],
) -> JobDocument:
    """The document with its model's sections. ``tasks``: types of task that the model must be able to do."""
    with plane.db.read() as session:
        base, reference = models.resolve(session, caller, project, wanted)
        for task in tasks:
            models.refuse_unfit(session, reference, task)
            service_models.refuse_other_task(session, project, reference, task)
    inference = document.inference or Inference()
    return document.changed(
        training_config=document.training_config.changed(base_model=base), inference=inference.changed(model=reference)
    )


def _completed(plane: ControlPlane, caller: Caller, new: NewInference, project: str | None) -> JobDocument:
    inference = new.document.inference or Inference()
    task = EMBED if new.document.kind == FEATURES or inference.task.makes_vectors else inference.task.type
    target = project or caller.home_project
    return with_model(plane, caller, new.document, new.model, project=target, tasks=[task])


def _warnings(document: JobDocument) -> list[str]:
    return without_effect(document.inference.task) if document.inference is not None else []


def _with_warnings(origin: Origin, document: JobDocument) -> Origin:
    retold = origin.retold
    return replace(
        origin,
        warnings=[*origin.warnings, *map(retold, _warnings(document))],
        retold=lambda line: retold(as_submitted(line)),
    )


def as_submitted(field: str) -> str:
    """A field of the stored document, or a text that begins with one, in the words of the request."""
    for stored, submitted in _SUBMITTED:
        if field.startswith(stored):
            return submitted + field.removeprefix(stored)
    return field


@contextmanager
def fields_as_submitted(retold: Callable[[str], str] = as_submitted) -> Iterator[None]:
    """Make errors name the field of the request, not that of the document made from it; ``retold`` finds it."""
    try:
        yield
    except TrainyardError as error:
        error.field = retold(error.field) if error.field is not None else None
        error.message = _WORD.sub(lambda found: _WORDS[found[0]], error.message)
        raise
