"""Names of keys, for answers that say who has made something."""

from collections.abc import Collection

from sqlalchemy import case, select
from sqlalchemy.orm import Session

from app.models import ApiKey

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
