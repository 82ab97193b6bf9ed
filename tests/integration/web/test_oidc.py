"""Signing in by an identity provider: a real one on loopback, and what is not believed of it."""

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from joserfc.jwk import RSAKey
from sqlalchemy import select
from werkzeug.test import TestResponse

from app.database.engine import Database
from app.models import ApiKey, AuditEntry, WebUser
from app.security.permissions import Role
from tests.integration.web.conftest import ANA, Browser, back_from
from tests.integration.web.conftest import sign_in_by_provider as sign_in
from tests.systems.apps import Api
from tests.systems.engines import engine_on
from tests.systems.identity_provider import CLIENT_ID, CLIENT_SECRET, Person, Provider


@pytest.fixture
def api(person_api: Api) -> Api:
    return person_api


def failure(answer: TestResponse, status: int) -> str:
    html = answer.get_data(as_text=True)
    assert answer.status_code == status, html
    assert "trainyard-session" not in str(answer.headers.getlist("Set-Cookie"))
    found = re.search(r'role="alert"><p>(.*?)</p>', html)
    assert found is not None
    return found[1].replace("&#39;", "'")


def test_a_person_signs_in_with_the_role_of_their_group(api: Api):
    browser = Browser(api)
    assert "Sign in by the institute" in browser.get("/ui/login").text

    answer = sign_in(browser, "/ui/jobs")

    assert 'content="0; url=/ui/jobs"' in answer.get_data(as_text=True)
    assert "SameSite=Strict" in str(answer.headers.getlist("Set-Cookie"))
    page = browser.get("/ui/admin/keys")
    assert "Ana <b>" in page.text
    assert "Ana <b>" not in page.html
    with api.db.read() as session:
        user = session.scalars(select(WebUser)).one()
        key = session.get_one(ApiKey, user.key_id)
        made = session.scalars(select(AuditEntry.action).where(AuditEntry.actor == user.id)).all()
    assert (user.subject, user.email, key.role, key.project) == ("sub-ana", "ana@example.com", "admin", "default")
    assert sorted(made) == ["key.create", "user.create"]
    assert "Ana <b> (ana@example.com), who signs in by http://127.0.0.1" in browser.get(f"/ui/admin/keys/{key.id}").text


def test_the_second_sign_in_is_of_the_same_person_and_key(api: Api, provider: Provider):
    first, second = Browser(api), Browser(api)
    sign_in(first)
    provider.person = Person("sub-ana", {**ANA.claims, "name": "Ana Lee"})

    sign_in(second)

    with api.db.read() as session:
        assert [user.name for user in session.scalars(select(WebUser))] == ["Ana Lee"]
        assert len(session.scalars(select(ApiKey).where(ApiKey.user_id.is_not(None))).all()) == 1
    assert first.get("/ui/sessions").text.count("this one") == 1


def test_groups_and_verified_emails_are_those_of_the_last_sign_in(api: Api, provider: Provider):
    def stored() -> tuple[list[str], bool]:
        with api.db.read() as session:
            user = session.scalars(select(WebUser)).one()
            return user.groups, user.email_verified

    odd = ["x" * 256, "a\0b", *map(str, range(2000))]
    for claims, groups, verified in (
        ({}, ["other", "cn=vision,ou=groups"], False),
        ({"email_verified": True, "groups": "readers"}, ["readers"], True),
        ({"email_verified": "true", "groups": ["chiefs", *odd]}, ["chiefs", *odd[2:1001]], False),
    ):
        provider.person = Person("sub-ana", {**ANA.claims, **claims})
        sign_in(Browser(api))

        assert stored() == (groups, verified)


def test_keys_that_a_person_makes_are_theirs_and_end_with_their_role(api: Api, provider: Provider):
    browser, later = Browser(api), Browser(api)
    sign_in(browser)
    shown = browser.post("/ui/admin/keys", {"role": "user", "name": "robot"}).get_data(as_text=True)
    key = re.search(r"ty_\w{51,}", shown)
    assert key is not None
    assert Browser(api).sign_in(key[0]).status_code == 303
    provider.person = Person("sub-ana", {**ANA.claims, "groups": "readers"})

    sign_in(later)

    assert browser.client.get("/ui/jobs").status_code == 303
    assert Browser(api).sign_in(key[0]).status_code == 401
    later.get("/ui/jobs")
    later.get("/ui/admin/keys", 403)


def test_revoking_the_key_of_a_person_ends_the_keys_that_they_made(api: Api):
    browser, chief = Browser(api), Browser(api)
    sign_in(browser)
    shown = browser.post("/ui/admin/keys", {"role": "user", "name": "robot"}).get_data(as_text=True)
    key = re.search(r"ty_\w{51,}", shown)
    assert key is not None
    assert api.call("GET", "/v1/jobs", key=key[0]).status_code == 200
    chief.sign_in(api.key)
    with api.db.read() as session:
        key_id = session.scalars(select(WebUser.key_id)).one()
    page = chief.get(f"/ui/admin/keys/{key_id}")
    assert "every key that Ana <b> made stops with it" in page.text
    assert "Rotate" not in page.text

    chief.act(f"/ui/admin/keys/{key_id}/revoke")

    assert browser.client.get("/ui/jobs").status_code == 303
    assert api.call("GET", "/v1/jobs", key=key[0]).status_code == 401


def test_signing_in_again_ends_the_session_before(api: Api):
    browser = Browser(api)
    sign_in(browser)
    cookie = browser.client.get_cookie("trainyard-session")
    assert cookie is not None

    sign_in(browser)

    old = Browser(api)
    old.client.set_cookie("trainyard-session", cookie.value)
    assert old.client.get("/ui/jobs").status_code == 303
    browser.get("/ui/jobs")


def test_a_person_without_a_group_is_refused_and_loses_what_they_had(api: Api, provider: Provider):
    browser = Browser(api)
    sign_in(browser)
    provider.person = Person("sub-ana", {"groups": []})

    assert "no rule gives you a role here" in failure(sign_in(Browser(api)), 403)

    assert browser.client.get("/ui/jobs").status_code == 303


def test_a_group_of_a_project_that_does_not_exist_is_refused(api: Api, provider: Provider):
    provider.person = Person("sub-bo", {"groups": ["lost"]})

    assert "no project nowhere" in failure(sign_in(Browser(api)), 403)


def test_the_groups_may_be_in_the_user_information(api: Api, provider: Provider):
    provider.in_userinfo, provider.person = True, Person("sub-cy", {"groups": ["chiefs"]})
    browser = Browser(api)

    sign_in(browser)

    browser.get("/ui/admin/sign-ins")
    with api.db.read() as session:
        user = session.scalars(select(WebUser)).one()
        assert session.get_one(ApiKey, user.key_id).role == Role.SUPER_ADMIN


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nonce": "another"}, "of another sign-in"),
        ({"aud": ["someone"]}, "Audience"),
        ({"aud": [CLIENT_ID, "someone"]}, "issued to another client"),
        ({"aud": [CLIENT_ID], "azp": "someone"}, "issued to another client"),
        ({"iss": "https://evil.example"}, "issuer"),
        ({"exp": 1}, "expired"),
    ],
    ids=["nonce", "audience", "several audiences", "authorized party", "issuer", "expiry"],
)
def test_a_token_that_is_not_for_this_sign_in_is_refused(
    api: Api, provider: Provider, changes: dict[str, object], said: str
):
    provider.changes = changes

    assert said.lower() in failure(sign_in(Browser(api)), 401).lower()


def test_a_token_signed_by_another_key_is_refused(api: Api, provider: Provider):
    provider.signs_with = RSAKey.generate_key(2048)

    assert "not accepted" in failure(sign_in(Browser(api)), 401)


def test_an_answer_to_the_sign_in_of_another_browser_is_refused(api: Api):
    attacker, victim = Browser(api), Browser(api)
    back = back_from(attacker.client.get("/ui/login/oidc").headers["Location"])

    assert "began in another browser" in failure(victim.client.get(back), 401)
    victim.client.get("/ui/login/oidc")
    assert "began in another browser" in failure(victim.client.get(back), 401)


def test_a_code_counts_once(api: Api):
    browser = Browser(api)
    start = browser.client.get("/ui/login/oidc")
    cookie = browser.client.get_cookie("trainyard-sign-in", path="/ui/login")
    assert cookie is not None
    back = back_from(start.headers["Location"])
    assert browser.client.get(back).status_code == 200

    again = Browser(api)
    again.client.set_cookie("trainyard-sign-in", cookie.value, path="/ui/login")

    assert "invalid_grant" in failure(again.client.get(back), 401)


def test_a_person_who_does_not_consent_is_told_so(api: Api, provider: Provider):
    provider.person = None

    assert "refuses the sign-in" in failure(sign_in(Browser(api)), 401)


def test_wrong_answers_are_limited_by_address(api: Api):
    browser = Browser(api)
    statuses = {browser.client.get("/ui/login/oidc/callback?code=a&state=b").status_code for _ in range(40)}

    assert statuses == {401, 429}


def test_a_provider_that_is_away_leaves_the_sign_in_by_key(web_api: Api, sqlite_url: str, tmp_path: Path):
    del web_api
    bound = Database().bind(engine_on(sqlite_url))
    (tmp_path / "two").mkdir()
    made = Api(
        bound,
        tmp_path / "two",
        TRAINYARD_WEB_ENABLED="true",
        TRAINYARD_OIDC_ISSUER="http://127.0.0.1:9",
        TRAINYARD_OIDC_CLIENT_ID="a",
        TRAINYARD_OIDC_CLIENT_SECRET="b",
        TRAINYARD_OIDC_ROLES="*=viewer:default",
    )
    browser = Browser(made)

    assert "cannot be asked" in failure(browser.client.get("/ui/login/oidc"), 503)
    assert browser.sign_in(made.key).status_code == 303
    made.close()
    bound.close()


@pytest.fixture
def other_api(sqlite_url: str, tmp_path: Path, web_api: Api) -> Iterator[Callable[..., Api]]:
    """Makes APIs with other settings, on a database that is ready."""
    del web_api
    bound = Database().bind(engine_on(sqlite_url))
    made: list[Api] = []

    def make(**environment: str) -> Api:
        known = {"CLIENT_ID": CLIENT_ID, "CLIENT_SECRET": CLIENT_SECRET, **environment}
        (tmp_path / "other").mkdir()
        settings = {f"TRAINYARD_OIDC_{name}": value for name, value in known.items()}
        made.append(Api(bound, tmp_path / "other", TRAINYARD_WEB_ENABLED="true", **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()
    bound.close()


@pytest.mark.long
def test_a_provider_that_does_not_answer_holds_one_thread(other_api: Callable[..., Api]):
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        api = other_api(
            ISSUER=f"http://127.0.0.1:{mute.getsockname()[1]}", ROLES="*=viewer:default", TIMEOUT_SECONDS="2"
        )
        answers: list[tuple[int, float]] = []

        def begin() -> None:
            began = time.monotonic()
            status = api.app.test_client().get("/ui/login/oidc").status_code
            answers.append((status, time.monotonic() - began))

        threads = [threading.Thread(target=begin) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        begin()
        mute.setblocking(False)
        mute.accept()[0].close()
        with pytest.raises(BlockingIOError):
            mute.accept()

    assert {status for status, _ in answers} == {503}
    assert sum(seconds > 1.9 for _, seconds in answers) == 1
    assert sum(seconds > 0.9 for _, seconds in answers) <= 4


@pytest.mark.parametrize("source", ["id token", "user information"])
@pytest.mark.parametrize(
    ("verified", "status"), [({"email_verified": True}, 200), ({"email_verified": False}, 403), ({}, 403)]
)
def test_an_address_counts_only_if_it_is_verified(
    other_api: Callable[..., Api], provider: Provider, verified: dict[str, bool], status: int, source: str
):
    api = other_api(ISSUER=provider.url, CLAIM="email", ROLES="boss@example.com=super_admin; *=viewer:default")
    provider.person = Person("sub-bo", {"email": "boss@example.com", **verified})
    if source == "user information":
        provider.in_userinfo = True
        provider.changes = {"email_verified": not verified.get("email_verified", False)}

    answer = sign_in(Browser(api))

    assert answer.status_code == status
    if status == 403:
        assert "does not say that your e-mail address is verified" in failure(answer, 403)


def test_without_a_provider_there_is_no_way_to_it(web_api: Api):
    browser = Browser(web_api)

    assert "Sign in by" not in browser.get("/ui/login").text
    browser.get("/ui/login/oidc", 404)


@pytest.mark.parametrize("wanted", ["https://evil.example", "//evil.example"])
def test_the_sign_in_continues_within_the_dashboard_alone(api: Api, wanted: str):
    assert Browser(api).client.get(f"/ui/login/oidc?next={wanted}").status_code == 400
