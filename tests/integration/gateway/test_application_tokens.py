"""Exposed URLs are opened with the token of an application, as Run:ai's clients have it."""

import json

import jwt

from app.security import application_tokens, signed_tokens
from app.security.permissions import Role
from app.security.secrets import SecretBox
from app.services.access import api_keys
from tests.systems.apps import SECRET_KEY
from tests.systems.port_sites import PortSite


def bearer(key_id: str, *, seconds: int = 60) -> str:
    return f"Bearer {application_tokens.issue(SECRET_KEY, key_id, seconds=seconds)}"


def test_token_of_an_application_opens_a_port_and_the_job_does_not_see_it(port_site: PortSite, echo: int) -> None:
    port = port_site.opened(echo)
    token = bearer(port_site.user)

    by_token = port.ask("POST", "/", b"x", cookie="", Authorization=token).json
    beside_a_cookie = port.ask(Authorization=token).json
    with_another_scheme = port.ask(Authorization=token.replace("Bearer", "token")).json
    beside_a_url = port.ask("POST", f"/?trainyard_token={port.token()}", b"", cookie="", Authorization=token).json

    assert by_token["body"] == "x"
    assert dict(by_token["headers"])["x-trainyard-user"] == "Ada%20Lovelace"
    for asked in (by_token, beside_a_cookie, with_another_scheme, beside_a_url):
        assert "authorization" not in dict(asked["headers"])
        assert token.removeprefix("Bearer ") not in json.dumps(asked)


def test_tokens_that_are_not_good_open_nothing(port_site: PortSite, echo: int) -> None:
    port = port_site.opened(echo)
    foreign = signed_tokens.issue(SECRET_KEY, "another-purpose", port_site.user, seconds=60)
    forged = jwt.encode({"sub": port_site.user, "exp": 2**40}, "x" * 32, algorithm="HS256")

    for value in (bearer(port_site.user, seconds=-1), f"Bearer {foreign}", f"Bearer {forged}", bearer("key-none")):
        assert port.ask(cookie="", Authorization=value).status == 401


def test_token_ends_with_its_key_and_opens_no_port_for_others(port_site: PortSite, echo: int) -> None:
    new = api_keys.create(port_site.db, SecretBox(SECRET_KEY), role=Role.USER, project="default", name="bob")
    mine, others = port_site.opened(echo), port_site.opened(echo, authorized_users=["Ada Lovelace"])
    token = bearer(new.row.id)

    before = mine.ask(cookie="", Authorization=token).status
    forbidden = others.ask(cookie="", Authorization=token).status
    api_keys.revoke(port_site.db, api_keys.of_id(port_site.db, new.row.id), new.row.id)
    fresh = port_site.opened(echo)

    assert (before, forbidden) == (200, 403)
    assert fresh.ask(cookie="", Authorization=token).status == 401


def test_a_jobs_own_token_of_the_same_form_reaches_it(port_site: PortSite, echo: int) -> None:
    own = f"Bearer {jwt.encode({'sub': 'me'}, 'x' * 32, algorithm='HS256')}"

    assert dict(port_site.opened(echo).ask(Authorization=own).json["headers"])["authorization"] == own
