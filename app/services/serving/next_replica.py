"""The next replica of a service: a job like any other, submitted in the service's name."""

import logging
from collections.abc import Sequence

from sqlalchemy.orm import Session

from app.domain.errors import LimitExceeded, TrainyardError, Unauthenticated
from app.domain.serving.events import ServiceEventType
from app.domain.serving.replica_documents import replica_document
from app.domain.serving.states import ServiceState
from app.models import Job, Replica, Service
from app.models.base import utc_now
from app.models.insertion import fill
from app.security.permissions import Caller, Role
from app.services.jobs import submission, uploaded_data
from app.services.jobs.submission import Checked
from app.services.requests.control_plane import ControlPlane
from app.services.serving import documents, failures, fleet, history, lookup
from app.services.serving.fleet import FleetMember
from app.services.serving.history import ACTOR

KEY_ENDED = (
    "the API key in whose name its replicas run is revoked or expired; resume the service with another key (POST "
    "/v1/services/{name}/resume)"
)

logger = logging.getLogger(__name__)


def launch(plane: ControlPlane, service_id: str) -> bool:
    """Start one more replica if the service lacks one and may have it now; whether to ask again at once."""
    with plane.db.read() as session:
        service = session.get(Service, service_id)
        if service is None or not has_room(session, service):
            return False
        number = service.next_number
        preemptible = _is_above_min(session, service)
    try:
        checked = _checked(plane, service, number, preemptible=preemptible)
        job = _store(plane, service, number, checked, preemptible=preemptible)
    except LimitExceeded as error:
        return _wait(plane, service_id, error.message)
    except Unauthenticated:
        return _wait(plane, service_id, KEY_ENDED.format(name=service.name))
    except TrainyardError as error:  # a rule that its document breaks, or its model has gone
        return _refused(plane, service_id, number, error)
    if job is None:
        return False
    plane.dispatcher.ring_admit(job.id, job.queue, job.priority)
    return True


def has_room(session: Session, service: Service) -> bool:
    """Whether the service lacks a replica of its revision, and no failure holds it back."""
    if service.status != ServiceState.ACTIVE:
        return False
    if service.not_before_at is not None and service.not_before_at > utc_now():
        return False
    of_revision = fleet.live(fleet.members(session, service), revision=service.revision)
    # One that lasts is started beside one that gives way to other jobs, and takes its place when it answers.
    return len(of_revision) < service.wanted or not _has_lasting(service, of_revision)


def _is_above_min(session: Session, service: Service) -> bool:
    """Whether as many replicas as always run are there already, so that this one gives way to other jobs."""
    return _has_lasting(service, fleet.live(fleet.members(session, service), revision=service.revision))


def _has_lasting(service: Service, of_revision: Sequence[FleetMember]) -> bool:
    wanted = fleet.lasting(service)
    return wanted == 0 or sum(not each.is_preemptible for each in of_revision) >= wanted


def caller_of(service: Service) -> Caller:
    """In whose name its replicas are submitted; submission refuses them once that key has been revoked."""
    return Caller(key_id=service.submits_as, role=Role.USER, project=service.project)


def _checked(plane: ControlPlane, service: Service, number: int, *, preemptible: bool) -> Checked:
    document = replica_document(
        service.base, service_id=service.id, name=service.name, number=number, preemptible=preemptible
    )
    opened, tokens, hidden = documents.with_its_secrets(plane, service, document)
    return submission.check(
        plane, caller_of(service), opened, project=service.project, forwarded=tokens, secret_variables=hidden
    )


def _store(plane: ControlPlane, seen: Service, number: int, checked: Checked, *, preemptible: bool) -> Job | None:
    """None when the service has changed so that this is not its next replica any more."""
    with plane.db.write() as session:
        service = lookup.locked(session, seen.id)
        is_same = (service.next_number, service.revision) == (number, seen.revision)
        if not is_same or not has_room(session, service) or _is_above_min(session, service) != preemptible:
            return None
        caller = caller_of(service)
        kept = uploaded_data.files_of(checked.spec.document)
        entered = submission.enter(session, caller, checked, kept_files=kept)
        job = submission.store(session, plane, caller, checked, entered)
        session.flush()
        replica = Replica(job_id=job.id, service_id=service.id, number=number, revision=service.revision)
        fill(replica)
        session.add(replica)
        service.next_number += 1
        service.pending_reason = ""
        service.mark_changed()
        history.record(
            session,
            service,
            ServiceEventType.REPLICA_STARTED,
            actor=ACTOR,
            message=f"replica {number} is {job.id}",
            data={"number": number, "job_id": job.id, "revision": service.revision},
        )
        return job


def _wait(plane: ControlPlane, service_id: str, reason: str) -> bool:
    """Note why there is no further replica yet; it is tried again."""
    with plane.db.write() as session:
        service = lookup.locked(session, service_id)
        if service.pending_reason != reason:
            service.pending_reason = reason
            service.mark_changed()
            logger.info("service %s starts no further replica yet: %s", service_id, reason)
    return False


def _refused(plane: ControlPlane, service_id: str, number: int, error: TrainyardError) -> bool:
    """Its document was refused; it is tried again as after a failed replica."""
    message = f"{error.field}: {error.message}" if error.field else error.message
    with plane.db.write() as session:
        service = lookup.locked(session, service_id)
        if service.next_number == number and service.status == ServiceState.ACTIVE:
            failures.note(session, service, f"its next replica was refused: {message}", at=utc_now())
    return False
