"""A ticket opens its session once, within a minute, and for no page of another site."""

import asyncio
import http.client
import json
from collections.abc import Callable
from typing import Any

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from app.models.base import utc_now
from app.security import signed_tokens
from tests.systems.apps import SECRET_KEY
from tests.systems.session_sites import Person, SessionSite, ticket_of
from trainyard.protocol.interactive import PAGE_TICKET, PROTOCOL

UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": PROTOCOL,
}


@pytest.fixture
def site(make_session_site: Callable[..., SessionSite]) -> SessionSite:
    site = make_session_site()
    site.serve()
    return site


def ask(site: SessionSite, path: str, headers: dict[str, str], method: str = "GET") -> tuple[int, Any, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null"), response.headers
    finally:
        connection.close()


def test_a_ticket_opens_its_session_once(site: SessionSite) -> None:
    session_id, ticket = site.sandbox().session("true")

    async def scenario() -> None:
        async with site.opened(session_id, ticket) as person:
            assert (await person.all()).status["exit_code"] == 0

    asyncio.run(scenario())
    status, body, _ = _stream(site, session_id, ticket)
    assert status == 401
    assert "has been used" in body["error"]["message"]


def test_of_two_at_a_time_one_is_let_in(site: SessionSite) -> None:
    session_id, ticket = site.sandbox().session("cat")

    async def scenario() -> list[Any]:
        found = await asyncio.gather(*(site.connect(session_id, ticket) for _ in range(8)), return_exceptions=True)
        opened = [each for each in found if not isinstance(each, BaseException)]
        for each in opened:
            await Person(each).leave()
        return opened

    assert len(asyncio.run(scenario())) == 1


@pytest.mark.parametrize("ticket", ["", "x", "a.b.c", "Bearer", "é", "x" * 2000])
def test_what_is_no_ticket_is_refused(site: SessionSite, ticket: str) -> None:
    session_id, _ = site.sandbox().session("true")
    given = {**UPGRADE, "Authorization": f"Bearer {ticket}".encode().decode("latin-1")}
    status, body, headers = ask(site, f"/v1/sessions/{session_id}/stream", given)
    assert status == 401
    assert headers["WWW-Authenticate"].startswith("Bearer")
    assert body["status"] == "error"
    assert site.row(session_id).started_at is None


def test_expired_foreign_and_other_tokens_are_refused(site: SessionSite) -> None:
    sandbox = site.sandbox()
    (session_id, _), (_, foreign) = sandbox.session("true"), sandbox.session("true")
    others = signed_tokens.issue(SECRET_KEY, "another-purpose", session_id, seconds=60)
    forged = signed_tokens.issue("another secret", "interactive-session", session_id, seconds=60)

    for ticket in (ticket_of(session_id, seconds=-1), foreign, others, forged, site.key):
        assert _stream(site, session_id, ticket)[0] == 401

    assert site.row(session_id).started_at is None


def test_a_ticket_in_the_address_is_none(site: SessionSite) -> None:
    session_id, ticket = site.sandbox().session("true")
    status, body, _ = ask(site, f"/v1/sessions/{session_id}/stream?ticket={ticket}", UPGRADE)
    assert status == 401
    assert "header Authorization" in body["error"]["message"]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "not an origin", ""])
def test_pages_of_other_origins_are_refused_and_use_up_no_ticket(site: SessionSite, origin: str) -> None:
    session_id, ticket = site.sandbox().session("true")
    status, body, _ = _stream(site, session_id, ticket, Origin=origin)
    assert status == 403
    assert "pages of other sites" in body["error"]["message"]
    assert site.row(session_id).started_at is None


def test_clients_that_name_the_host_they_ask_are_let_in(site: SessionSite) -> None:
    session_id, ticket = site.sandbox().session("true")

    async def scenario() -> None:
        person = Person(await site.connect(session_id, ticket, Origin=f"http://127.0.0.1:{site.port}"))
        assert (await person.all()).status["exit_code"] == 0
        await person.leave()

    asyncio.run(scenario())


DASHBOARD = "https://trainyard.example.org"


def of_page(site: SessionSite, session_id: str, ticket: str, **headers: str) -> tuple[int, Any, Any]:
    """What a page sends: scripts choose the subprotocols, and browsers the header Origin."""
    given = {**UPGRADE, "Sec-WebSocket-Protocol": f"{PROTOCOL}, {PAGE_TICKET}{ticket}", **headers}
    return ask(site, f"/v1/sessions/{session_id}/stream", given)


def test_a_page_of_the_dashboard_shows_its_ticket_as_a_subprotocol(site: SessionSite) -> None:
    session_id, _ = site.sandbox().session("true")
    ticket = ticket_of(f"{session_id} {DASHBOARD}")

    async def scenario() -> None:
        headers = {"Origin": DASHBOARD}
        request = HTTPRequest(site.address(session_id), headers=headers, request_timeout=20)
        connection = await websocket_connect(request, subprotocols=[PROTOCOL, f"{PAGE_TICKET}{ticket}"])
        assert connection.selected_subprotocol == PROTOCOL  # an answer never has the ticket
        person = Person(connection)
        assert (await person.all()).status["exit_code"] == 0
        await person.leave()

    asyncio.run(scenario())
    assert of_page(site, session_id, ticket, Origin=DASHBOARD)[0] == 401  # once


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://trainyard.example.org",
        "https://trainyard.example.org:8443",
        "https://trainyard.example.org.evil.example",
        "https://TRAINYARD.example.org",
        "null",
        "https://trainyard.example.org https://evil.example",
    ],
)
def test_a_ticket_of_the_dashboard_is_of_no_use_to_pages_of_other_origins(site: SessionSite, origin: str) -> None:
    session_id, _ = site.sandbox().session("true")
    status, body, _ = of_page(site, session_id, ticket_of(f"{session_id} {DASHBOARD}"), Origin=origin)
    assert (status, "pages of its own origin" in body["error"]["message"]) == (403, True)
    assert site.row(session_id).started_at is None


def test_tickets_of_pages_and_of_programs_do_not_stand_in_for_each_other(site: SessionSite) -> None:
    session_id, of_program = site.sandbox().session("true")
    of_dashboard = ticket_of(f"{session_id} {DASHBOARD}")
    own = f"http://127.0.0.1:{site.port}"

    assert of_page(site, session_id, of_program, Origin=own)[0] == 403
    assert of_page(site, session_id, of_program, Origin=DASHBOARD)[0] == 403
    assert of_page(site, session_id, of_dashboard)[0] == 403
    assert of_page(site, session_id, of_dashboard, Origin="")[0] == 403
    assert _stream(site, session_id, of_dashboard)[0] == 403
    assert _stream(site, session_id, of_dashboard, Origin=own)[0] == 403
    assert site.row(session_id).started_at is None


def test_a_browser_may_add_the_password_of_a_proxy_to_the_ticket_of_a_page(site: SessionSite) -> None:
    session_id, of_program = site.sandbox().session("true")
    of_dashboard, own = ticket_of(f"{session_id} {DASHBOARD}"), {"Origin": DASHBOARD}

    assert of_page(site, session_id, of_dashboard, **own, Authorization=f"Bearer {of_dashboard}")[0] == 403
    assert of_page(site, session_id, of_program, **own, Authorization="Basic YTpi")[0] == 403
    assert of_page(site, session_id, of_dashboard, **own, Authorization="Basic YTpi")[0] == 101


@pytest.mark.parametrize(("offered", "status"), [("a, {0}b", 400), ("{0}" + "x" * 2000, 400), ("{0}x", 401)])
def test_subprotocols_that_hold_no_ticket_are_refused(site: SessionSite, offered: str, status: int) -> None:
    session_id, _ = site.sandbox().session("true")
    offers = (
        f"{PROTOCOL}, {PAGE_TICKET}{offered.format(PAGE_TICKET)}" if "b" in offered else offered.format(PAGE_TICKET)
    )
    given = {**UPGRADE, "Sec-WebSocket-Protocol": f"{PROTOCOL}, {offers}", "Origin": DASHBOARD}
    assert ask(site, f"/v1/sessions/{session_id}/stream", given)[0] == status


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        ({"Upgrade": "h2c"}, 426, "open it as a WebSocket"),
        ({"Sec-WebSocket-Version": "8"}, 426, "version 13"),
        ({"Sec-WebSocket-Key": "short"}, 400, "Sec-WebSocket-Key"),
        ({"Sec-WebSocket-Protocol": "v5.channel.k8s.io"}, 400, PROTOCOL),
        ({"Connection": "close"}, 426, "open it as a WebSocket"),
    ],
)
def test_requests_that_open_no_session_use_up_no_ticket(
    site: SessionSite, headers: dict[str, str], status: int, message: str
) -> None:
    session_id, ticket = site.sandbox().session("true")
    answered, body, _ = _stream(site, session_id, ticket, **headers)
    assert answered == status
    assert message in body["error"]["message"]
    assert site.row(session_id).started_at is None


def test_other_methods_and_paths_are_refused(site: SessionSite) -> None:
    session_id, ticket = site.sandbox().session("true")
    given = {**UPGRADE, "Authorization": f"Bearer {ticket}"}
    assert ask(site, f"/v1/sessions/{session_id}/stream", given, "POST")[0] == 405
    assert ask(site, f"/v1/sessions/{session_id}/stream/x", given)[0] == 404
    assert ask(site, "/v1/sessions/../stream", given)[0] in (400, 401, 404)


def test_sessions_beyond_the_limit_are_refused_until_one_ends(make_session_site: Callable[..., SessionSite]) -> None:
    site = make_session_site(TRAINYARD_GATEWAY_MOST_SESSIONS="1")
    site.serve()
    sandbox = site.sandbox()
    (first, ticket), (second, other) = sandbox.session("cat"), sandbox.session("true")

    async def scenario() -> None:
        async with site.opened(first, ticket) as person:
            status, body, headers = await asyncio.to_thread(_stream, site, second, other)
            assert (status, headers["Retry-After"] is not None) == (503, True)
            assert "as many sessions open as it may" in body["error"]["message"]
            await person.end_input()
            await person.all()

    asyncio.run(scenario())
    site.ended(first)
    asyncio.run(_runs(site, second, other))


@pytest.mark.parametrize("why", ["key", "project", "job", "asked"])
def test_what_has_changed_since_the_ticket_was_given_counts(site: SessionSite, why: str) -> None:
    sandbox = site.sandbox()
    session_id, ticket = sandbox.session("true")
    if why == "key":
        site.revoke_key()
    elif why == "project":
        site.set_project(sessions="off")
    elif why == "job":
        site.set_job(sandbox.job_id, status="COMPLETED")
    else:
        site.set_session(session_id, end_requested_at=utc_now())
    assert _stream(site, session_id, ticket)[0] == {"key": 401, "project": 403, "job": 409, "asked": 409}[why]


async def _runs(site: SessionSite, session_id: str, ticket: str) -> None:
    async with site.opened(session_id, ticket) as person:
        assert (await person.all()).status["exit_code"] == 0


def _stream(site: SessionSite, session_id: str, ticket: str, **headers: str) -> tuple[int, Any, Any]:
    given = {**UPGRADE, "Authorization": f"Bearer {ticket}", **headers}
    return ask(site, f"/v1/sessions/{session_id}/stream", given)
