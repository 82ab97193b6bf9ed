"""API keys, roles and sealed secrets."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.fernet import Fernet

from app.domain.errors import Forbidden, NotFound, NotYours
from app.security.api_key_format import NewKey, is_live, is_of, make_key, read_key
from app.security.permissions import PERMISSIONS, Caller, Permission, Role
from app.security.secrets import SecretBox, SecretKeyMissing

BOX = SecretBox(Fernet.generate_key().decode())
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def new_key(expires_at: datetime | None = None) -> NewKey:
    return make_key(key_id="key-1", project="p", role=Role.USER, name="", expires_at=expires_at, box=BOX)


def test_a_key_is_accepted_and_only_its_hash_is_stored() -> None:
    new = new_key()
    presented = read_key(new.key)

    assert presented is not None
    assert is_of(presented, new.row)
    assert presented.secret not in (new.row.secret_hash, new.row.prefix, new.row.sealed_secret_key)
    assert BOX.open(new.row.sealed_secret_key) == {"secret_key": new.secret_key}
    assert len(new.row.prefix) <= 32


def test_keys_differ_in_every_part() -> None:
    made = [new_key() for _ in range(50)]

    for part in (
        [m.key for m in made],
        [m.row.prefix for m in made],
        [m.row.access_key for m in made],
        [m.secret_key for m in made],
    ):
        assert len(set(part)) == 50


def test_every_single_wrong_character_is_noticed_without_the_database() -> None:
    key = new_key().key

    assert all(read_key(key[:i] + ("b" if key[i] == "a" else "a") + key[i + 1 :]) is None for i in range(len(key)))


@pytest.mark.parametrize("text", ["", "ty_", "ty_a_b", "x" * 10_000, "ty_ä", "ty_" + "a" * 12 + "_" + "b" * 38, "\n"])
def test_other_texts_are_no_keys(text: str) -> None:
    assert read_key(text) is None


def test_wrong_expired_revoked_and_unknown_keys_are_refused() -> None:
    new, other = new_key(NOW + timedelta(seconds=1)), read_key(new_key().key)
    presented = read_key(new.key)
    assert presented is not None
    assert other is not None

    assert is_of(presented, new.row)
    assert not is_of(other, new.row)
    assert not is_of(presented, None)
    assert is_live(new.row, now=NOW)
    assert not is_live(new.row, now=NOW + timedelta(seconds=1))
    new.row.revoked_at = NOW
    assert not is_live(new.row, now=NOW)


def test_roles_have_what_the_contract_says() -> None:
    assert PERMISSIONS[Role.VIEWER] == {Permission.VIEW, Permission.LIST_MODELS}
    assert PERMISSIONS[Role.INFERENCE] == {Permission.INFER, Permission.LIST_MODELS}
    of_users = {Permission.MANAGE, Permission.EVALUATE, Permission.INFER}
    assert PERMISSIONS[Role.USER] - PERMISSIONS[Role.VIEWER] == of_users
    assert PERMISSIONS[Role.ADMIN] - PERMISSIONS[Role.USER] == {Permission.MANAGE_KEYS, Permission.VIEW_AUDIT}
    assert PERMISSIONS[Role.SUPER_ADMIN] == set(Permission)


def test_a_refused_caller_learns_which_roles_may() -> None:
    caller = Caller(key_id="k", role=Role.VIEWER, project="p")

    caller.require(Permission.VIEW)
    with pytest.raises(Forbidden, match=r"manage.*viewer.*user, admin, super_admin"):
        caller.require(Permission.MANAGE)


def test_other_projects_do_not_exist_for_a_caller() -> None:
    caller, everywhere = (Caller(key_id="k", role=Role.ADMIN, project=project) for project in ("p", None))

    assert (caller.home_project, everywhere.home_project) == ("p", "default")
    caller.require_project("p")
    everywhere.require_project("q")
    with pytest.raises(NotFound, match=r"^no project q$"):
        caller.require_project("q")


def test_foreign_objects_appear_missing_but_are_known_to_be_foreign() -> None:
    caller, everywhere = (Caller(key_id="k", role=Role.ADMIN, project=project) for project in ("p", None))

    caller.require_sight("p", "no job 1")
    everywhere.require_sight(None, "no job 1")
    for project in ("q", None):
        with pytest.raises(NotYours, match=r"^no job 1$"):
            caller.require_sight(project, "no job 1")
    assert (NotYours.code, NotYours.__mro__[1]) == (NotFound.code, NotFound)


def test_sealed_secrets_open_with_the_same_key_only() -> None:
    sealed = BOX.seal({"a.b": "ü"})

    assert BOX.open(sealed) == {"a.b": "ü"}
    assert BOX.open("") == {}
    assert sealed != BOX.seal({"a.b": "ü"})
    with pytest.raises(SecretKeyMissing, match="another key"):
        SecretBox(Fernet.generate_key().decode()).open(sealed)
    with pytest.raises(SecretKeyMissing, match="TRAINYARD_SECURITY_SECRET_KEY"):
        SecretBox("")
