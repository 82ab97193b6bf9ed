"""What no client library would send, as bytes to the real server: each is refused, and the server keeps serving."""

import contextlib
import os
import re
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli.local.command_lines import api_command, child_environment
from app.server.gunicorn_worker import HEAD_SECONDS, LINGER_SECONDS
from app.services.operations.bootstrap import prepare
from config.settings import load_settings
from tests.systems.servers import free_port
from tests.systems.system import wait_for

BODY = b'{"name": "x", "role": "viewer"}'


class Server:
    """gunicorn as `trainyard api` starts it, on SQLite and without a broker that answers."""

    def __init__(self, folder: Path) -> None:
        environ = {
            "PATH": os.environ["PATH"],
            "TRAINYARD_DATA_DIR": str(folder),
            "TRAINYARD_BROKER_URL": "redis://127.0.0.1:1/0",
        }
        settings = prepare(load_settings(environ))
        self.port = free_port()
        self.key = settings.admin_key_file.read_text().strip()
        self.log = folder / "gunicorn.log"
        command = api_command(settings, bind=f"127.0.0.1:{self.port}")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                env={**child_environment(environ, settings), "PYTHONPATH": str(Path(__file__).parents[2])},
                stdout=log,
                stderr=log,
                cwd=folder,
            )
        wait_for(self.answers, seconds=30, what="the API answers")

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self.status(self.get("/health")) == 200
        return False

    def get(self, path: str, *headers: str, key: str = "") -> bytes:
        return self.send(self.head("GET", path, *headers, key=key))

    def head(self, method: str, path: str, *headers: str, key: str = "") -> bytes:
        own = [f"Authorization: Bearer {key}"] if key else []
        return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *own, *headers, "", ""]).encode("latin-1")

    def post(self, body: bytes, *headers: str) -> bytes:
        sent = ("Content-Type: application/json", "Connection: close", *headers)
        return self.send(self.head("POST", "/v1/keys", *sent, key=self.key) + body)

    def send(self, raw: bytes) -> bytes:
        """Everything that comes back until the other side closes or says no more for a moment."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(raw)
            received = b""
            connection.settimeout(3)
            with contextlib.suppress(TimeoutError, ConnectionResetError):
                while piece := connection.recv(65536):
                    received += piece
                    if self._is_whole(received):
                        break
            return received

    def _is_whole(self, received: bytes) -> bool:
        head, found, body = received.partition(b"\r\n\r\n")
        lengths = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return bool(found and lengths) and len(body) >= int(lengths[0])

    def status(self, received: bytes) -> int:
        return int(received.split(b" ", 2)[1]) if received else 0

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("server"))
    owned_pids.add(started.process.pid)
    yield started
    started.close()


def length(count: int | str) -> str:
    return f"Content-Length: {count}"


def test_a_good_request_is_answered(server: Server):
    """Or nothing below would say anything."""
    assert server.status(server.post(BODY, length(len(BODY)))) == 201


@pytest.mark.parametrize(
    ("headers", "statuses"),
    [
        ([f"X-Long: {'x' * 65_536}"], {400, 431}),
        ([f"X-{n}: x" for n in range(200)], {400, 431}),
        ([f"Authorization: Bearer {'x' * 10_000}"], {400, 401, 431}),
        (["Authorization: Bearer a", "Authorization: Bearer b"], {400, 401}),
        (["Authorization: Bearer \xe4\xf6"], {400, 401}),
        (["Bad Header: x"], {400}),
        (["X-A: a\r\n folded"], {400, 401}),
        (["X-A: a\x00b"], {400}),
    ],
)
def test_odd_headers_are_refused(server: Server, headers: list[str], statuses: set[int]):
    assert server.status(server.get("/v1/jobs", *headers)) in statuses


def test_a_path_without_end_is_refused(server: Server):
    assert server.status(server.get("/v1/jobs?name=" + "x" * 65_536)) in {400, 414}


def test_a_body_over_the_limit_is_refused_by_its_length(server: Server):
    assert server.status(server.post(b"", length(2_000_000))) == 413


def test_a_body_over_the_limit_is_refused_without_a_length(server: Server):
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"

    assert server.status(server.post(chunk * 20 + b"0\r\n\r\n", "Transfer-Encoding: chunked")) == 413


def test_a_chunked_body_is_read(server: Server):
    assert server.status(server.post(b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY), "Transfer-Encoding: chunked")) == 201


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ([length(len(BODY)), "Transfer-Encoding: chunked"], b"0\r\n\r\nGET /v1/keys HTTP/1.1\r\nHost: x\r\n\r\n"),
        ([length(5), length(len(BODY))], BODY),
        ([length("5, 6")], BODY),
        ([length(-1)], BODY),
        ([length("0x10")], BODY),
        ([length("1_0")], BODY),
        (["Transfer-Encoding: chunked"], b"zz\r\n{}\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked"], b"-2\r\n{}\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked, gzip"], b"0\r\n\r\n"),
        (["Transfer-Encoding: xchunked"], b"0\r\n\r\n"),
        (["Transfer-Encoding : chunked"], b"0\r\n\r\n"),
    ],
)
def test_what_two_readers_would_read_differently_is_refused(server: Server, headers: list[str], body: bytes):
    got = server.post(body, *headers)

    assert server.status(got) in {400, 501}
    assert got.count(b"HTTP/1.1 ") == 1


def test_lines_without_a_carriage_return_carry_no_second_request(server: Server):
    got = server.send(b"GET /health HTTP/1.1\nHost: x\n\nGET /v1/keys HTTP/1.1\r\nHost: x\r\n\r\n")

    assert got.count(b"HTTP/1.1 200") <= 1


def test_a_body_shorter_than_it_says_makes_nothing(server: Server):
    before = server.get("/v1/keys?page_size=1", "Connection: close", key=server.key)
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        head = server.head("POST", "/v1/keys", "Content-Type: application/json", length(1000), key=server.key)
        connection.sendall(head + BODY)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65536)  # so that the server is done with it

    assert server.status(answer) == 400
    after = server.get("/v1/keys?page_size=1", "Connection: close", key=server.key)

    assert before.partition(b'"total_count":')[2][:4] == after.partition(b'"total_count":')[2][:4] != b""


@pytest.mark.parametrize(
    "target", ["http://evil.example/v1/jobs", "//evil.example/v1/jobs", "*", "v1/jobs", "evil.example:80"]
)
def test_odd_targets_reach_nothing(server: Server, target: str):
    got = server.get(target, "Connection: close")

    assert server.status(got) in {400, 401, 404}
    assert b"Location" not in got


def test_a_head_in_pieces_is_read(server: Server):
    raw = server.head("POST", "/v1/keys", "Content-Type: application/json", length(len(BODY)), key=server.key) + BODY
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):  # the second over the connection that stayed open
            for start in range(0, len(raw), 7):
                connection.sendall(raw[start : start + 7])
            received = b""
            while not server._is_whole(received):
                received += connection.recv(65536)
            assert server.status(received) == 201


@pytest.mark.long
def test_unfinished_request_head_is_closed(server: Server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=HEAD_SECONDS + 5) as connection:
        connection.sendall(b"GET /v1/jobs HTTP/1.1\r\nX-Slow: ")
        began = time.monotonic()

        assert connection.recv(1) == b""

    assert HEAD_SECONDS - 1 < time.monotonic() - began < HEAD_SECONDS + 4


def test_many_silent_connections_delay_no_other_request(server: Server):
    """Slow heads and idle connections: more of them than the server has threads."""
    with contextlib.ExitStack() as stack:
        for number in range(150):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5))
            if number % 2:
                connection.sendall(b"GET /v1/jobs HTTP/1.1\r\nX-Slow: ")

        began = time.monotonic()
        status = server.status(server.get("/health", "Connection: close"))

    assert status == 200
    assert time.monotonic() - began < 5


def test_connections_left_open_after_their_answer_delay_no_other_request(server: Server):
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5))
            connection.sendall(server.head("GET", "/health", "Connection: close"))

            assert server.status(connection.recv(65536)) == 200

    assert time.monotonic() - began < 5


@pytest.mark.long
def test_connection_that_is_left_open_is_closed_and_its_answer_whole(server: Server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=LINGER_SECONDS + 5) as connection:
        connection.sendall(server.head("POST", "/v1/keys", length(60_000), "Connection: close") + b"x" * 30_000)
        received = b""
        while piece := connection.recv(65536):
            received += piece
        time.sleep(LINGER_SECONDS + 2)  # nothing tells the client when the server closes its side

        assert server._is_whole(received)
        # The first byte is answered by a reset, which a later one meets.
        with pytest.raises(OSError, match=r"pipe|reset"):
            wait_for(lambda: connection.sendall(b"x"), seconds=1, what="a reset")


@pytest.mark.parametrize("framing", [length(1_000_000), "Transfer-Encoding: chunked"])
def test_unfinished_bodies_of_refused_requests_delay_no_other_request(server: Server, framing: str):
    """More of them than the server has threads, and none has a key."""
    head = server.head("POST", "/v1/keys", "Content-Type: application/json", framing)
    with contextlib.ExitStack() as stack:
        for _ in range(150):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5))
            connection.sendall(head + b"10000\r\nx\r\n\r\n")

        began = time.monotonic()
        status = server.status(server.get("/health", "Connection: close"))

    assert status == 200
    assert time.monotonic() - began < 5


def test_bodies_that_do_not_arrive_hold_threads_of_their_project_alone(server: Server):
    """More of them than the server has threads, with a key of one project."""
    head = server.head("POST", "/v1/jobs", "Content-Type: application/json", length(1000), key=server.key)
    with contextlib.ExitStack() as stack:
        held = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5)) for _ in range(200)
        ]
        for connection in held:
            connection.sendall(head + b"{")
        refused, _, _ = select.select(held, [], [], 5)
        began = time.monotonic()
        status = server.status(server.get("/health", "Connection: close"))
        answer = refused[0].recv(4096)

    assert status == 200
    assert time.monotonic() - began < 5
    assert b"HTTP/1.1 429 " in answer
    assert re.search(rb"all \d+ unfinished request bodies that one project may have on this server", answer)


def test_the_log_holds_no_key_and_no_fault(server: Server):
    server.get(f"/v1/jobs?key={server.key}", "Connection: close")

    said = server.log.read_text()

    assert server.key not in said
    assert "Traceback" not in said
