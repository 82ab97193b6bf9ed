"""Browsers open ports of jobs through a gateway, a relay and a session server."""

import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from app.domain.lifecycle.states import JobState
from app.domain.port_addresses import PortsHost
from app.gateway.interactive.port_access import REMEMBER_SECONDS
from app.models import AuditEntry
from app.security.permissions import Role
from tests.systems.port_sites import PortSite, ServedPort, echoing, end_job, talking
from tests.systems.servers import free_port


def headers_of(asked: Any) -> dict[str, str]:
    return dict(asked["headers"])


def test_a_page_is_asked_for_with_its_own_path(port_site: PortSite, echo: int) -> None:
    port = port_site.opened(echo)

    answer = port.ask("GET", "/a//b/%2F/?x=1&y=%20")

    assert answer.status == 200
    assert answer.json["path"] == "/a//b/%2F/?x=1&y=%20"
    assert headers_of(answer.json)["x-forwarded-proto"] == "http"
    assert headers_of(answer.json)["x-trainyard-user"] == "Ada%20Lovelace"
    assert headers_of(answer.json)["host"] == port.address.host


def test_a_port_may_keep_its_prefix(make_port_site: Callable[..., PortSite], echo: int) -> None:
    port = make_port_site().opened(echo, keep_prefix=True)

    assert port.ask("GET", "/lab?x").json["path"] == f"{port.prefix}/lab?x"


def test_a_token_in_the_url_becomes_a_cookie(port_site: PortSite, echo: int) -> None:
    port = port_site.opened(echo)
    token = port.token()

    led = port.ask("GET", f"/a?b=1&trainyard_token={token}&c", cookie="")

    assert (led.status, led.headers["Location"]) == (303, f"{port.address.origin}{port.prefix}/a?b=1&c")
    cookie = led.headers["Set-Cookie"]
    assert f"Path={port.prefix}/;" in cookie
    assert "HttpOnly" in cookie
    assert 50 < int(cookie.partition("Max-Age=")[2].partition(";")[0]) <= 60  # the rest of the token's time
    assert "SameSite=Lax" in cookie
    assert port.ask("GET", "/a", cookie=cookie.partition(";")[0]).status == 200


def test_a_key_opens_a_port_and_the_job_does_not_see_it(port_site: PortSite, echo: int) -> None:
    port = port_site.opened(echo)

    asked = port.ask("POST", "/", b"x", cookie="", Authorization=f"Bearer {port_site.user_key}").json

    assert asked["body"] == "x"
    assert "authorization" not in headers_of(asked)
    assert port_site.user_key not in json.dumps(asked)


def test_each_key_that_uses_a_port_has_one_line_in_the_audit_trail(port_site: PortSite, echo: int) -> None:
    port = port_site.opened(echo)
    key = {"Authorization": f"Bearer {port_site.user_key}"}

    statuses = [port.ask(cookie="", **given).status for given in (key, {}, key)]
    time.sleep(REMEMBER_SECONDS)
    statuses.append(port.ask(cookie="", **key).status)

    assert statuses == [200, 401, 200, 200]
    with port_site.db.read() as session:
        (line,) = session.scalars(select(AuditEntry).where(AuditEntry.action == "port.use"))
    assert (line.target, line.project, line.address) == (port.address.job_id, "default", "127.0.0.1")
    assert line.actor.startswith("key-")
    assert line.data == {"port": port.address.name, "attempt": 1}


def test_the_jobs_own_authorization_reaches_it(port_site: PortSite, echo: int) -> None:
    asked = port_site.opened(echo).ask(Authorization="token of-the-job").json

    assert headers_of(asked)["authorization"] == "token of-the-job"


def test_our_cookies_and_headers_that_are_ours_to_say_do_not_reach_the_job(port_site: PortSite, echo: int) -> None:
    port = port_site.opened(echo)
    cookies = f"own=1; {port.cookie}; trainyard-session=x; __Host-Trainyard-session=y; other=2"

    asked = port.ask(
        cookie=cookies, **{"X-Trainyard-User": "root", "X-Forwarded-For": "1.2.3.4", "X-Real-Ip": "1.2.3.4"}
    ).json

    assert headers_of(asked)["cookie"] == "own=1; other=2"
    assert headers_of(asked)["x-trainyard-user"] == "Ada%20Lovelace"
    assert headers_of(asked)["x-forwarded-for"] == "127.0.0.1"
    assert "x-real-ip" not in headers_of(asked)


def test_headers_with_underscores_and_of_one_connection_do_not_reach_the_job(port_site: PortSite, echo: int) -> None:
    port = port_site.opened(echo)

    asked = port.ask(
        **{"X_Trainyard_User": "root", "Connection": "keep-alive, X-Own", "X-Own": "1", "TE": "trailers", "X-Kept": "2"}
    ).json

    names = headers_of(asked)
    assert names["x-kept"] == "2"
    assert not {"x_trainyard_user", "x-own", "te"} & set(names)


@pytest.mark.parametrize("cookie", ["", "trainyard-port=forged", "trainyard-port="])
def test_without_a_valid_token_every_address_answers_alike(port_site: PortSite, echo: int, cookie: str) -> None:
    port = port_site.opened(echo)
    missing = ServedPort(port_site, type(port.address)(**{**port.address.__dict__, "name": "none"}))

    there, not_there = port.ask(cookie=cookie), missing.ask(cookie=cookie)

    assert (there.status, not_there.status) == (401, 401)
    assert b"trainyard open" in there.raw


def test_a_browser_without_a_token_gets_a_page_that_says_the_way_in(
    make_port_site: Callable[..., PortSite], echo: int
) -> None:
    port = make_port_site(TRAINYARD_WEB_URL="https://trainyard.example.com/").opened(echo)
    way_in = f"https://trainyard.example.com/ui/jobs/{port.address.job_id}/access"

    page, text = port.ask(cookie="", Accept="text/html,*/*;q=0.8"), port.ask(cookie="")
    missing = ServedPort(port.site, PortsHost(port.site.ports_url).address(f"job-{'0' * 36}", "web"))

    assert (page.status, page.headers["Content-Type"]) == (401, "text/html; charset=utf-8")
    assert f'<a href="{way_in}">' in page.raw.decode()
    assert "style-src 'sha256-" in page.headers["Content-Security-Policy"]
    assert (text.status, text.headers["Content-Type"]) == (401, "text/plain; charset=utf-8")
    assert way_in in text.raw.decode()
    assert (
        missing.ask(cookie="", Accept="text/html").raw.decode().replace(missing.address.job_id, port.address.job_id)
        == page.raw.decode()
    )  # which does not tell whether the job exists


def test_a_browser_is_told_of_what_else_is_wrong_by_a_page(port_site: PortSite, echo: int) -> None:
    port = port_site.opened(echo)
    closed = port_site.opened(free_port())

    no_listener = closed.ask(Accept="text/html")
    no_dashboard = port.ask(cookie="", Accept="text/html")
    head = port.ask("HEAD", cookie="", Accept="text/html")

    assert (no_listener.status, "nothing listens on port" in no_listener.raw.decode()) == (502, True)
    assert "<h1>The job does not answer</h1>" in no_listener.raw.decode()
    assert (no_dashboard.status, "<a " in no_dashboard.raw.decode()) == (401, False)
    assert (head.status, head.raw) == (401, b"")


def test_tokens_of_another_port_or_job_expired_ones_and_those_of_revoked_keys_open_nothing(
    port_site: PortSite, echo: int
) -> None:
    port, other = port_site.opened(echo), port_site.opened(echo)

    wrong = [port.token(job_id=other.address.job_id), port.token(name="api"), port.token(seconds=-1)]

    assert [port.ask(cookie=f"trainyard-port={token}").status for token in wrong] == [401] * 3
    assert port.ask().status == 200
    port_site.revoke_key()
    port_site.wait_for(lambda: port.ask().status == 401)


def test_a_key_of_another_project_finds_no_such_port(port_site: PortSite, echo: int) -> None:
    port = port_site.opened(echo)
    foreign = port_site.make_key(Role.ADMIN, "another")

    answer = port.ask(cookie="", Authorization=f"Bearer {foreign}")

    assert answer.status == 404


def test_a_port_without_a_listener_says_so(port_site: PortSite) -> None:
    number = free_port()

    answer = port_site.opened(number).ask()

    assert answer.status == 502
    assert f"nothing listens on port {number}" in answer.raw.decode()


def test_a_job_that_waits_and_one_that_has_ended_say_so(port_site: PortSite, echo: int) -> None:
    port = port_site.opened(echo)

    end_job(port_site, port.address.job_id, status=JobState.QUEUED)
    waits = port.ask(cookie=port.cookie)
    end_job(port_site, port.address.job_id, status=JobState.COMPLETED)
    ended = port.ask(cookie=f"trainyard-port={port.token(seconds=61)}")

    assert (waits.status, ended.status) == (503, 503)
    assert b"QUEUED" in waits.raw
    assert b"COMPLETED" in ended.raw
    assert waits.headers["Retry-After"]


def test_ports_and_the_rest_are_on_different_hosts(port_site: PortSite, echo: int) -> None:
    port = port_site.opened(echo)

    elsewhere = port.ask("GET", "/", Host="trainyard.example.com")
    path = f"/jobs/{port.address.job_id}/ports/web/"
    ours = port_site.ask("GET", path)
    health = port_site.ask("GET", "/health", Host="jobs.localhost")

    assert ours.status == 421
    assert elsewhere.status == (421 if port.prefix else 404)
    assert health.status == 404
    assert b"ports of jobs" in health.raw


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://web--x.jobs.localhost"])
def test_pages_of_other_origins_post_nothing(port_site: PortSite, echo: int, origin: str) -> None:
    port = port_site.opened(echo)

    assert port.ask("POST", "/", b"x", Origin=origin).status == 403
    assert port.ask("POST", "/", b"x", Origin=port.address.origin).status == 200


def test_frames_and_scripts_of_other_sites_get_nothing_and_links_do(port_site: PortSite, echo: int) -> None:
    port = port_site.opened(echo)

    def status(of: str, mode: str, dest: str) -> int:
        return port.ask(**{"Sec-Fetch-Site": of, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}).status

    assert status("same-site", "no-cors", "script") == 403
    assert status("same-site", "navigate", "iframe") == 403
    assert status("cross-site", "navigate", "document") == 200
    assert status("same-origin", "cors", "empty") == 200


def test_a_job_has_only_a_share_of_a_gateways_connections(make_port_site: Callable[..., PortSite]) -> None:
    arrived, done = threading.Event(), threading.Event()

    def hang(connection: socket.socket, _: bytes) -> None:
        arrived.set()
        done.wait(20)
        connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    site = make_port_site(TRAINYARD_GATEWAY_MOST_SESSIONS="4")
    with talking(hang) as number, echoing() as other:
        port, another = site.opened(number), site.opened(other)
        statuses: list[int] = []
        waiting = threading.Thread(target=lambda: statuses.append(port.ask().status), name="waiting")
        waiting.start()
        assert arrived.wait(20)

        refused, served = port.ask(), another.ask()
        done.set()
        waiting.join()

    assert (refused.status, served.status, statuses) == (503, 200, [204])
    assert b"of this job" in refused.raw
