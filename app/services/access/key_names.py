"""Names of keys, for answers that say who has made something."""

from collections.abc import Collection

from sqlalchemy import case, or_, select
from sqlalchemy.orm import Session

from app.models import ApiKey
from app.security.permissions import Caller

OF_SUPER_ADMINS = "administrator"


def key_names(session: Session, key_ids: Collection[str]) -> dict[str, str]:
    """By id, of the keys that exist; a name may be empty. A super admin's key belongs to no project, whose callers must
    not learn how it is named.
    """
    if not key_ids:
        return {}
    name = case((ApiKey.project.is_(None), OF_SUPER_ADMINS), else_=ApiKey.name)
    return {
        row.id: row.name for row in session.execute(select(ApiKey.id, name.label("name")).where(ApiKey.id.in_(key_ids)))
    }


def ids_named(session: Session, caller: Caller, name: str) -> list[str]:
    """The ids of the keys that `key_names` shows the caller with this name, and the name itself, which may be an id."""
    shown = ApiKey.project.is_(None) if name == OF_SUPER_ADMINS else (ApiKey.name == name) & ApiKey.project.is_not(None)
    query = select(ApiKey.id).where(shown)
    if caller.project is not None:
        query = query.where(or_(ApiKey.project == caller.project, ApiKey.project.is_(None)))
    return [*session.scalars(query), name]


def actor_names(session: Session, caller: Caller, key_ids: Collection[str]) -> dict[str, str]:
    """As key_names, with the names of super admins' keys for a caller who sees every project."""
    if caller.project is not None:
        return key_names(session, key_ids)
    query = select(ApiKey.id, ApiKey.name).where(ApiKey.id.in_(key_ids))
    return {row.id: row.name for row in session.execute(query)} if key_ids else {}
