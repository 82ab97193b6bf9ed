"""Services as CyxWiz's jobs: submitted, found, listed and controlled for the caller."""

from collections.abc import Mapping
from typing import Any

from app.compat.cyxwiz import messages_pb2 as pb
from app.compat.cyxwiz import services
from app.compat.cyxwiz.services import STATES
from app.compat.cyxwiz.to_native import NAMING, alias_of
from app.domain.errors import Conflict, InvalidRequest, NotFound
from app.domain.serving.states import ServiceState
from app.host.clock import utc_now
from app.http.context import base_path, caller, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.pagination import next_page_token, page_request
from app.http.request_body import validated
from app.schemas.service_answers import ServiceSchema
from app.schemas.services import CreateServiceSchema
from app.services.jobs import lookup as job_lookup
from app.services.rows import Service, Session
from app.services.serving import commands, creation, listing, lookup
from app.services.serving.creation import CreatedService

_DOCUMENT, _SHOWN = CreateServiceSchema(), ServiceSchema()
_LIST_ORDERS = ("created_at", "name", "status")


def submit(config: pb.JobConfig) -> Reply:
    """Raises BadSpec, and Conflict for a name that a job or a service of the project has."""
    recorder = ReplyRecorder(_created)
    document = services.to_native(config)
    with NAMING.errors():
        new = validated(_DOCUMENT, document)
        _refuse_name_of_job(config.job_id)
        creation.create(plane(), caller(), new, on_written=recorder)
    return recorder.reply


def find(session: Session, job_id: str) -> str | None:
    """The id of the service that a path means, by its id or its name, also of one that has ended; else None."""
    if lookup.SERVICE_ID.fullmatch(job_id):
        return lookup.service(session, caller(), job_id).id
    found = lookup.newest(session, caller().home_project, job_id)
    return found.id if found is not None else None


def shown(session: Session, service: Service) -> Reply:
    return Reply(_status(listing.details(session, service)))


def page(session: Session, query: Mapping[str, Any]) -> Reply:
    """The services in place of the jobs; those that have ended only where their status is asked for."""
    request = page_request(query)
    if request.order.removeprefix("-") not in _LIST_ORDERS:
        raise InvalidRequest(f"services are ordered by {', '.join(_LIST_ORDERS)}", field="order_by")
    states = [state for state, word in STATES.items() if word in query["status"]]
    if query["status"] and not states:
        return Reply(pb.ListJobsResponse())
    found = listing.page(session, caller(), {"status": states}, request)
    jobs = [_status(each) for each in found.items]
    token = next_page_token(found, query)
    return Reply(pb.ListJobsResponse(jobs=jobs, next_page_token=token, total_count=found.total_count))


def progress(session: Session, service_id: str) -> tuple[pb.ProgressUpdate | None, bool]:
    """(its progress, None for what was deleted; whether it has ended)."""
    service = lookup.current(session, service_id)
    if service is None:
        return None, True
    details = listing.details(session, service)
    return services.progress_of(details, utc_now()), service.status == ServiceState.ENDED


def report(session: Session, service_id: str) -> Reply:
    """Raises NotFound until the service has ended."""
    details = listing.one(session, caller(), service_id)
    service = details.service
    if service.status != ServiceState.ENDED:
        raise NotFound(f"the service {service.name} is {service.status}; its report exists when it has ended")
    return Reply(services.report_of(details, listing.used_time(session, service)))


def cancel(service_id: str, reason: str) -> Reply:
    recorder = ReplyRecorder(shown)
    commands.delete(plane(), caller(), service_id, reason=reason, on_written=recorder)
    return recorder.reply


def pause(service_id: str) -> Reply:
    recorder = ReplyRecorder(shown)
    commands.pause(plane(), caller(), service_id, on_written=recorder)
    return recorder.reply


def resume(service_id: str) -> Reply:
    recorder = ReplyRecorder(shown)
    commands.resume(plane(), caller(), service_id, on_written=recorder)
    return recorder.reply


def refuse_deletion(service_id: str) -> None:
    """Raises Conflict: a service is cancelled, and its record deleted by retention."""
    raise Conflict(f"{service_id} is a service: cancel it; retention deletes the record of one that has ended")


def _created(_session: Session, created: CreatedService) -> Reply:
    service = created.service
    answer = pb.SubmitJobResponse(job_id=service.name, status=STATES[ServiceState(service.status)])
    return Reply(answer, 201, location=f"{base_path()}/jobs/{service.name}", warnings=created.warnings)


def _status(details: listing.ServiceDetails) -> pb.JobStatus:
    return services.status_of(details, _SHOWN.dump(details))


def _refuse_name_of_job(name: str) -> None:
    alias = alias_of(caller().home_project, name)
    with plane().db.read() as session:
        try:
            job_lookup.find_by_alias(session, caller(), alias, missing=name)
        except NotFound:
            return
    raise Conflict(f"the project has a job {name} already; take another name", field="name")
