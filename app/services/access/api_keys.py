"""API keys: authentication, and creating, listing, rotating and revoking keys."""

import contextlib
import hmac
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, bindparam, exists, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import Conflict, CredentialsInvalid, Forbidden, InvalidRequest, NotFound
from app.domain.ids import new_id
from app.models import ApiKey
from app.models.base import utc_now
from app.security.api_key_format import NewKey, PresentedKey, StoredKey, is_live, is_of, make_key, read_key
from app.security.key_cache import KeyCache
from app.security.permissions import PROJECT_ROLES, Caller, Permission, Role
from app.security.secrets import SecretBox
from app.services.access import person_keys, projects
from app.services.lifecycle import audit
from app.services.requests.idempotency import OnWritten, not_stored
from app.services.requests.pagination import Orders, Page, PageRequest, page_of

_TOUCH_AFTER = timedelta(minutes=1)
_OF_PREFIX = select(*(getattr(ApiKey, column.name) for column in fields(StoredKey))).where(
    ApiKey.prefix == bindparam("wanted")
)
CLI_ACTOR = "cli"  # the administrator's command line
# Access to the database's password implies full access.
ADMINISTRATOR = Caller(key_id=CLI_ACTOR, role=Role.SUPER_ADMIN, project=None)
ORDERS: Orders = {"created_at": (ApiKey.created_at, ApiKey.id), "name": (ApiKey.name, ApiKey.id)}


@dataclass(frozen=True, kw_only=True)
class WantedKey:
    """A requested key; the project defaults to the caller's own."""

    role: Role
    project: str | None = None
    name: str = ""
    expires_days: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


def authenticate(db: Database, text: str, known: KeyCache | None = None) -> Caller:
    """The caller of a bearer key. With the cache ``known`` the result may be stale: recheck by ``is_good``.

    Without a cache, a revoked key is rejected everywhere at once. Raises the same CredentialsInvalid for a malformed,
    unknown, revoked or expired key.
    """
    presented = read_key(text)
    if presented is None:
        raise _invalid()
    now = utc_now()
    remembered = known.get(presented.prefix) if known is not None else None
    row = remembered or _stored(db, presented)
    if not is_of(presented, row) or row is None:
        raise _invalid()
    if not is_live(row, now=now):
        raise _invalid(row)
    if row.last_used_at is None or row.last_used_at < now - _TOUCH_AFTER:
        _touch(db, presented, now)
        row = replace(row, last_used_at=now)
    if known is not None and row is not remembered:
        known.remember(presented.prefix, row)
    return caller_of(row)


def of_pair(db: Database, box: SecretBox, access_key: str, secret_key: str) -> Caller:
    """The caller of an access key and secret key. Raises CredentialsInvalid without details."""
    presented = secret_key.encode()
    return of_signer(db, box, access_key, lambda expected: hmac.compare_digest(expected.encode(), presented))


def of_signer(db: Database, box: SecretBox, access_key: str, verify: Callable[[str], bool]) -> Caller:
    """The caller whose secret key passes ``verify`` (signed requests). Raises CredentialsInvalid without details."""
    with db.read() as session:
        row = session.scalar(select(ApiKey).where(ApiKey.access_key == access_key))
    expected = box.open(row.sealed_secret_key)["secret_key"] if row is not None else ""
    # Verified for unknown keys as well, so that timing does not reveal which keys exist.
    matches = verify(expected)
    if row is None or not matches or not is_live(row, now=utc_now()):
        raise _invalid()
    return caller_of(row)


def of_id(db: Database, key_id: str) -> Caller:
    """The caller with this key id, for tokens issued in its name. Raises CredentialsInvalid."""
    with db.read() as session:
        row = session.get(ApiKey, key_id)
    if row is None or not is_live(row, now=utc_now()):
        raise _invalid()
    return caller_of(row)


def caller_of(row: ApiKey | StoredKey) -> Caller:
    """Who has this key, which the caller knows to be good."""
    return Caller(
        key_id=row.id,
        role=Role(row.role),
        project=row.project,
        requests_per_minute=row.requests_per_minute,
        tokens_per_minute=row.tokens_per_minute,
    )


def ids_of(session: Session, name: str) -> list[str]:
    """The ids of the keys with this name, and the name itself, which may be an id."""
    return [*session.scalars(select(ApiKey.id).where(ApiKey.name == name)), name]


def is_good(key_id: ColumnElement[str], now: ColumnElement[datetime]) -> ColumnElement[bool]:
    """An SQL condition for an existing statement: the key is neither revoked nor expired."""
    lives = ApiKey.expires_at.is_(None) | (ApiKey.expires_at > now)
    return exists().where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None), lives)


def create(
    db: Database, box: SecretBox, *, role: Role, project: str | None, name: str = "", expires_days: int | None = None
) -> NewKey:
    """Create a key from the command line; only the result contains its secret."""
    wanted = WantedKey(role=role, project=project, name=name, expires_days=expires_days)
    return _create(db, box, CLI_ACTOR, wanted, not_stored)


def create_for(db: Database, box: SecretBox, caller: Caller, wanted: WantedKey, *, on_written: OnWritten) -> NewKey:
    """Create a key on behalf of a caller, limited to the caller's projects and roles."""
    if wanted.role is Role.SUPER_ADMIN:
        if not caller.may(Permission.CLUSTER_ADMIN):
            raise Forbidden("only a super admin may create super admin keys")
        if caller.project is not None:
            raise InvalidRequest(
                f"a super_admin key is not limited to the project {caller.project}; omit X-Project", field="role"
            )
    else:
        wanted = replace(wanted, project=wanted.project or caller.home_project)
        caller.require_project(wanted.project or "")
    return _create(db, box, caller.actor, wanted, on_written)


def page(session: Session, caller: Caller, request: PageRequest) -> Page[ApiKey]:
    query = select(ApiKey)
    if caller.project is not None:
        query = query.where(ApiKey.project == caller.project)
    return page_of(session, query, ORDERS, request)


def find(session: Session, caller: Caller, key_id: str) -> ApiKey:
    """The key. Raises the same NotFound for an unknown and an invisible one."""
    return _find(session, caller, key_id, lock=False)


def names(session: Session, key_ids: Collection[str]) -> dict[str, str]:
    """Key id → name, for keys that have one; used to display submitters."""
    query = select(ApiKey.id, ApiKey.name).where(ApiKey.id.in_(key_ids), ApiKey.name != "")
    return {row.id: row.name for row in session.execute(query)} if key_ids else {}


def revoke(db: Database, caller: Caller, key_id: str) -> None:
    """Revoke a key at once; idempotent. With the one of a person's sign-ins, every key that they made ends.

    Raises NotFound for an unknown or foreign key.
    """
    with db.write() as session:
        user_id = person_keys.hold_owner(session, key_id)
        row = _find(session, caller, key_id, lock=True)
        if row.revoked_at is None:
            row.revoked_at = utc_now()
            _record(session, caller.actor, "revoke", row, {})
        if user_id is not None and person_keys.stands_for_sign_ins(session, row):
            why = "the key of its user's sign-ins was revoked"
            person_keys.revoke_all(session, user_id, actor=caller.actor, why=why)


def change(db: Database, caller: Caller, key_id: str, limits: Mapping[str, int | None]) -> ApiKey:
    """Change ``requests_per_minute`` and ``tokens_per_minute`` of a key; what is left out stays. None: as the settings.

    Gateways follow within a second. Also of a key that has ended: its running jobs count by its limits. Raises NotFound
    for an unknown or foreign key.
    """
    with db.write() as session:
        row = _find(session, caller, key_id, lock=True)
        changed = {name: value for name, value in limits.items() if getattr(row, name) != value}
        for name, value in changed.items():
            setattr(row, name, value)
        if changed:
            _record(session, caller.actor, "patch", row, {"changes": changed})
        return row


def rotate(
    db: Database, box: SecretBox, caller: Caller, key_id: str, *, grace_seconds: int, on_written: OnWritten = not_stored
) -> NewKey:
    """Create a key with the same role, name, limits and lifetime; the old one stays valid for ``grace_seconds``.

    Raises NotFound for an unknown or foreign key, Conflict for one that is invalid, already rotated or of sign-ins.
    """
    now = utc_now()
    with db.write() as session:
        person_keys.hold_owner(session, key_id)
        project = _find(session, caller, key_id, lock=False).project
        if project is not None:
            projects.hold(session, project)
        old = _find(session, caller, key_id, lock=True)
        _refuse_if_replaced(old, now)
        if person_keys.stands_for_sign_ins(session, old):
            raise Conflict(f"the key {old.id} stands for a person's sign-ins and has no holder; create another key")
        lifetime = old.expires_at - old.created_at if old.expires_at is not None else None
        new = make_key(
            key_id=new_id("key"),
            project=old.project,
            role=Role(old.role),
            name=old.name,
            box=box,
            expires_at=now + lifetime if lifetime is not None else None,
        )
        new.row.user_id = old.user_id
        new.row.requests_per_minute, new.row.tokens_per_minute = old.requests_per_minute, old.tokens_per_minute
        session.add(new.row)
        old.replaced_by = new.row.id
        ends_at = now + timedelta(seconds=grace_seconds)
        if grace_seconds == 0:
            old.revoked_at = now
        elif old.expires_at is None or ends_at < old.expires_at:
            old.expires_at = ends_at
        session.flush()
        _record(session, caller.actor, "rotate", old, {"replaced_by": new.row.id, "grace_seconds": grace_seconds})
        on_written(session, new)
    return new


def _create(db: Database, box: SecretBox, actor: str, wanted: WantedKey, on_written: OnWritten) -> NewKey:
    """Create the key; a super admin key has no project, others require one."""
    role, project = wanted.role, wanted.project
    if (role is Role.SUPER_ADMIN) != (project is None):
        roles = ", ".join(PROJECT_ROLES)
        raise InvalidRequest(f"a super_admin key has no project, the roles {roles} require one", field="project")
    expires_at = utc_now() + timedelta(days=wanted.expires_days) if wanted.expires_days is not None else None
    new = make_key(key_id=new_id("key"), project=project, role=role, name=wanted.name, expires_at=expires_at, box=box)
    new.row.requests_per_minute, new.row.tokens_per_minute = wanted.requests_per_minute, wanted.tokens_per_minute
    limits = {"requests_per_minute": wanted.requests_per_minute, "tokens_per_minute": wanted.tokens_per_minute}
    limits_set = {name: most for name, most in limits.items() if most is not None}
    with db.write() as session:
        # What a person makes is theirs, and ends with them, even if that is now.
        new.row.user_id = person_keys.hold_owner(session, actor)
        if new.row.user_id is not None and not is_live(session.get_one(ApiKey, actor), now=utc_now()):
            raise _invalid()
        if project is not None:
            projects.require(session, project)
        session.add(new.row)
        session.flush()
        _record(session, actor, "create", new.row, {"role": str(role), "name": wanted.name, **limits_set})
        on_written(session, new)
    return new


def _stored(db: Database, presented: PresentedKey) -> StoredKey | None:
    with db.query() as connection:
        found = connection.execute(_OF_PREFIX, {"wanted": presented.prefix}).one_or_none()
    return StoredKey(*found) if found is not None else None


def _find(session: Session, caller: Caller, key_id: str, *, lock: bool) -> ApiKey:
    missing = f"no key {key_id[:64]}"
    row = session.get(ApiKey, key_id, with_for_update=True if lock else None, populate_existing=lock)
    if row is None:
        raise NotFound(missing)
    caller.require_sight(row.project, missing)
    return row


def _refuse_if_replaced(row: ApiKey, now: datetime) -> None:
    if row.replaced_by is not None:
        raise Conflict(f"the key {row.id} was already rotated; rotate its replacement {row.replaced_by}")
    if not is_live(row, now=now):
        raise Conflict(f"the key {row.id} is revoked or expired and cannot be rotated; create a new one")


def _record(session: Session, actor: str, verb: str, row: ApiKey, data: dict[str, Any]) -> None:
    audit.record(session, actor=actor, action=f"key.{verb}", project=row.project, target=row.id, data=data)


def _touch(db: Database, presented: PresentedKey, now: datetime) -> None:
    # Informational only: a busy database must not fail the request.
    with contextlib.suppress(SQLAlchemyError), db.write() as session:
        row = session.scalar(select(ApiKey).where(ApiKey.prefix == presented.prefix))
        if row is not None:
            row.last_used_at = now


def ended(caller: Caller) -> CredentialsInvalid:
    """The error for a caller whose key is no longer valid."""
    error = _invalid()
    error.key_id, error.project = caller.key_id, caller.project
    return error


def _invalid(row: StoredKey | None = None) -> CredentialsInvalid:
    error = CredentialsInvalid("the API key is unknown, revoked or expired; ask an administrator for a new one")
    if row is not None:
        error.key_id, error.project = row.id, row.project
    return error
