"""People of an identity provider and their sign-ins, on both databases."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import select, update

from app.database.engine import Database
from app.domain.errors import Conflict, CredentialsInvalid, Forbidden
from app.models import ApiKey, AuditEntry, WebSession, WebUser
from app.models.base import utc_now
from app.security.permissions import Caller, Role
from app.security.role_rules import Grant
from app.security.secrets import SecretBox
from app.services.access import api_keys, audit_log, web_sessions, web_users
from app.services.access.api_keys import WantedKey
from app.services.access.identity_provider import ProviderIdentity
from app.services.access.web_sessions import Lifetime
from app.services.requests.idempotency import not_stored
from app.services.requests.pagination import PageRequest
from tests.builders.factories import make_project

pytestmark = pytest.mark.both_databases

ANA = ProviderIdentity(issuer="https://id.example.com", subject="1", name="Ana", email="ana@example.com", claims={})
ADMIN = Grant(role=Role.ADMIN, project="default")
LIFETIME = Lifetime(most=timedelta(hours=12), idle=timedelta(hours=2))


@pytest.fixture
def box() -> SecretBox:
    return SecretBox(Fernet.generate_key().decode())


@pytest.fixture
def db(database: Database) -> Database:
    with database.write() as session:
        make_project(session)
        make_project(session, "other")
    return database


def revoked(db: Database) -> list[bool]:
    with db.read() as session:
        rows = session.scalars(select(ApiKey).where(ApiKey.user_id.is_not(None)).order_by(ApiKey.id))
        return [row.revoked_at is not None for row in rows]


def test_a_person_keeps_the_key_while_the_role_is_the_same(db: Database, box: SecretBox):
    first = web_users.enter(db, box, ANA, ADMIN)

    assert web_users.enter(db, box, replace(ANA, name="Ana Lee"), ADMIN) == first
    with db.read() as session:
        assert session.get_one(ApiKey, first.key_id).name == "Ana Lee"


def test_the_same_subject_of_another_provider_is_another_person(db: Database, box: SecretBox):
    first = web_users.enter(db, box, ANA, ADMIN)

    assert web_users.enter(db, box, replace(ANA, issuer="https://other.example.com"), ADMIN).key_id != first.key_id


@pytest.mark.parametrize("grant", [Grant(role=Role.USER, project="default"), Grant(role=Role.ADMIN, project="other")])
def test_another_role_or_project_ends_every_key_of_the_person(db: Database, box: SecretBox, grant: Grant):
    who = web_users.enter(db, box, ANA, ADMIN)
    wanted = WantedKey(role=Role.USER, project="default")
    made = api_keys.create_for(db, box, who, wanted, on_written=not_stored)
    api_keys.rotate(db, box, who, made.row.id, grace_seconds=60)

    after = web_users.enter(db, box, ANA, grant)

    assert (after.role, after.project) == (grant.role, grant.project)
    assert sorted(revoked(db)) == [False, True, True, True]


def test_a_person_without_a_role_is_refused_and_loses_the_keys(db: Database, box: SecretBox):
    web_users.enter(db, box, ANA, ADMIN)

    with pytest.raises(Forbidden, match="no rule gives you a role"):
        web_users.enter(db, box, ANA, None)

    assert revoked(db) == [True]
    assert web_users.enter(db, box, ANA, ADMIN).role is Role.ADMIN


def test_keys_of_others_are_left_alone(db: Database, box: SecretBox):
    web_users.enter(db, box, replace(ANA, subject="2"), ADMIN)
    mine = api_keys.create(db, box, role=Role.USER, project="default")

    with pytest.raises(Forbidden):
        web_users.enter(db, box, ANA, None)

    assert revoked(db) == [False]
    with db.read() as session:
        assert session.get_one(ApiKey, mine.row.id).revoked_at is None


def test_a_key_that_an_administrator_revoked_is_replaced_at_the_next_sign_in(db: Database, box: SecretBox):
    first = web_users.enter(db, box, ANA, ADMIN)
    api_keys.revoke(db, first, first.key_id)

    assert web_users.enter(db, box, ANA, ADMIN).key_id != first.key_id


def test_revoking_the_key_of_the_sign_ins_ends_what_the_person_made(db: Database, box: SecretBox):
    who = web_users.enter(db, box, ANA, ADMIN)
    robot = api_keys.create_for(db, box, who, WantedKey(role=Role.ADMIN), on_written=not_stored)
    child = replace(who, key_id=robot.row.id)
    api_keys.create_for(db, box, child, WantedKey(role=Role.USER), on_written=not_stored)
    api_keys.rotate(db, box, who, robot.row.id, grace_seconds=60)
    other = web_users.enter(db, box, replace(ANA, subject="2"), ADMIN)

    api_keys.revoke(db, api_keys.ADMINISTRATOR, who.key_id)

    with db.read() as session:
        good = session.scalars(select(ApiKey.id).where(ApiKey.revoked_at.is_(None))).all()
        lines = session.scalars(select(AuditEntry).where(AuditEntry.action == "key.revoke")).all()
    assert good == [other.key_id]
    assert len(lines) == 4
    assert {line.actor for line in lines} == {api_keys.CLI_ACTOR}
    with pytest.raises(CredentialsInvalid):
        api_keys.create_for(db, box, child, WantedKey(role=Role.USER), on_written=not_stored)


def test_revoking_a_key_that_a_person_made_ends_that_alone(db: Database, box: SecretBox):
    who = web_users.enter(db, box, ANA, ADMIN)
    made = api_keys.create_for(db, box, who, WantedKey(role=Role.USER), on_written=not_stored)

    api_keys.revoke(db, who, made.row.id)

    assert revoked(db) == [False, True]


def test_the_key_of_the_sign_ins_is_not_rotated(db: Database, box: SecretBox):
    who = web_users.enter(db, box, ANA, ADMIN)

    with pytest.raises(Conflict, match="has no holder"):
        api_keys.rotate(db, box, who, who.key_id, grace_seconds=60)


def test_two_first_sign_ins_at_once_are_of_one_person(db: Database, box: SecretBox):
    found: list[Caller] = []
    threads = [threading.Thread(target=lambda: found.append(web_users.enter(db, box, ANA, ADMIN))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({who.key_id for who in found}) == 1
    assert len(found) == 4
    with db.read() as session:
        assert len(session.scalars(select(WebUser)).all()) == 1


def test_sign_ins_are_listed_for_those_who_see_their_keys(db: Database, box: SecretBox):
    ana = web_users.enter(db, box, ANA, ADMIN)
    neighbor = web_users.enter(db, box, replace(ANA, subject="2"), Grant(role=Role.ADMIN, project="other"))
    chief = web_users.enter(db, box, replace(ANA, subject="3"), Grant(role=Role.SUPER_ADMIN, project=None))
    for who in (ana, ana, neighbor, chief):
        web_sessions.sign_in(db, who, address="127.0.0.1", user_agent="test")
    with db.write() as session:
        old = session.scalars(select(WebSession.id).where(WebSession.key_id == ana.key_id)).first()
        session.execute(update(WebSession).where(WebSession.id == old).values(last_seen_at=utc_now() - LIFETIME.idle))

    def seen(who: Caller) -> list[str]:
        with db.read() as session:
            page = web_sessions.page(session, who, LIFETIME, PageRequest(size=1, order="-created_at"))
            rest = PageRequest(size=9, order="-created_at", after=page.next_after)
            more = web_sessions.page(session, who, LIFETIME, rest).items if page.next_after else []
            return sorted(row.key_id for row in (*page.items, *more))

    assert seen(ana) == [ana.key_id]
    assert seen(neighbor) == [neighbor.key_id]
    assert seen(chief) == sorted([ana.key_id, neighbor.key_id, chief.key_id])


def test_the_audit_log_is_read_in_batches_to_its_end(db: Database):
    with db.write() as session:
        session.add_all(AuditEntry(id=f"aud_{number:04}", actor="a", action="queue.create") for number in range(2_500))

    read = [[row.id for row in batch] for batch in audit_log.batches(db, api_keys.ADMINISTRATOR, {"actor": "a"})]

    assert [len(batch) for batch in read] == [1000, 1000, 500]
    assert sorted(each for batch in read for each in batch) == [f"aud_{number:04}" for number in range(2_500)]
