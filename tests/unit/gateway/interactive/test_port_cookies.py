"""Cookies between browsers and ports: ours stay ours, and a job sets its own for its own place only."""

import pytest

from app.domain.port_addresses import PortsHost
from app.gateway.interactive import port_cookies

JOB = "job-01234567-89ab-7cde-8123-0123456789ab"
PATH = PortsHost("http://jobs.localhost").address(JOB, "web")
HOST = PortsHost("https://*.jobs.example.com").address(JOB, "web")
SECURE_PATH = PortsHost("https://jobs.example.com").address(JOB, "web")


def test_names_say_what_browsers_check() -> None:
    assert [port_cookies.name_at(each) for each in (PATH, HOST, SECURE_PATH)] == [
        "trainyard-port",
        "__Host-trainyard-port",
        "__Secure-trainyard-port",
    ]
    assert port_cookies.setting(HOST, "t", seconds=9) == (
        "__Host-trainyard-port=t; Path=/; Max-Age=9; HttpOnly; SameSite=Lax; Secure"
    )


def test_several_cookies_of_the_name_are_all_tried_up_to_a_limit() -> None:
    headers = ["trainyard-port=a; x=1", "trainyard-port=b; trainyard-port=<bad>; trainyard-port="]

    assert port_cookies.tokens(headers, PATH) == ["a", "b"]
    assert len(port_cookies.tokens(["; ".join(["trainyard-port=a"] * 99)], PATH)) == port_cookies.MOST_TOKENS
    assert port_cookies.tokens(["trainyard-port=a"], HOST) == []


def test_the_job_gets_what_is_not_ours() -> None:
    headers = ["a=1;trainyard-port=x ; b = 2", "TRAINYARD-session=y; __Host-trainyard-sign-in=z; plain; trainyard-x"]

    assert port_cookies.without_ours(headers) == "a=1; b=2; plain"


@pytest.mark.parametrize(
    "header",
    [
        "trainyard-port=x; Path=/",
        "Trainyard-Session=x",
        "__Host-trainyard-session=x; Path=/; Secure",
        "__Secure-TRAINYARD-port=x",
        "__Host-Http-trainyard-port=x",
        "=trainyard-session=x",
        "trainyard-session",
        " trainyard-port =x",
        "bad name=x",
        "",
    ],
)
@pytest.mark.parametrize("address", [PATH, HOST])
def test_a_job_sets_none_of_ours(address: object, header: str) -> None:
    assert port_cookies.of_job(header, address, keeps_prefix=False) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "keeps", "expected"),
    [
        ("/", False, f"{PATH.prefix}/"),
        ("/app", False, f"{PATH.prefix}/app"),
        (PATH.prefix, False, PATH.prefix + PATH.prefix),
        (f"{PATH.prefix}/app", True, f"{PATH.prefix}/app"),
        (f"{PATH.prefix}x", True, f"{PATH.prefix}/"),
        ("/", True, f"{PATH.prefix}/"),
    ],
)
def test_cookies_of_a_job_stay_below_its_prefix(path: str, keeps: bool, expected: str) -> None:  # noqa: FBT001
    kept = port_cookies.of_job(f"a=1; path={path}; Secure", PATH, keeps_prefix=keeps)

    assert kept == f"a=1; Secure; Path={expected}"


def test_cookies_of_a_job_are_for_no_other_host() -> None:
    assert port_cookies.of_job("a=1; Domain=example.com; Path=/x; SameSite=None", HOST, keeps_prefix=False) == (
        "a=1; SameSite=None; Path=/x"
    )
    assert port_cookies.of_job("__Host-a=1; Path=/; Secure", HOST, keeps_prefix=False) == "__Host-a=1; Secure; Path=/"
    assert port_cookies.of_job("__Host-a=1; Path=/; Secure", PATH, keeps_prefix=False) is None
