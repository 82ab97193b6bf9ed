"""Keys of people: the one that stands for their sign-ins, and those that they made, which end with it."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.models import ApiKey, WebUser
from app.models.base import utc_now
from app.services.lifecycle import audit


def of_key(session: Session, key: ApiKey) -> WebUser | None:
    """The person whose key it is; None for one that an administrator made."""
    return session.get(WebUser, key.user_id) if key.user_id else None


def hold_owner(session: Session, key_id: str) -> str | None:
    """The id of the person whose key it is, locked: while they make a key, none of theirs can be revoked.

    Required before locking a key or a project.
    """
    user_id = session.scalar(select(ApiKey.user_id).where(ApiKey.id == key_id))
    if user_id is not None:
        session.get(WebUser, user_id, with_for_update=True)
    return user_id


def is_of_sign_ins(session: Session, key_id: str) -> bool:
    """Whether a person who signed in by an identity provider is behind this key, and no holder of a key."""
    return session.scalar(select(WebUser.id).where(WebUser.key_id == key_id)) is not None


def stands_for_sign_ins(session: Session, key: ApiKey) -> bool:
    """Whether it is the key of a person's sign-ins, which has no holder."""
    user = of_key(session, key)
    return user is not None and user.key_id == key.id


def revoke_all(session: Session, user_id: str, *, actor: str, why: str) -> None:
    """Revoke what was made for or by the person."""
    for key in _good_keys(session, user_id):
        key.revoked_at = utc_now()
        audit.record(session, actor=actor, action="key.revoke", project=key.project, target=key.id, message=why)


def _good_keys(session: Session, user_id: str) -> Sequence[ApiKey]:
    good = select(ApiKey).where(ApiKey.user_id == user_id, ApiKey.revoked_at.is_(None)).order_by(ApiKey.id)
    return session.scalars(good.with_for_update()).all()
