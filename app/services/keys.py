"""API keys: who calls, and making, listing and revoking them."""

import contextlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app.domain.errors import CredentialsInvalid, Forbidden, InvalidRequest, NotFound
from app.domain.ids import new_id
from app.extensions import Database
from app.models import ApiKey
from app.models.base import utc_now
from app.security.keys import NewKey, PresentedKey, is_valid, make_key, read_key
from app.security.permissions import PROJECT_ROLES, Caller, Permission, Role
from app.security.secrets import SecretBox
from app.services import projects
from app.services.idempotency import Remember, forget
from app.services.pages import Orders, Page, PageRequest, page_of

_TOUCH_AFTER = timedelta(minutes=1)
ORDERS: Orders = {
    "created_at": (ApiKey.created_at, ApiKey.id),
    "name": (ApiKey.name, ApiKey.id),
}


@dataclass(frozen=True, kw_only=True)
class WantedKey:
    """What a caller asked for; without a project it is the caller's own."""

    role: Role
    project: str | None = None
    name: str = ""
    expires_days: int | None = None


def authenticate(db: Database, text: str) -> Caller:
    """Whose bearer key it is. Nothing is cached, so a revoked key is refused everywhere at once.

    Raises CredentialsInvalid, saying no more than that, for a malformed, unknown, revoked or expired one.
    """
    presented = read_key(text)
    if presented is None:
        raise _invalid()
    now = utc_now()
    with db.read() as session:
        row = session.scalar(select(ApiKey).where(ApiKey.prefix == presented.prefix))
    if not is_valid(presented, row, now=now) or row is None:
        raise _invalid()
    if row.last_used_at is None or row.last_used_at < now - _TOUCH_AFTER:
        _touch(db, presented, now)
    return Caller(key_id=row.id, role=Role(row.role), project=row.project)


def create(
    db: Database,
    box: SecretBox,
    *,
    role: Role,
    project: str | None,
    name: str = "",
    expires_days: int | None = None,
    remember: Remember = forget,
) -> NewKey:
    """A new key; what it is worth can only be read from the result. A super admin's has no project, others need one."""
    if (role is Role.SUPER_ADMIN) != (project is None):
        roles = ", ".join(PROJECT_ROLES)
        raise InvalidRequest(f"a super_admin has no project, the roles {roles} need one", field="project")
    expires_at = utc_now() + timedelta(days=expires_days) if expires_days is not None else None
    new = make_key(key_id=new_id("key"), project=project, role=role, name=name, expires_at=expires_at, box=box)
    with db.write() as session:
        if project is not None:
            projects.require(session, project)
        session.add(new.row)
        session.flush()
        remember(session, new)
    return new


def create_for(db: Database, box: SecretBox, caller: Caller, wanted: WantedKey, *, remember: Remember) -> NewKey:
    """The same on behalf of a caller, who may only make keys of projects and roles within the own reach."""
    project = wanted.project
    if wanted.role is Role.SUPER_ADMIN:
        if not caller.may(Permission.CLUSTER_ADMIN):
            raise Forbidden("only a super admin makes keys of super admins")
    else:
        project = project or caller.home_project
        caller.require_project(project)
    return create(
        db, box, role=wanted.role, project=project, name=wanted.name, expires_days=wanted.expires_days,
        remember=remember,
    )  # fmt: skip


def page(session: Session, caller: Caller, request: PageRequest) -> Page[ApiKey]:
    query = select(ApiKey)
    if caller.project is not None:
        query = query.where(ApiKey.project == caller.project)
    return page_of(session, query, ORDERS, request)


def revoke(db: Database, caller: Caller | None, key_id: str) -> None:
    """Make a key useless from now on; again is fine. ``caller`` None is the administrator at the machine.

    Raises NotFound for an unknown or foreign key.
    """
    with db.write() as session:
        row = session.get(ApiKey, key_id, with_for_update=True)
        if row is None or (caller is not None and caller.project not in (None, row.project)):
            raise NotFound(f"no key {key_id[:64]}")
        if row.revoked_at is None:
            row.revoked_at = utc_now()


def _touch(db: Database, presented: PresentedKey, now: datetime) -> None:
    # It informs people; a database that is busy must not turn the caller away for it.
    with contextlib.suppress(SQLAlchemyError), db.write() as session:
        row = session.scalar(select(ApiKey).where(ApiKey.prefix == presented.prefix))
        if row is not None:
            row.last_used_at = now


def _invalid() -> CredentialsInvalid:
    return CredentialsInvalid("the API key is unknown, revoked or expired; ask an administrator for a new one")
