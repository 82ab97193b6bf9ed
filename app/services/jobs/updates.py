"""Updates of a job: its labels at any time, priority and preemptible until it has ended."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete
from sqlalchemy.orm import Session

from app.domain.errors import IllegalTransition, InvalidRequest
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import TERMINAL, JobState
from app.domain.names import MOST_LABELS
from app.models import Job, JobLabel
from app.security.permissions import Caller
from app.services.jobs import details, lookup
from app.services.lifecycle import audit, labels, transitions
from app.services.queues import project_quotas
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored

LABELS = "labels"
CHANGEABLE = ("priority", LABELS, "preemptible")


def change(
    plane: ControlPlane, caller: Caller, job_id: str, changes: Mapping[str, Any], *, on_written: OnWritten = not_stored
) -> Job:
    """Set the fields that ``changes`` names; labels are replaced as a whole. Equal values are no change.

    Raises InvalidRequest when it names nothing, IllegalTransition for more than labels of a job that has ended,
    Conflict when it would keep devices that its project has borrowed.
    """
    if not changes:
        raise InvalidRequest(f"the body names nothing to change; name at least one of {', '.join(CHANGEABLE)}")
    with plane.db.read() as session:
        found = lookup.find(session, caller, job_id)
        expected = details.outlook(session, found, priority=changes.get("priority", found.priority))
    with plane.db.write() as session:
        lookup.find(session, caller, job_id)
        job = _changeable(session, job_id, changes)
        changed = _apply(session, job, changes)
        if changed:
            _record_change(session, job, caller, changed)
        on_written(session, details.changed(session, job, expected))
    if "priority" in changed and job.state is JobState.PENDING:
        # Its admission message has the old priority: a second message is harmless and may be served earlier.
        plane.dispatcher.ring_admit(job.id, job.queue, job.priority)
    return job


def label(plane: ControlPlane, caller: Caller, job_id: str, key: str, value: str | None) -> Job:
    """Set one label and keep the others; None removes it."""
    with plane.db.write() as session:
        lookup.find(session, caller, job_id)
        job = transitions.load_for_change(session, job_id)
        wanted = {name: text for name, text in job.labels.items() if name != key}
        if value is not None:
            wanted[key] = value
        if len(wanted) > MOST_LABELS:
            raise InvalidRequest(f"job {job_id} has {MOST_LABELS} labels, which are the most; remove one first")
        if changed := _apply(session, job, {"labels": wanted}):
            _record_change(session, job, caller, changed)
    return job


def _changeable(session: Session, job_id: str, changes: Mapping[str, Any]) -> Job:
    """People label what has ended, such as a baseline; everything else says how a job is to run."""
    job = transitions.load_for_change(session, job_id)
    if job.state in TERMINAL and (refused := [name for name in CHANGEABLE if name in changes and name != LABELS]):
        raise IllegalTransition(
            f"job {job_id} is {job.status}: {' and '.join(refused)} cannot be changed any more, only {LABELS} can"
        )
    return job


def _apply(session: Session, job: Job, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Apply the changes; returns the fields that differ as {from, to}."""
    before: dict[str, Any] = {"priority": job.priority, "labels": dict(job.labels)}
    if "preemptible" in changes:
        before["preemptible"] = job.document.scheduling_config.preemptible
    changed = {
        name: {"from": before[name], "to": changes[name]}
        for name in CHANGEABLE
        if name in changes and changes[name] != before[name]
    }
    if "preemptible" in changed:
        if not changes["preemptible"]:
            project_quotas.refuse_to_keep_borrowed(session, job)
        scheduling = job.document.scheduling_config.changed(preemptible=changes["preemptible"])
        # Other sections stay as they are, with fields that this version does not know.
        job.spec = {**job.spec, "scheduling_config": scheduling.to_json()}
    if "priority" in changed:
        job.priority = changes["priority"]
    if "labels" in changed:
        job.labels = dict(changes["labels"])
        session.execute(delete(JobLabel).where(JobLabel.job_id == job.id))
        session.add_all(labels.rows(job))
    return changed


def _record_change(session: Session, job: Job, caller: Caller, changed: dict[str, Any]) -> None:
    job.mark_changed()
    session.flush()
    transitions.record_event(
        session, job.id, EventType.CHANGED, actor=caller.actor, message=", ".join(changed), data=changed
    )
    audit.record(session, actor=caller.actor, action="job.patch", project=job.project, target=job.id, data=changed)
    session.flush()
    session.refresh(job)
