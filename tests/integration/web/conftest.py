"""A browser without scripts: it keeps cookies, sends forms as browsers do, and reads pages."""

import http.client
import re
from collections.abc import Iterator
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.database.engine import Database
from app.security.permissions import Role
from tests.systems.apps import Api
from tests.systems.engines import engine_on
from tests.systems.identity_provider import CLIENT_ID, CLIENT_SECRET, Person, Provider, identity_provider

SITE = "http://localhost"
ROLES = "chiefs=super_admin; cn=vision,ou=groups=admin:default; readers=viewer:default; lost=user:nowhere"
ANA = Person("sub-ana", {"name": "Ana <b>", "email": "ana@example.com", "groups": ["other", "cn=vision,ou=groups"]})


class Page(HTMLParser):
    """What a person reads of a page, and the forms and links in it."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.words: list[str] = []
        self.links: list[str] = []
        self.fields: dict[str, str] = {}
        self.feed(html)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        if tag == "input" and given.get("name"):
            self.fields[str(given["name"])] = given.get("value") or ""

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


class Browser:
    """One person's browser."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.client: FlaskClient = api.app.test_client()
        self._csrf: str | None = ""  # None: none was read since signing in

    @property
    def csrf(self) -> str:
        """Of the page read last."""
        if self._csrf is None:
            self.get("/ui/sessions")
        return self._csrf or ""

    def sign_in(self, key: str) -> TestResponse:
        answer = self.client.post("/ui/login", data={"key": key}, headers={"Origin": SITE})
        if answer.status_code == 303:
            self._csrf = None
        return answer

    def get(self, path: str, status: int = 200, **request: Any) -> Page:
        answer = self.client.get(path, **request)
        html = answer.get_data(as_text=True)
        assert answer.status_code == status, html[:2000]
        found = Page(html)
        if token := re.search(r'name="csrf" value="([0-9a-f]{128})"', html):
            self._csrf = token[1]
        return found

    def json(self, path: str, status: int = 200) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == status, answer.get_data(as_text=True)[:2000]
        return answer.json

    def post(self, path: str, fields: dict[str, Any] | None = None, **request: Any) -> TestResponse:
        """Sends a form of a page of this session."""
        headers = {"Origin": SITE, **request.pop("headers", {})}
        return self.client.post(path, data={"csrf": self.csrf, **(fields or {})}, headers=headers, **request)

    def act(self, path: str, fields: dict[str, Any] | None = None) -> str:
        """Sends a form that has to work; what the page that follows says of it."""
        answer = self.post(path, fields)
        assert answer.status_code == 303, Page(answer.get_data(as_text=True)).text
        notice = self.client.get_cookie("trainyard-notice", path="/ui")
        assert notice is not None
        return notice.decoded_value


@pytest.fixture
def web_api(sqlite_url: str, tmp_path: Path) -> Iterator[Api]:
    """An API with the dashboard, with a project `default` and a queue."""
    bound = Database().bind(engine_on(sqlite_url))
    made = Api(bound, tmp_path, TRAINYARD_WEB_ENABLED="true")
    yield made
    made.close()
    bound.close()


@pytest.fixture
def web(web_api: Api) -> Browser:
    """The super admin's browser, signed in; `web.api` submits jobs and makes keys."""
    browser = Browser(web_api)
    browser.sign_in(web_api.key)
    return browser


@pytest.fixture
def viewer(web_api: Api) -> Browser:
    """Of a viewer of the project `default`."""
    browser = Browser(web_api)
    browser.sign_in(web_api.make_key(Role.VIEWER))
    return browser


@pytest.fixture
def member(web_api: Api) -> Browser:
    """Of a user of the project `default`."""
    browser = Browser(web_api)
    browser.sign_in(web_api.make_key(Role.USER))
    return browser


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "true")
    with identity_provider() as running:
        running.person = ANA
        yield running


@pytest.fixture
def person_api(sqlite_url: str, tmp_path: Path, provider: Provider) -> Iterator[Api]:
    """An API whose people sign in by `provider`; ana is who is signed in there."""
    bound = Database().bind(engine_on(sqlite_url))
    made = Api(
        bound,
        tmp_path,
        TRAINYARD_WEB_ENABLED="true",
        TRAINYARD_OIDC_ISSUER=provider.url,
        TRAINYARD_OIDC_CLIENT_ID=CLIENT_ID,
        TRAINYARD_OIDC_CLIENT_SECRET=CLIENT_SECRET,
        TRAINYARD_OIDC_ROLES=ROLES,
        TRAINYARD_OIDC_LABEL="the institute",
        TRAINYARD_API_WRONG_KEYS_BURST="20",
        TRAINYARD_API_WRONG_KEYS_PER_SECOND="0.0001",
    )
    yield made
    made.close()
    bound.close()


def back_from(start: str) -> str:
    """Where the provider leads the browser, which consents at once."""
    parts = urlsplit(start)
    with closing(http.client.HTTPConnection(parts.netloc, timeout=10)) as connection:
        connection.request("GET", f"{parts.path}?{parts.query}")
        answer = connection.getresponse()
        body = answer.read()
    assert answer.status in (302, 303), body
    return str(answer.headers["Location"])


def sign_in_by_provider(browser: Browser, wanted: str = "") -> TestResponse:
    start = browser.client.get("/ui/login/oidc" + (f"?next={wanted}" if wanted else ""))
    assert start.status_code == 303
    answer = browser.client.get(back_from(start.headers["Location"]))
    if answer.status_code == 200:
        browser.get("/ui/sessions")
    return answer
