"""Ports of running jobs: who may open them, the tokens that say so, and where the job listens."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from app.domain.errors import (
    Conflict,
    CredentialsInvalid,
    Forbidden,
    IllegalTransition,
    InvalidRequest,
    NotFound,
    NotSupportedYet,
)
from app.domain.interactive import OFF, RECORDED
from app.domain.lifecycle.states import RUNNING, TERMINAL
from app.domain.port_addresses import TOKEN
from app.domain.spec.interactive import HTTP, NOTEBOOK_PORT, Port
from app.models import ApiKey, Job, Project, WebUser
from app.models.base import utc_now
from app.security import signed_tokens
from app.security.permissions import Caller, Permission
from app.services.access import api_keys, person_keys
from app.services.access.key_names import key_names
from app.services.attempts import interactive_endpoints
from app.services.attempts.interactive_endpoints import SandboxEndpoint
from app.services.interactive.addresses import port_address
from app.services.interactive.session_ranks import rank_of
from app.services.jobs import lookup
from app.services.lifecycle import audit
from app.services.requests.control_plane import ControlPlane

TOKEN_PURPOSE = "interactive-port"  # noqa: S105 – what tokens are for
NO_PORTS = "this installation serves no ports: the operator sets TRAINYARD_GATEWAY_PORTS_URL and runs a gateway"
_SEPARATOR = "/"
_PARTS = 3


@dataclass(frozen=True, kw_only=True)
class PortLink:
    """An address with a token that opens the port until ``expires_at``, as often as it is used."""

    url: str
    token: str
    expires_at: datetime


@dataclass(frozen=True, kw_only=True)
class PortEntry:
    """A port of a job as a caller sees it; ``url`` None: browsers can't reach it."""

    port: Port
    url: str | None
    refusal: str  # why the caller may not open it; empty: they may

    @property
    def may_open(self) -> bool:
        return not self.refusal


@dataclass(frozen=True, kw_only=True)
class OpenPort:
    """A port that may be opened now. ``endpoint`` None: it can't be reached yet, for ``why``."""

    job_id: str
    project: str
    port: Port
    key_id: str
    actor: str  # of the key, for the audit trail
    user: str  # the name of the key or person, for the job; may be empty
    attempt: int
    endpoint: SandboxEndpoint | None
    why: str = ""


def ports_of(job: Job) -> tuple[Port, ...]:
    """All ports of a job, that of its notebook last."""
    return job.document.interactive_config.all_ports


def listed(session: Session, caller: Caller, job_id: str, ports_url: str) -> Sequence[PortEntry]:
    job = lookup.find(session, caller, job_id)
    found = []
    for port in ports_of(job):
        url = port_address(ports_url, job.id, port.name) if port.protocol == HTTP else None
        found.append(PortEntry(port=port, url=url, refusal=_refusal(session, caller, job, port)))
    return found


def address_of(
    plane: ControlPlane, secret_key: str, caller: Caller, job_id: str, name: str, *, ports_url: str, seconds: int
) -> PortLink:
    """An address with a new token of the caller's, which ends with their key.

    Raises NotFound for a job or port that the caller doesn't see, Forbidden where others are named, InvalidRequest for
    a port that no browser opens, IllegalTransition for a job that has ended.
    """
    with plane.db.write() as session:
        job = lookup.find(session, caller, job_id)
        port = _port(job, name)
        _require(session, caller, job, port)
        if port.protocol != HTTP:
            raise InvalidRequest(
                f"the port {name} has protocol {port.protocol} and no address for browsers; forward it: trainyard "
                f"port-forward {job.id} {port.forwarding}"
            )
        address = port_address(ports_url, job.id, port.name)
        if address is None:
            raise NotSupportedYet(NO_PORTS)
        if job.state in TERMINAL:
            raise IllegalTransition(f"job {job.id} is {job.status}; its ports ended with it")
        expires_at = utc_now().replace(microsecond=0) + timedelta(seconds=seconds)
        token = new_token(secret_key, caller, job.id, port.name, seconds=seconds)
        audit.record(
            session,
            actor=caller.actor,
            action="port.open",
            project=job.project,
            target=job.id,
            data={"port": port.name, "seconds": seconds},
        )
    return PortLink(url=f"{address}?{TOKEN}={token}", token=token, expires_at=expires_at)


def new_token(secret_key: str, caller: Caller, job_id: str, name: str, *, seconds: int) -> str:
    """A token of the caller's, for `by_token`, where whether they may open the port is asked."""
    subject = _SEPARATOR.join((job_id, name, caller.key_id))
    return signed_tokens.issue(secret_key, TOKEN_PURPOSE, subject, seconds=seconds)


def by_token(plane: ControlPlane, secret_key: str, token: str, job_id: str, name: str) -> OpenPort:
    """The port, for who holds this token, in a query or in a cookie.

    Raises CredentialsInvalid for a token that is forged, expired, of another port or of a key that has been revoked,
    and what `by_caller` raises.
    """
    parts = signed_tokens.subject_of(secret_key, TOKEN_PURPOSE, token).split(_SEPARATOR)
    if len(parts) != _PARTS or parts[:2] != [job_id, name]:
        raise CredentialsInvalid("the token is of another port; ask for one of this port (trainyard open)")
    return by_caller(plane, api_keys.of_id(plane.db, parts[2]), job_id, name)


def by_caller(plane: ControlPlane, caller: Caller, job_id: str, name: str) -> OpenPort:
    """The port, for a caller whose key was checked.

    Raises NotFound for a job or port that the caller doesn't see, Forbidden where others are named or the project has
    switched sessions off, Conflict for one that browsers don't open and for a job that has ended.
    """
    caller.require(Permission.VIEW)
    with plane.db.read() as session:
        job = lookup.find(session, caller, job_id)
        port = _port(job, name)
        _require(session, caller, job, port)
        if port.protocol != HTTP:
            raise Conflict(f"the port {name} has protocol {port.protocol}; browsers reach ports with protocol {HTTP}")
        if job.state in TERMINAL:
            raise Conflict(f"job {job.id} is {job.status}; its ports ended with it")
        rank = rank_of(job, role=port.role, index=port.index, rank=0)
        endpoint = interactive_endpoints.of(session, job.id, rank=rank) if job.state in RUNNING else None
        why = _why_not(job, endpoint)
        return OpenPort(
            job_id=job.id,
            project=job.project,
            port=port,
            key_id=caller.key_id,
            actor=caller.actor,
            user=key_names(session, [caller.key_id]).get(caller.key_id, ""),
            attempt=job.attempt,
            endpoint=endpoint if not why else None,
            why=why,
        )


def record_use(plane: ControlPlane, opened: OpenPort, address: str) -> None:
    """A line in the audit trail: this key, from this address of a client, has reached the port."""
    with plane.db.write() as session, audit.with_origin(audit.RequestOrigin(address=address)):
        audit.record(
            session,
            actor=opened.actor,
            action="port.use",
            project=opened.project,
            target=opened.job_id,
            data={"port": opened.port.name, "attempt": opened.attempt},
        )


def _why_not(job: Job, endpoint: SandboxEndpoint | None) -> str:
    if job.state not in RUNNING:
        return f"job {job.id} is {job.status} and does not run; its ports are there once it does"
    if endpoint is None:
        return f"job {job.id} is {job.status}, and its sandbox is not open yet; try again in a moment"
    return "" if endpoint.port else endpoint.message


def _port(job: Job, name: str) -> Port:
    for port in ports_of(job):
        if port.name == name:
            return port
    named = ", ".join(port.name for port in ports_of(job))
    have = f"its ports are {named}" if named else "it has none; name them in interactive_config.ports"
    raise NotFound(f"job {job.id} has no port {name[:64]!r}; {have}")


def _refusal(session: Session, caller: Caller, job: Job, port: Port) -> str:
    """Why the caller may not open it; empty: they may."""
    try:
        _require(session, caller, job, port)
    except Forbidden as error:
        return error.message
    return ""


def _require(session: Session, caller: Caller, job: Job, port: Port) -> None:
    """Raises Forbidden."""
    switch = session.get_one(Project, job.project).sessions
    if switch == OFF:
        raise Forbidden(f"sessions and ports are switched off in the project {job.project}; ask an administrator")
    if port.name == NOTEBOOK_PORT:
        caller.require(Permission.MANAGE)
        if switch == RECORDED:
            raise Forbidden(
                f"what people run in the project {job.project} is recorded, which cells and terminals of a notebook "
                "can't be; use `trainyard shell`, or have an administrator set its sessions to allowed"
            )
    if not _may_open(session, caller, job, port):
        raise Forbidden(
            f"the port {port.name} of job {job.id} is for the people and groups that its document names "
            "(authorized_users, authorized_groups), for who submitted it and for administrators"
        )


def _may_open(session: Session, caller: Caller, job: Job, port: Port) -> bool:
    """Those who see the job, or those whom the document names.

    A name counts only where its holder could not choose it: that of a key which an administrator made, and of a person
    the id, the provider's subject, and an email that the provider has verified.
    """
    if not port.authorized_users and not port.authorized_groups:
        return True
    if caller.key_id == job.created_by or caller.may(Permission.MANAGE_KEYS):
        return True
    key = session.get(ApiKey, caller.key_id)
    if key is None:
        return False
    person = person_keys.of_key(session, key)
    if person is None:
        return not {key.id, key.name}.isdisjoint(port.authorized_users)
    names = _names_of(person)
    return any(each in names or each.casefold() in names for each in port.authorized_users) or not set(
        person.groups
    ).isdisjoint(port.authorized_groups)


def _names_of(person: WebUser) -> set[str]:
    verified = {person.email.casefold()} if person.email and person.email_verified else set()
    return {person.id, person.subject, *verified}
