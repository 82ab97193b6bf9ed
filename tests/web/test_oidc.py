"""Signing in by an identity provider in a browser, which has to send a Strict cookie after another site led here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from app.database.engine import Database
from tests.systems.apps import Api
from tests.systems.engines import engine_on
from tests.systems.identity_provider import CLIENT_ID, CLIENT_SECRET, Person, Provider, identity_provider
from tests.systems.served import Served, serving
from tests.web.presses import Presses


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "true")
    with identity_provider() as running:
        running.person = Person("sub-ana", {"name": "Ana", "groups": ["team"]})
        yield running


@pytest.fixture
def served(sqlite_url: str, tmp_path: Path, provider: Provider) -> Iterator[Served]:
    bound = Database().bind(engine_on(sqlite_url))
    api = Api(
        bound,
        tmp_path,
        TRAINYARD_WEB_ENABLED="true",
        TRAINYARD_OIDC_ISSUER=provider.url,
        TRAINYARD_OIDC_CLIENT_ID=CLIENT_ID,
        TRAINYARD_OIDC_CLIENT_SECRET=CLIENT_SECRET,
        TRAINYARD_OIDC_ROLES="team=user:default",
        TRAINYARD_OIDC_LABEL="the institute",
    )
    with serving(api) as running:
        # Another host than the provider's, or both would be one site.
        running.url = running.url.replace("127.0.0.1", "localhost")
        provider.callbacks = (f"{running.url}/ui/login/oidc/callback",)
        yield running
    api.close()
    bound.close()


@pytest.fixture
def visitor(browser: Browser, served: Served, presses: Presses) -> Iterator[Page]:
    context = browser.new_context(base_url=served.url)
    presses.watch(context)
    yield context.new_page()
    context.close()


def test_a_person_comes_back_signed_in_to_the_page_asked_for(visitor: Page, served: Served, violations: Any):
    visitor.goto("/ui/jobs?name=a")
    visitor.get_by_role("link", name="Sign in by the institute").click()

    expect(visitor).to_have_url(f"{served.url}/ui/jobs?name=a")
    expect(visitor.get_by_role("link", name="Ana · default")).to_be_visible()
    visitor.get_by_role("button", name="Sign out").click()
    expect(visitor.get_by_role("heading", name="Sign in", exact=True)).to_be_visible()
    assert violations(visitor) == []


def test_a_person_without_a_role_is_told_why(visitor: Page, provider: Provider):
    provider.person = Person("sub-bo", {"name": "Bo"})
    visitor.goto("/ui/login")
    visitor.get_by_role("link", name="Sign in by the institute").click()

    expect(visitor.get_by_role("alert")).to_contain_text("no rule gives you a role here")


def test_who_signs_out_may_sign_out_at_the_provider_as_well(
    visitor: Page, served: Served, provider: Provider, violations: Any
):
    provider.ends_sign_ins = True
    visitor.goto("/ui/login")
    visitor.get_by_role("link", name="Sign in by the institute").click()
    visitor.get_by_role("button", name="Sign out").click()

    expect(visitor.get_by_role("heading", name="Signed out")).to_be_visible()
    assert violations(visitor) == []
    visitor.get_by_role("link", name="Sign out at the provider").click()

    expect(visitor).to_have_url(f"{served.url}/ui/login")
    assert provider.person is None


def test_an_administrator_ends_the_access_of_a_person(
    visitor: Page, browser: Browser, served: Served, presses: Presses
):
    visitor.goto("/ui/jobs")
    visitor.get_by_role("link", name="Sign in by the institute").click()
    expect(visitor).to_have_url(f"{served.url}/ui/jobs")
    chief = browser.new_context(base_url=served.url)
    presses.watch(chief)
    page = chief.new_page()
    page.goto("/ui/login")
    page.get_by_label("API key").fill(served.api.key)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.goto("/ui/admin/people")

    page.get_by_role("row", name="Ana").get_by_role("button", name="End sign-ins and keys").click()
    page.get_by_role("dialog").get_by_role("button", name="End sign-ins and keys").click()

    expect(page.locator("#notices")).to_contain_text("Their sign-ins and keys have ended")
    visitor.reload()
    expect(visitor.get_by_role("link", name="Sign in by the institute")).to_be_visible()
    chief.close()
