"""Every page and action for every kind of caller: who gets in, and that projects stay apart.

The routes are those that the application serves: a new page is tested without an entry anywhere.
"""

import re
from collections.abc import Iterator
from itertools import product

import pytest
from werkzeug.routing import Rule

from app.http.context import dialect_of
from app.http.operation import Operation, operation_of
from app.security.permissions import PERMISSIONS, Role
from app.web.dialect import WEB
from tests.contract.tenants import Tenant, make_tenant
from tests.integration.web.conftest import Browser
from tests.systems.apps import Api

UNUSED_ID = "01900000-0000-7000-8000-000000000000"
# Of parameters that no tenant has values for.
SHARED = {
    "tab": "events",
    "session_id": f"session-{UNUSED_ID}",
    "checkpoint_id": "ckpt-none",
    "delivery_id": "dlv-none",
}
# Pages that are there before a sign-in.
OPEN = {"/ui/login", "/ui/login/oidc", "/ui/login/oidc/callback", "/ui/signed-out", "/ui/static/<version>/<path:name>"}

# Refused without parameters.
NEED_A_QUERY = {"/ui/compare/curves.json", "/ui/live/marks"}


@pytest.fixture
def tenants(web_api: Api) -> tuple[Tenant, Tenant]:
    return make_tenant(web_api, "alpha"), make_tenant(web_api, "beta")


def routes(api: Api, method: str) -> Iterator[tuple[Rule, Operation]]:
    for rule in api.app.url_map.iter_rules():
        if dialect_of(api.app, rule.rule) is WEB and method in (rule.methods or ()):
            described = operation_of(api.app.view_functions[rule.endpoint])
            if described.permission is not None:
                yield rule, described


def signed_in(api: Api, key: str) -> Browser:
    browser = Browser(api)
    assert browser.sign_in(key).status_code == 303
    return browser


def paths(rule: Rule, tenant: Tenant) -> list[str]:
    """The rule with every combination of what the tenant has."""
    choices = [
        [(name, value) for value in tenant.ids.get(name, [SHARED.get(name, "nothing")])]
        for name in sorted(rule.arguments)
    ]
    found = []
    for chosen in product(*choices):
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"<\1>", rule.rule)
        for name, value in chosen:
            path = path.replace(f"<{name}>", value)
        found.append(path)
    return found


def missing(rule: Rule) -> str:
    return re.sub(r"<(?:\w+:)?(\w+)>", lambda part: SHARED.get(part[1], f"job-{UNUSED_ID}"), rule.rule)


def test_no_page_opens_without_a_session(web_api: Api):
    browser = Browser(web_api)
    got = {}
    for method in ("GET", "POST"):
        for rule, _ in routes(web_api, method):
            answer = browser.client.open(missing(rule), method=method, headers={"Origin": "http://localhost"})
            got[method, rule.rule] = (answer.status_code, answer.headers.get("Location", "").partition("?")[0])

    assert got == dict.fromkeys(got, (303, "/ui/login"))
    assert len(got) > 40


def test_what_is_open_is_known(web_api: Api):
    found = {
        rule.rule
        for rule in web_api.app.url_map.iter_rules()
        if dialect_of(web_api.app, rule.rule) is WEB
        and operation_of(web_api.app.view_functions[rule.endpoint]).permission is None
    }

    assert found == OPEN


def test_a_server_without_the_dashboard_has_no_page(api: Api):
    assert {path: api.client.get(path).status_code for path in ("/", "/ui", "/ui/", "/ui/login")} == {
        "/": 404,
        "/ui": 404,
        "/ui/": 404,
        "/ui/login": 404,
    }


@pytest.mark.parametrize(
    "text", ["//[", "http://[/ui", "/ui/[", "/ui/\\", "%ED%A0%80", "/ui%00", "/ui%0D%0Aa:b", "é" * 2000]
)
def test_no_text_breaks_what_is_open(web_api: Api, text: str):
    browser = Browser(web_api)
    got = {}
    for path in sorted(OPEN):
        for name in ("next", "code", "state", "error", "key"):
            for method in ("GET", "POST"):
                where = f"{path.replace('<version>', text).replace('<path:name>', 'a')}?{name}={text}"
                answer = browser.client.open(
                    where,
                    method=method,
                    headers={"Origin": "http://["},
                    data={name: text} if method == "POST" else None,
                )
                got[method, where] = answer.status_code

    assert {where: status for where, status in got.items() if status >= 500} == {}


@pytest.mark.long
def test_pages_show_a_project_its_own_alone(web_api: Api, tenants: tuple[Tenant, Tenant]):
    mine, other = tenants
    browser = signed_in(web_api, mine.key)
    wrong, seen, own = {}, 0, 0
    for rule, described in routes(web_api, "GET"):
        if described.media == "events" or described.permission not in PERMISSIONS[Role.ADMIN]:
            continue
        for path in paths(rule, mine):
            answer = browser.client.get(path)
            text, status = answer.get_data(as_text=True), answer.status_code
            if (
                other.mark in text
                or status >= 500
                or (not rule.arguments and status >= 400 and rule.rule not in NEED_A_QUERY)
            ):
                wrong[path] = (status, text[:300])
            seen, own = seen + 1, own + (mine.mark in text)

    assert wrong == {}
    assert seen > 30
    assert own > 10


@pytest.mark.long
def test_what_another_project_has_looks_missing(web_api: Api, tenants: tuple[Tenant, Tenant]):
    mine, other = tenants
    browser = signed_in(web_api, mine.key)
    wrong = {}
    for method in ("GET", "POST"):
        for rule, described in routes(web_api, method):
            foreign = set(rule.arguments) & {"job_id", "key_id", "webhook_id", "sweep_id", "evaluation_id"}
            if not foreign or described.media == "events":
                continue
            for path in paths(rule, other):
                answer = browser.client.get(path) if method == "GET" else browser.post(path)
                text = answer.get_data(as_text=True)
                if answer.status_code not in (404, 422) or other.mark in text:
                    wrong[method, path] = (answer.status_code, text[:300])

    assert wrong == {}


@pytest.mark.long
def test_actions_are_for_those_who_may(web_api: Api, tenants: tuple[Tenant, Tenant]):
    mine, _ = tenants
    got = {}
    for role in (Role.VIEWER, Role.USER, Role.ADMIN):
        browser = signed_in(web_api, web_api.make_key(role, mine.name))
        for rule, described in routes(web_api, "POST"):
            if described.permission not in PERMISSIONS[role]:
                got[role, rule.rule] = browser.post(paths(rule, mine)[0]).status_code

    assert got == dict.fromkeys(got, 403)
    assert len(got) > 20


def test_every_action_wants_the_token_and_comes_from_this_site(web_api: Api, tenants: tuple[Tenant, Tenant]):
    browser = signed_in(web_api, web_api.key)
    got = {}
    for rule, _ in routes(web_api, "POST"):
        path = paths(rule, tenants[0])[0]
        without_token = browser.post(path, {"csrf": "0" * 64}).status_code
        of_another_site = browser.post(path, headers={"Origin": "https://evil.example"}).status_code
        got[path] = (without_token, of_another_site)

    assert got == dict.fromkeys(got, (403, 403))
