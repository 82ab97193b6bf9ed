"""One POST to real receivers: good ones, failing, redirecting, slow, hanging and hostile ones."""

import json
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.services.webhooks.http_post import Posted, PostRules, post
from tests.doubles.tls import self_signed
from tests.fetching.web_server import Answer, Handler, WebServer, redirect, status
from tests.systems.running_up import wait_until
from tests.systems.servers import free_port

LOCAL = ("127.0.0.1", "::1")
RULES = PostRules(allow=LOCAL, timeout_seconds=10.0)
SHORT = PostRules(allow=LOCAL, timeout_seconds=0.3)


@pytest.fixture
def receiver() -> Iterator[WebServer]:
    with WebServer() as server:
        yield server


def sent(url: str, rules: PostRules = RULES, **headers: str) -> Posted:
    return post(url, b'{"a":1}', headers, rules)


def hang(handler: Handler) -> None:
    handler.server.owner.closing.wait(20)


def drip(handler: Handler) -> None:
    """A status line that never ends, a byte at a time."""
    for _ in range(2000):
        handler.wfile.write(b"X")
        if handler.server.owner.closing.wait(0.02):
            return


def say(text: bytes) -> Answer:
    def answer(handler: Handler) -> None:
        handler.wfile.write(text)
        handler.close_connection = True

    return answer


# ---- what is sent


def test_body_and_headers_arrive_as_they_are(receiver: WebServer) -> None:
    receiver.answers["/hook"] = status(204)

    body = json.dumps({"text": "é"}).encode()

    posted = post(receiver.url("/hook?team=a&x=%2F"), body, {"X-Trainyard-Event": "job.status"}, RULES)

    assert posted == Posted(status_code=204)
    (seen,) = receiver.seen
    assert (seen.method, seen.path) == ("POST", "/hook?team=a&x=%2F")
    assert json.loads(seen.body) == {"text": "é"}
    assert seen.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["content-length"] == str(len(seen.body))
    assert seen.headers["x-trainyard-event"] == "job.status"
    assert seen.headers["user-agent"] == "trainyard"


def test_address_without_a_path_means_the_root(receiver: WebServer) -> None:
    receiver.answers["/"] = status(200)

    assert sent(receiver.url("")).status_code == 200


# ---- what comes back


@pytest.mark.parametrize("code", [200, 201, 202, 204, 299])
def test_every_2xx_means_taken(receiver: WebServer, code: int) -> None:
    receiver.answers["/hook"] = status(code)

    assert sent(receiver.url("/hook")) == Posted(status_code=code)


@pytest.mark.parametrize("code", [304, 400, 401, 404, 410, 429, 500, 503])
def test_everything_else_is_a_failure_that_names_the_status(receiver: WebServer, code: int) -> None:
    receiver.answers["/hook"] = status(code)

    posted = sent(receiver.url("/hook"))

    assert posted.status_code == code
    assert f"it answers {code}" in posted.problem


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(receiver: WebServer, code: int) -> None:
    receiver.answers["/hook"] = redirect(receiver.url("/elsewhere"), code)
    receiver.answers["/elsewhere"] = status(200)

    posted = sent(receiver.url("/hook"))

    assert posted.problem == f"it answers {code}; redirects are not followed"
    assert receiver.asked("/elsewhere") == []


@pytest.mark.parametrize(
    ("header", "seconds"), [("120", 120), ("0", 0), ("soon", 0), ("-5", 0), ("9" * 30, 0), ("\u00b2", 0), ("", 0)]
)
def test_retry_after_header_is_read_when_it_is_a_number(receiver: WebServer, header: str, seconds: int) -> None:
    receiver.answers["/hook"] = status(503, Retry_After=header)

    assert sent(receiver.url("/hook")).retry_after_seconds == seconds


def test_answer_whose_body_never_comes_counts_by_its_status(receiver: WebServer) -> None:
    def promise(handler: Handler) -> None:
        handler.head(202, Content_Length="10")
        hang(handler)

    receiver.answers["/hook"] = promise
    began = time.monotonic()

    assert sent(receiver.url("/hook")) == Posted(status_code=202)
    assert time.monotonic() - began < 8


def test_receiver_sees_an_orderly_end(receiver: WebServer) -> None:
    ended: list[bytes] = []

    def chatty(handler: Handler) -> None:
        handler.answer(200, b"x" * 30_000)
        ended.append(handler.connection.recv(1))  # a reset would raise

    receiver.answers["/hook"] = chatty

    assert sent(receiver.url("/hook")) == Posted(status_code=200)
    wait_until(lambda: ended == [b""])


def test_long_answer_is_not_read(receiver: WebServer) -> None:
    def endless(handler: Handler) -> None:
        handler.head(200, Content_Length=str(10**12))
        while not handler.server.owner.closing.is_set():
            handler.wfile.write(b"x" * 65536)  # until the other side is gone

    receiver.answers["/hook"] = endless

    assert sent(receiver.url("/hook")) == Posted(status_code=200)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x00\x01\x02",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\n" + b"X-Y: z\r\n" * 500 + b"\r\n",
    ],
    ids=["nothing", "bytes", "ssh", "status", "line", "headers"],
)
def test_what_is_no_http_is_a_failure(receiver: WebServer, text: bytes) -> None:
    receiver.answers["/hook"] = say(text)

    posted = sent(receiver.url("/hook"))

    assert posted.status_code is None
    assert posted.problem


def test_address_is_not_logged_for_a_receiver_that_answers_with_odd_headers(
    receiver: WebServer, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers["/hook"] = say(b"HTTP/1.1 200 OK\r\nno header\r\nContent-Length: 0\r\n\r\n")

    assert sent(receiver.url("/hook?token=s3cret")) == Posted(status_code=200)
    assert "s3cret" not in caplog.text


# ---- time


@pytest.mark.parametrize("answer", [hang, drip], ids=["hangs", "drips"])
def test_receiver_that_takes_too_long_is_given_up_in_time(receiver: WebServer, answer: Answer) -> None:
    receiver.answers["/hook"] = answer
    began = time.monotonic()

    posted = sent(receiver.url("/hook"), SHORT)

    assert posted == Posted(problem="no answer within 0.3 seconds")
    assert time.monotonic() - began < 5


def test_receiver_that_takes_nothing_of_a_large_body_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        began = time.monotonic()

        posted = post(url, b"x" * 50_000_000, {}, SHORT)

    assert posted == Posted(problem="no answer within 0.3 seconds")
    assert time.monotonic() - began < 5


def test_body_that_trickles_in_is_given_up_soon(receiver: WebServer) -> None:
    def trickle(handler: Handler) -> None:
        handler.head(200, Content_Length="2000")
        drip(handler)

    receiver.answers["/hook"] = trickle
    began = time.monotonic()

    assert sent(receiver.url("/hook")) == Posted(status_code=200)
    assert time.monotonic() - began < 8


def test_endless_interim_answers_are_given_up_in_time(receiver: WebServer) -> None:
    def continues(handler: Handler) -> None:
        while not handler.server.owner.closing.wait(0.005):
            handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    receiver.answers["/hook"] = continues

    assert sent(receiver.url("/hook"), SHORT).problem == "no answer within 0.3 seconds"


def test_receiver_that_accepts_no_connections_is_given_up_in_time() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        others = [socket.socket() for _ in range(3)]
        for other in others:  # fill its backlog
            other.setblocking(False)
            other.connect_ex(listener.getsockname())

        posted = sent(f"http://127.0.0.1:{listener.getsockname()[1]}/", SHORT)

        for other in others:
            other.close()
    assert posted.problem == "no answer within 0.3 seconds"


def test_unreachable_receiver_is_reported_as_such() -> None:
    assert sent(f"http://127.0.0.1:{free_port()}/x").problem == "it cannot be reached: Connection refused"


@pytest.mark.parametrize("host", ["a..example", "x" * 64 + ".example", ""])
def test_impossible_host_is_reported_as_such(host: str) -> None:
    assert sent(f"https://{host}/x").problem


def test_unresolvable_name_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def unresolvable(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unresolvable)

    assert sent("https://no.such.host.example/x").problem == "its host name cannot be resolved"


# ---- where it may lead


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_private_address_is_not_connected_to(receiver: WebServer, host: str) -> None:
    receiver.answers["/hook"] = status(200)

    posted = sent(receiver.url("/hook", host), PostRules(allow=("10.0.0.0/8",), timeout_seconds=5))

    assert "TRAINYARD_WEBHOOK_ALLOW" in posted.problem
    assert receiver.seen == []


def test_listed_name_may_lead_to_a_private_address(receiver: WebServer) -> None:
    receiver.answers["/hook"] = status(200)

    assert sent(receiver.url("/hook", "LOCALHOST"), PostRules(allow=("localhost",), timeout_seconds=5)).problem == ""


def test_name_is_asked_for_once_and_only_its_public_addresses_are_tried(
    receiver: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def two_faced(host: str, port: int, **_: Any) -> Any:
        asked.append(host)
        addresses = [("93.184.215.14", port), ("127.0.0.1", receiver.port)]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", two_faced)

    posted = sent("http://rebinding.example/hook", PostRules(allow=(), timeout_seconds=5))

    assert posted.problem.startswith("it cannot be reached")  # tests have no network access
    assert asked == ["rebinding.example"]
    assert receiver.seen == []


def test_next_address_of_a_name_is_tried_when_the_first_refuses(
    receiver: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.answers["/hook"] = status(200)
    addresses = [("127.0.0.1", free_port()), ("127.0.0.1", receiver.port)]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    assert sent("http://receiver.example/hook").status_code == 200


def test_proxies_of_the_environment_are_not_used(receiver: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver.answers["/hook"] = status(200)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")

    assert sent(receiver.url("/hook")).status_code == 200


# ---- TLS


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return self_signed(tmp_path)


@pytest.fixture
def secure_receiver(certificate: Path) -> Iterator[WebServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = WebServer()
    server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
    with server:
        server.answers["/hook"] = status(200)
        yield server


def https(server: WebServer, host: str = "127.0.0.1") -> str:
    return f"https://{host}:{server.port}/hook"


def test_self_signed_certificate_is_refused(secure_receiver: WebServer) -> None:
    posted = sent(https(secure_receiver))

    assert posted.problem.startswith("its certificate is not accepted: self-signed certificate")
    assert secure_receiver.seen == []


def test_certificate_of_an_authority_that_the_operator_trusts_is_taken(
    secure_receiver: WebServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    assert sent(https(secure_receiver)) == Posted(status_code=200)


def test_secure_receiver_that_drips_is_given_up_in_time(
    secure_receiver: WebServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    secure_receiver.answers["/hook"] = drip
    began = time.monotonic()

    posted = sent(https(secure_receiver), PostRules(allow=LOCAL, timeout_seconds=1.0))

    assert posted == Posted(problem="no answer within 1 seconds")
    assert time.monotonic() - began < 8
    assert len(secure_receiver.seen) == 1


def test_certificate_of_another_host_is_refused(
    secure_receiver: WebServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    posted = sent(https(secure_receiver, "localhost"), PostRules(allow=("localhost",), timeout_seconds=5))

    assert "its certificate is not accepted" in posted.problem


def test_plain_receiver_behind_a_secure_address_is_a_failure(receiver: WebServer) -> None:
    assert sent(f"https://127.0.0.1:{receiver.port}/hook").problem.startswith("TLS failed")


def test_handshake_that_never_comes_is_given_up_in_time() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)

        posted = sent(f"https://127.0.0.1:{listener.getsockname()[1]}/", SHORT)

    assert posted.problem == "no answer within 0.3 seconds"
