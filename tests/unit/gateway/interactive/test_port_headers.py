"""Redirects of jobs, names of people in headers, and paths that lead elsewhere."""

import base64

import pytest
from tornado.httputil import HTTPHeaders

from app.domain.port_addresses import PortAddress, PortsHost
from app.gateway.interactive.port_headers import Asker, for_browser, for_job, is_own_origin, user_text
from app.gateway.interactive.port_request import leaves

JOB = "job-01234567-89ab-7cde-8123-0123456789ab"
PATH = PortsHost("http://jobs.localhost:8100").address(JOB, "web")
HOST = PortsHost("http://*.jobs.localhost:8100").address(JOB, "web")


KEY = f"ty_0123456789ab_{'S' * 38}"
TOKEN = "eyJ.of-an_application.x"
ASKER = Asker(address="127.0.0.1", user="Ada")


def sent_to_job(name: str, value: str) -> HTTPHeaders:
    return for_job(HTTPHeaders({name: value}), PATH, ASKER, is_ours=lambda word: word == TOKEN)


def led(value: str, address: PortAddress = PATH, *, keeps: bool = False) -> str | None:
    return for_browser(HTTPHeaders({"Location": value}), address, keeps_prefix=keeps, port=8888).get("Location")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/login?a#b", f"{PATH.prefix}/login?a#b"),
        ("login", "login"),
        ("?next", "?next"),
        ("http://jobs.localhost:8100/x", f"{PATH.origin}{PATH.prefix}/x"),
        ("http://127.0.0.1:8888/x", f"{PATH.origin}{PATH.prefix}/x"),
        ("http://localhost:8888", f"{PATH.origin}{PATH.prefix}/"),
        ("//127.0.0.1:8888/x", f"{PATH.origin}{PATH.prefix}/x"),
        ("http://127.0.0.1:9999/x", "http://127.0.0.1:9999/x"),
        ("https://example.com/x", "https://example.com/x"),
        (f"/jobs/{JOB}/ports/other/", f"{PATH.prefix}/jobs/{JOB}/ports/other/"),
        ("javascript:alert(1)", None),
        ("/\\evil.com", None),
        ("/a b", None),
        ("http://[", None),
    ],
)
def test_redirects_of_a_job_lead_below_its_prefix(value: str, expected: str | None) -> None:
    assert led(value) == expected


def test_redirects_of_a_job_that_knows_its_prefix_have_it_once() -> None:
    assert led(f"{PATH.prefix}/lab", keeps=True) == f"{PATH.prefix}/lab"
    assert led("/lab", keeps=True) == f"{PATH.prefix}/lab"


def test_redirects_on_a_host_of_its_own_stay_as_they_are() -> None:
    assert led("/login", HOST) == "/login"
    assert led(f"{HOST.origin}/x", HOST) == f"{HOST.origin}/x"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Ada Lovelace", "Ada%20Lovelace"), ("Zoë\r\nX: 1", "Zo%C3%AB%0D%0AX:%201"), ("50%", "50%25")],
)
def test_names_of_people_are_safe_in_headers(name: str, expected: str) -> None:
    assert user_text(name) == expected


@pytest.mark.parametrize("path", ["/..", "/a/../..", "/%2e%2E/", "/a%2f..%2F..", "/..;x/", "/a\\..\\..", "/a//../.."])
def test_paths_that_lead_out_are_seen(path: str) -> None:
    assert leaves(path)


@pytest.mark.parametrize("path", ["/", "", "/a/..", "/...", "/a..", "/.hidden/../x", "/%252e%252e"])
def test_paths_that_stay_are_not_taken_for_others(path: str) -> None:
    assert not leaves(path)


def test_pages_without_referrers_are_known_by_what_browsers_say() -> None:
    assert is_own_origin(HTTPHeaders({"Origin": "null", "Sec-Fetch-Site": "same-origin"}), PATH)
    assert not is_own_origin(HTTPHeaders({"Origin": "null", "Sec-Fetch-Site": "cross-site"}), PATH)
    assert is_own_origin(HTTPHeaders(), PATH)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", f"Bearer\t{KEY}"),
        ("Authorization", f"bearer  {KEY}"),
        ("Authorization", f"token {KEY}"),
        ("Authorization", KEY),
        ("Authorization", 'Digest username="ty_mistyped"'),
        ("Authorization", "Bearer tyjob.abc.def"),
        ("Authorization", f"Basic {base64.b64encode(f'user:{KEY}'.encode()).decode()}"),
        ("Authorization", f"Bearer\t{TOKEN}"),
        ("Authorization", f"token {TOKEN},"),
        ("Authorization", TOKEN),
        ("Authorization", f"Basic {base64.b64encode(f'user:{TOKEN}'.encode()).decode()}"),
        ("X-Api-Key", KEY),
        ("X-Own", f"a={KEY};b"),
        ("Cookie", f"own={KEY}"),
        ("Referer", f"{PATH.url}?key={KEY}"),
        ("Referer", f"{PATH.url}?trainyard%5Ftoken=x"),
    ],
)
def test_no_header_carries_a_key_of_the_platform_into_a_job(name: str, value: str) -> None:
    assert name not in sent_to_job(name, value)


@pytest.mark.parametrize(
    "value", ["token of-the-job", "Bearer party_time", f"Bearer {TOKEN}y", "Basic dXNlcjpwYXNz", "Basic !", "Bearer"]
)
def test_what_is_the_jobs_own_reaches_it(value: str) -> None:
    assert sent_to_job("Authorization", value)["Authorization"] == value


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        (None, "private"),
        ("public, max-age=600", "private, max-age=600"),
        ("no-store", "private, no-store"),
        ("Private, S-MaxAge=9", "private"),
    ],
)
def test_no_shared_cache_keeps_what_needs_a_token(said: str | None, sent: str) -> None:
    headers = HTTPHeaders({} if said is None else {"Cache-Control": said})
    headers["CDN-Cache-Control"] = headers["Surrogate-Control"] = headers["Set-Cookie2"] = "max-age=600"

    assert dict(for_browser(headers, PATH, keeps_prefix=False, port=80)) == {"Cache-Control": sent}
