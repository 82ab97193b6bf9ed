"""People of an identity provider: their sign-ins, and the keys that are theirs."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import Forbidden, NotFound
from app.domain.ids import new_id
from app.models import ApiKey, WebUser
from app.models.base import utc_now
from app.security.api_key_format import is_live, make_key
from app.security.permissions import Caller
from app.security.role_rules import Grant
from app.security.secrets import SecretBox
from app.services.access import person_keys, projects
from app.services.access.identity_provider import ProviderIdentity
from app.services.lifecycle import audit
from app.services.requests.pagination import Orders, Page, PageRequest, page_of

ORDERS: Orders = {
    "created_at": (WebUser.created_at, WebUser.id),
    "last_seen_at": (WebUser.last_seen_at, WebUser.id),
    "name": (WebUser.name, WebUser.id),
}
MOST_GROUPS, LONGEST_GROUP = 1000, 255


def enter(
    db: Database, box: SecretBox, identity: ProviderIdentity, grant: Grant | None, *, groups: Sequence[str] = ()
) -> Caller:
    """The caller that a person is. A person whose grant has changed loses every key that was made before.

    ``groups``: values of the claim that decides roles; they are kept, for ports of jobs that name groups.

    Raises Forbidden for a person without a grant, or whose project does not exist.
    """
    try:
        return _enter(db, box, identity, grant, groups)
    except IntegrityError:
        # Signed in twice at once for the first time: by now the row is there.
        return _enter(db, box, identity, grant, groups)


@dataclass(frozen=True, kw_only=True)
class UserSeen:
    """A person with the key of the sign-ins; ``is_active``: it is good, so that open sign-ins count."""

    user: WebUser
    key: ApiKey | None
    is_active: bool


def page(session: Session, caller: Caller, request: PageRequest) -> Page[UserSeen]:
    """The people that the caller sees: all of them, or those whose role is in its project."""
    query = select(WebUser)
    if caller.project is not None:
        query = query.join(ApiKey, ApiKey.id == WebUser.key_id).where(ApiKey.project == caller.project)
    found = page_of(session, query, ORDERS, request)
    wanted = [user.key_id for user in found.items]
    keys = {key.id: key for key in session.scalars(select(ApiKey).where(ApiKey.id.in_(wanted)))} if wanted else {}
    now = utc_now()
    items = []
    for user in found.items:
        key = keys.get(user.key_id)
        items.append(UserSeen(user=user, key=key, is_active=key is not None and is_live(key, now=now)))
    return Page(
        items=items,
        next_after=found.next_after,
        total_count=found.total_count,
        total_count_capped=found.total_count_capped,
    )


def _enter(
    db: Database, box: SecretBox, identity: ProviderIdentity, grant: Grant | None, groups: Sequence[str]
) -> Caller:
    with db.write() as session:
        user = _user_of(session, identity)
        user.groups = [each for each in dict.fromkeys(groups) if each.isprintable() and len(each) <= LONGEST_GROUP][
            :MOST_GROUPS
        ]
        key = session.get(ApiKey, user.key_id) if user.key_id else None
        if grant is not None and key is not None and is_live(key, now=utc_now()) and _same(key, grant):
            key.name = user.name
            return Caller(key_id=key.id, role=grant.role, project=grant.project)
        if key is None or grant is None or not _same(key, grant):
            why = "the role of its user has changed"
            person_keys.revoke_all(session, user.id, actor=user.id, why=why)
        problem = _problem_of(session, identity, grant)
        caller = _with_new_key(session, box, user, grant) if grant is not None and not problem else None
    if caller is None:
        raise Forbidden(problem)
    return caller


def _user_of(session: Session, identity: ProviderIdentity) -> WebUser:
    """The row of the person, made at the first sign-in, with the name that the provider has now."""
    who = (WebUser.issuer == identity.issuer, WebUser.subject == identity.subject)
    user = session.scalar(select(WebUser).where(*who).with_for_update())
    if user is None:
        user = WebUser(id=new_id("user"), issuer=identity.issuer, subject=identity.subject)
        session.add(user)
        session.flush()
        data = {"issuer": user.issuer, "subject": user.subject}
        audit.record(session, actor=user.id, action="user.create", project=None, target=user.id, data=data)
    user.name, user.email, user.last_seen_at = identity.name[:128], identity.email[:255], utc_now()
    user.email_verified = identity.claims.get("email_verified") is True
    return user


def _same(key: ApiKey, grant: Grant) -> bool:
    return (key.role, key.project) == (str(grant.role), grant.project)


def _problem_of(session: Session, identity: ProviderIdentity, grant: Grant | None) -> str:
    if identity.is_unverified:
        return (
            "the identity provider does not say that your e-mail address is verified (email_verified), and it decides "
            "your role here; have it verified there"
        )
    if grant is None:
        return "no rule gives you a role here; ask an administrator to add you to a group of TRAINYARD_OIDC_ROLES"
    try:
        if grant.project is not None:
            projects.require(session, grant.project)
    except NotFound:
        return f"there is no project {grant.project}; ask an administrator to create it"
    return ""


def _with_new_key(session: Session, box: SecretBox, user: WebUser, grant: Grant) -> Caller:
    new = make_key(
        key_id=new_id("key"), project=grant.project, role=grant.role, name=user.name, expires_at=None, box=box
    )
    new.row.user_id = user.id
    session.add(new.row)
    session.flush()
    user.key_id = new.row.id
    data = {"role": str(grant.role), "name": user.name, "user": user.id}
    audit.record(session, actor=user.id, action="key.create", project=grant.project, target=new.row.id, data=data)
    return Caller(key_id=new.row.id, role=grant.role, project=grant.project)
