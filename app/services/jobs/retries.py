"""Retry of an ended job: a new job, its child, repeats the work from a checkpoint or from the start."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from app.domain.errors import BadSpec, Conflict, IllegalTransition, InvalidRequest
from app.domain.lifecycle.states import TERMINAL
from app.domain.spec.frameworks.custom import processes_per_node
from app.domain.spec.secrets import put_secrets_back
from app.domain.spec.user_tokens import PREFIX
from app.models import Checkpoint, Job
from app.security.permissions import Caller
from app.security.secrets import SecretBox, SecretKeyMissing
from app.services.jobs import details, lookup, start_points, submission
from app.services.lifecycle import audit, transitions
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored

_RESOURCES = "resource_config."
_PARTS = ("gpu_fraction", "gpu_memory_request_mb", "mig_profile")
# Applies the schema again to a document of an older version; passed in, because schemas are a layer above services.
Complete = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Options of a retry. ``resources`` override those of the old job by field; an empty checkpoint is its newest."""

    checkpoint_id: str = ""
    from_start: bool = False
    resources: Mapping[str, Any] = field(default_factory=dict)
    forwarded: Mapping[str, str] = field(default_factory=dict)  # new tokens of the user; the others are carried over


@dataclass(frozen=True, kw_only=True)
class _Order:
    """The child's document as a user would submit it, with plain secrets."""

    project: str
    document: dict[str, Any]
    forwarded: Mapping[str, str]


def retry(
    plane: ControlPlane,
    caller: Caller,
    job_id: str,
    wanted: Retry,
    *,
    complete: Complete,
    on_written: OnWritten = not_stored,
) -> Job:
    """Submit the job's work again as its child, with all checks of a submission.

    Raises IllegalTransition until it has ended, InvalidRequest for the first rule that the request breaks.
    """
    with plane.db.read() as session:
        order = _order(session, plane.box, _ended(lookup.find(session, caller, job_id)), wanted)
    with _named_as_asked(wanted):
        checked = submission.check(
            plane, caller, complete(order.document), project=order.project, forwarded=order.forwarded
        )
        with plane.db.write() as session:
            # Locked, so that a concurrent deletion can't leave an orphaned child.
            parent = _ended(transitions.load_for_change(session, job_id))
            entered = submission.enter(session, plane, caller, checked)
            stored = submission.store(session, plane, caller, checked, entered, parent=parent)
            child = session.get_one(Job, stored.id)
            audit.record(
                session,
                actor=caller.actor,
                action="job.retry",
                project=parent.project,
                target=parent.id,
                data={
                    "child_job_id": child.id,
                    "checkpoint_id": child.resume_checkpoint_id,
                    "resources": dict(wanted.resources),
                },
            )
            on_written(session, details.changed(session, child))
    plane.dispatcher.ring_admit(child.id, child.queue, child.priority)
    return child


def _ended(job: Job) -> Job:
    if job.state not in TERMINAL:
        way_out = "resume continues it" if job.status == "PAUSED" else "cancel it first, or wait for its end"
        raise IllegalTransition(
            f"job {job.id} is {job.status} and cannot be retried; only a job that has ended can: {way_out}"
        )
    return job


def _order(session: Session, box: SecretBox, job: Job, wanted: Retry) -> _Order:
    try:
        secrets: dict[str, str] = box.open(job.sealed_secrets)
    except SecretKeyMissing as error:
        raise Conflict(
            f"the secrets of job {job.id} were encrypted with a key that this server does not have, and can't be "
            "carried over; submit the job again with them"
        ) from error
    document = copy.deepcopy(dict(job.spec))
    # Labels and priority may have changed since the submission.
    document["labels"] = dict(job.labels)
    document["scheduling_config"] = {**document.get("scheduling_config", {}), "priority": job.priority}
    put_secrets_back(document, {path: value for path, value in secrets.items() if not path.startswith(PREFIX)})
    start = _start(session, job, wanted)
    document["training_config"]["resume_from_checkpoint"] = start.id if start is not None else None
    _modify(document, wanted.resources)
    carried_over = {path.removeprefix(PREFIX): token for path, token in secrets.items() if path.startswith(PREFIX)}
    return _Order(project=job.project, document=document, forwarded=carried_over | dict(wanted.forwarded))


def _start(session: Session, job: Job, wanted: Retry) -> Checkpoint | None:
    """The checkpoint that the child starts from: the named one, the job's newest (or best, where its document resumes
    from that), or the one that the job itself started from.
    """
    if wanted.checkpoint_id and wanted.from_start:
        raise BadSpec("name a checkpoint or set from_start, not both", field="from_start")
    if wanted.from_start:
        return None
    if not wanted.checkpoint_id:
        start = start_points.next_start(session, job)
        if start is None and job.resume_checkpoint_id is not None:
            raise BadSpec(
                f"the checkpoint {job.resume_checkpoint_id} that {job.id} started from was deleted, and it saved none; "
                "name another, or set from_start: true to train from the base model",
                field="checkpoint_id",
            )
        return start
    named = session.get(Checkpoint, wanted.checkpoint_id)
    if named is None or named.deleted_at is not None or named.project != job.project:
        raise BadSpec(f"the project {job.project} has no checkpoint {wanted.checkpoint_id}", field="checkpoint_id")
    return named


def _modify(document: dict[str, Any], resources: Mapping[str, Any]) -> None:
    if not resources:
        return
    changed = {**document["resource_config"], **resources}
    # Drop empty shares and slices: a submission can't contain them, and the child's document must be submittable.
    document["resource_config"] = {name: value for name, value in changed.items() if value or name not in _PARTS}
    distributed = document["training_config"]["framework"].get("distributed") or {}
    if resources.keys() & {"gpu_count", "node_count"} and "world_size" in distributed:
        processes = processes_per_node(document, devices=changed["gpu_count"])
        distributed["world_size"] = processes * (changed.get("node_count") or 1)


@contextmanager
def _named_as_asked(wanted: Retry) -> Iterator[None]:
    """Make errors name the field of the request, not that of the document derived from it."""
    try:
        yield
    except InvalidRequest as error:
        named = error.field or ""
        if named.startswith(_RESOURCES) and named.removeprefix(_RESOURCES) in wanted.resources:
            error.field = f"new_{named}"
        elif named == start_points.RESUME_FIELD and wanted.checkpoint_id:
            error.field = "checkpoint_id"
        raise
