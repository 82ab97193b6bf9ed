"""The operator's proxy: which hosts it is for, which it may be asked for, and what is said to it."""

import pytest

from app.domain.spec.locations.outbound_proxy import OutboundProxy, may_be_asked, refusal
from config.settings import SettingsError, load_settings

PROXY = OutboundProxy(
    host="proxy.corp.example",
    port=3128,
    user="node",
    password="a@b:c",
    direct=("hub.corp.example", ".lan", "10.0.0.0/8"),
)


@pytest.mark.parametrize(
    ("host", "is_for"),
    [
        ("pypi.org", True),
        ("hub.corp.example", False),
        ("HUB.corp.example.", False),
        ("other.hub.corp.example", True),
        ("git.lan", False),
        ("lan", True),
        ("10.1.2.3", False),
        ("11.1.2.3", True),
    ],
)
def test_direct_hosts_are_not_its(host: str, *, is_for: bool) -> None:
    assert PROXY.is_for(host) is is_for


@pytest.mark.parametrize(
    ("host", "addresses", "may"),
    [
        ("pypi.org", ["151.101.0.223"], True),
        ("pypi.org", [], True),
        ("pypi.org", ["151.101.0.223", "10.0.0.1"], False),
        ("metadata.example", ["169.254.169.254"], False),
        ("git.corp.example", ["192.168.1.5"], True),  # allowed by name
        ("git.corp.example", [], True),
        ("wiki", [], False),
        ("wiki.corp.internal", [], False),
        ("a.localhost", [], False),
        ("10.0.0.1", [], False),
        ("10.0.0.1", ["10.0.0.1"], False),
    ],
)
def test_it_is_not_asked_for_inner_hosts(host: str, addresses: list[str], *, may: bool) -> None:
    assert may_be_asked(host, addresses, ("git.corp.example",)) is may


def test_requests_and_answers_have_the_form_of_connect() -> None:
    assert PROXY.connect_request("pypi.org", 443) == (
        b"CONNECT pypi.org:443 HTTP/1.1\r\nHost: pypi.org:443\r\nProxy-Authorization: Basic bm9kZTphQGI6Yw==\r\n\r\n"
    )
    assert b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\n" in PROXY.connect_request("2001:db8::1", 443)
    assert PROXY.url == "http://node:a%40b%3Ac@proxy.corp.example:3128"
    assert "a@b" not in repr(PROXY)
    assert refusal(b"HTTP/1.1 200 Connection established\r\n\r\n") == ""
    wants_login = refusal(b"HTTP/1.0 407 Proxy Authentication Required\r\n\r\n")
    assert "TRAINYARD_FETCH_PROXY answers 407: it wants a login; set TRAINYARD_FETCH_PROXY_USER" in wants_login
    assert "does not answer as an HTTP proxy" in refusal(b"SSH-2.0-OpenSSH\r\n")


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"PROXY": "https://proxy:3128"}, "expected http://HOST:PORT"),
        ({"PROXY": "http://proxy:3128/path"}, "expected http://HOST:PORT"),
        ({"PROXY": "http://user:secret@proxy:3128"}, "with nothing else in it"),
        ({"PROXY": "proxy:3128"}, "expected a URL"),
        ({"PROXY": "http://proxy:3128", "PROXY_SECRET": "x"}, "set TRAINYARD_FETCH_PROXY_USER, too"),
    ],
)
def test_settings_that_name_no_proxy_are_refused(variables: dict[str, str], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        load_settings({f"TRAINYARD_FETCH_{name}": value for name, value in variables.items()})
