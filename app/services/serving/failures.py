"""Replicas that fail: the next one starts later each time, and after several in a row the service says so."""

from datetime import datetime

from sqlalchemy.orm import Session

from app.domain.lifecycle.states import JobState
from app.domain.serving.events import ServiceEventType
from app.domain.serving.scaling import FAILURES_IN_A_ROW, pause_after
from app.models import Service
from app.models.base import utc_now
from app.services.serving import fleet, history
from app.services.serving.fleet import FleetMember
from app.services.serving.history import ACTOR

_LONGEST = 1000  # characters of an error in a reason


def notice_ends(session: Session, service: Service, members: list[FleetMember]) -> None:
    """Record the replicas that have ended since; those of this revision that have failed delay the next one."""
    for each in members:
        if each.is_live or each.replica.ended_seen:
            continue
        each.replica.ended_seen = True
        job, number = each.job, each.replica.number
        why = job.error_message or job.status_reason
        history.record(
            session,
            service,
            ServiceEventType.REPLICA_ENDED,
            actor=ACTOR,
            message=f"replica {number} is {job.status}" + (f": {why[:_LONGEST]}" if why else ""),
            data={"number": number, "job_id": job.id, "status": job.status},
        )
        if job.state is JobState.FAILED and each.replica.revision == service.revision and not each.is_draining:
            reason = f"replica {number} ({job.id}) failed: {why[:_LONGEST]}"
            note(session, service, reason, at=job.finished_at or utc_now())
        service.mark_changed()


def note(session: Session, service: Service, reason: str, *, at: datetime) -> None:
    """Count a failure at this time of the service, whose row is locked, and delay its next replica."""
    service.failures += 1
    service.failed_at = max(at, service.failed_at or at)
    pause = pause_after(service.failures)
    service.not_before_at = utc_now() + pause
    service.pending_reason = reason
    service.mark_changed()
    if service.failures == FAILURES_IN_A_ROW:
        history.record(
            session,
            service,
            ServiceEventType.FAILING,
            actor=ACTOR,
            message=f"{service.failures} replicas have failed one after the other, and the next one starts in "
            f"{pause.total_seconds():.0f} s (or as soon as the service is resumed): {reason}",
            data={"failures": service.failures},
        )


def recovered(service: Service, members: list[FleetMember]) -> bool:
    """Whether a replica of this revision has begun to answer since the last one failed or was refused."""
    if not service.failures:
        return False
    failed_at = service.failed_at
    since = [each.replica.answers_since for each in fleet.live(members, revision=service.revision) if each.answers]
    return any(failed_at is None or (at is not None and at > failed_at) for at in since)


def forget(service: Service) -> None:
    service.failures, service.not_before_at, service.pending_reason = 0, None, ""
    service.mark_changed()
