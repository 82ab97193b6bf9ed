"""The relay's process between real sockets: whom it lets in, what it connects to, and that it dies with its parent."""

import errno
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from app.host import processes
from tests.systems.children import child_that_runs
from tests.systems.relayed_engines import TOKEN, answers_reversed, engine_at, said
from tests.systems.system import wait_for
from trainyard.protocol.interactive import SOCKET
from workers.relay import relay
from workers.relay.__main__ import listening
from workers.supervisor.serving.relay_process import RelayPlace, RelayProcess

STARTER = """
import pathlib, sys, time
from workers.supervisor.serving.relay_process import RelayPlace, RelayProcess
process = RelayProcess()
process.start(RelayPlace(address="127.0.0.1", socket=pathlib.Path(sys.argv[1]), token="a" * 64))
print(process.port(), flush=True)
time.sleep(60)
"""


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    process = RelayProcess()
    process.start(RelayPlace(address="127.0.0.1", socket=tmp_path / "engine.sock", token=TOKEN))
    yield process.port()
    process.close()


def test_client_with_the_token_reaches_the_engine_and_each_side_may_end_first(tmp_path: Path, port: int) -> None:
    with engine_at(tmp_path / "engine.sock"):
        assert said(port, f"TRAINYARD/1 {TOKEN}\n".encode(), b"hello ", b"engine") == b"OK\nenigne olleh"


def test_megabytes_pass_unchanged(tmp_path: Path, port: int) -> None:
    sent = os.urandom(3 << 20)
    with engine_at(tmp_path / "engine.sock"):
        assert said(port, f"TRAINYARD/1 {TOKEN}\n".encode() + sent) == b"OK\n" + sent[::-1]


@pytest.mark.parametrize(
    ("greeting", "why"),
    [
        (f"TRAINYARD/1 {'b' * 64}\n".encode(), b"NO the token is not that of this attempt\n"),
        (f"TRAINYARD/1 {TOKEN}x\n".encode(), b"NO the token is not that of this attempt\n"),
        (f"TRAINYARD/2 {TOKEN}\n".encode(), b"NO the first line is not TRAINYARD/1 and a token\n"),
        (b"GET / HTTP/1.1\r\n\r\n", b"NO the first line is not TRAINYARD/1 and a token\n"),
        (b"TRAINYARD/1 " + b"a" * 300 + b"\n", b"NO the first line is not TRAINYARD/1 and a token\n"),
        (b"x" * 200_000, b"NO the first line is not TRAINYARD/1 and a token\n"),
        (b"", b"NO the first line is not TRAINYARD/1 and a token\n"),
    ],
)
def test_others_are_refused(tmp_path: Path, port: int, greeting: bytes, why: bytes) -> None:
    with engine_at(tmp_path / "engine.sock"):
        try:
            answer = said(port, greeting)
        except OSError:  # what was sent after the refusal
            answer = why
    assert answer == why


@pytest.mark.long
def test_client_that_says_nothing_is_not_waited_for(tmp_path: Path, port: int) -> None:
    with engine_at(tmp_path / "engine.sock"), socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"TRAINYARD/1")
        assert client.recv(1000) == f"NO no token came within {relay.GREETING_SECONDS:g} s\n".encode()
        assert client.recv(1000) == b""


def test_engine_that_does_not_listen_is_named(tmp_path: Path, port: int) -> None:
    greeting = f"TRAINYARD/1 {TOKEN}\n".encode()
    assert said(port, greeting) == b"NO the engine does not listen: No such file or directory\n"
    with engine_at(tmp_path / "engine.sock"):
        assert said(port, greeting) == b"OK\n"
    assert said(port, greeting) == b"NO the engine does not listen: Connection refused\n"


def test_nothing_but_a_socket_of_the_run_directory_is_connected_to(tmp_path: Path, port: int) -> None:
    greeting, place = f"TRAINYARD/1 {TOKEN}\n".encode(), tmp_path / "engine.sock"
    with engine_at(tmp_path / "of-another"):
        place.symlink_to(tmp_path / "of-another")
        assert said(port, greeting) == b"NO the engine does not listen: what lies in its place is no socket\n"
    place.unlink()
    place.write_text("a file")
    assert said(port, greeting) == b"NO the engine does not listen: what lies in its place is no socket\n"


def test_engine_notices_a_client_that_hung_up(tmp_path: Path, port: int) -> None:
    ended = threading.Event()

    def streams(connection: socket.socket) -> None:
        try:
            while True:
                connection.sendall(b"token " * 1000)
        except OSError:
            ended.set()

    with engine_at(tmp_path / "engine.sock", streams):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(f"TRAINYARD/1 {TOKEN}\n".encode())
            assert client.recv(3) == b"OK\n"
        assert ended.wait(10)


def test_what_a_client_says_last_arrives_after_the_engine_has_ended_its_side(tmp_path: Path, port: int) -> None:
    got, heard = list[bytes](), threading.Event()

    def listens(connection: socket.socket) -> None:
        connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(1 << 16):
            got.append(piece)
        heard.set()

    relay_process = child_that_runs("workers.relay", os.getpid())
    with (
        engine_at(tmp_path / "engine.sock", listens),
        socket.create_connection(("127.0.0.1", port), timeout=10) as client,
    ):
        client.sendall(f"TRAINYARD/1 {TOKEN}\n".encode())
        assert (client.recv(3), client.recv(1)) == (b"OK\n", b"")
        relay_process.suspend()  # so that it sees the last bytes and the end together
        client.sendall(b"last")
        client.shutdown(socket.SHUT_WR)
        relay_process.resume()
        assert heard.wait(10)

    assert got == [b"last"]


@pytest.mark.long
def test_relay_that_ends_passes_on_what_the_engine_has_said(tmp_path: Path) -> None:
    process, sent, said_all = RelayProcess(), os.urandom(1 << 20), threading.Event()
    process.start(RelayPlace(address="127.0.0.1", socket=tmp_path / "engine.sock", token=TOKEN))
    port = process.port()

    def says_much(connection: socket.socket) -> None:
        connection.sendall(sent)
        said_all.set()

    with engine_at(tmp_path / "engine.sock", says_much), socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(f"TRAINYARD/1 {TOKEN}\n".encode())
        assert client.recv(3) == b"OK\n"
        ending = threading.Timer(0.2, process.close)
        ending.start()
        time.sleep(0.5)
        received = b""
        while piece := client.recv(1 << 16):
            received += piece
        ending.join()
    assert said_all.is_set()
    assert received == sent


def test_relay_that_hurries_ends_at_once(tmp_path: Path) -> None:
    process = RelayProcess()
    process.start(RelayPlace(address="127.0.0.1", socket=tmp_path / "engine.sock", token=TOKEN))
    port = process.port()
    with (
        engine_at(tmp_path / "engine.sock", lambda connection: connection.setblocking(bool(connection.recv(1)))),
        socket.create_connection(("127.0.0.1", port), 10) as client,
    ):
        client.sendall(f"TRAINYARD/1 {TOKEN}\n".encode())
        assert client.recv(3) == b"OK\n"
        began = time.monotonic()
        process.close(hurries=True)
        assert time.monotonic() - began < 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_relay_refuses_after_the_end_of_the_process_that_started_it(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path / "engine.sock")]
    with engine_at(tmp_path / "engine.sock"), subprocess.Popen(command, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        port = int(starter.stdout.readline())
        (child,) = (pid for pid in processes.descendants(starter.pid) if pid != starter.pid)
        assert said(port, f"TRAINYARD/1 {TOKEN}\n".encode()) == b"OK\n"
        assert TOKEN.encode() not in Path(f"/proc/{child}/cmdline").read_bytes(), "process lists show it"

        starter.send_signal(number)
        starter.wait()

        wait_for(lambda: processes.start_ticks(child) is None, seconds=10, what="the relay has ended")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=10)


def test_relay_that_is_closed_leaves_no_process(tmp_path: Path) -> None:
    process = RelayProcess()
    process.start(RelayPlace(address="192.0.2.1", socket=tmp_path / "engine.sock", token=TOKEN))
    port = process.port()  # at all addresses: this machine does not have that one
    assert said(port, b"x\n").startswith(b"NO")
    process.close()
    process.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=10)


def test_silent_clients_do_not_lock_others_out(tmp_path: Path, port: int) -> None:
    with engine_at(tmp_path / "engine.sock"), ExitStack() as open_ones:
        silent = [
            open_ones.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            for _ in range(relay.MOST_STRANGERS + 20)
        ]
        assert said(port, f"TRAINYARD/1 {TOKEN}\n".encode(), b"ab") == b"OK\nba"
        with suppress(ConnectionResetError):
            assert silent[0].recv(100) == b""


def test_only_an_address_that_the_machine_does_not_have_means_all_of_its_family() -> None:
    with listening("192.0.2.1") as listener:
        assert listener.getsockname()[0] == "0.0.0.0"
    if socket.has_dualstack_ipv6():
        with listening("2001:db8::1") as listener:
            assert listener.family == socket.AF_INET6
    with pytest.raises(OSError, match=r".") as refused:
        listening("no address")
    assert refused.value.errno != errno.EADDRNOTAVAIL


@contextmanager
def relay_of_sessions(folder: Path) -> Iterator[int]:
    process = RelayProcess()
    process.start(RelayPlace(address="127.0.0.1", socket=folder / SOCKET, token=TOKEN))
    try:
        yield process.port()
    finally:
        process.close()


def test_connection_that_the_session_server_hands_over_takes_its_place(tmp_path: Path) -> None:
    sent = os.urandom(5 << 20)

    def hands_over(connection: socket.socket) -> None:
        assert connection.recv(100) == b"please\n"
        with socket.create_connection(job.getsockname()) as to:
            socket.send_fds(connection, [b"started\n"], [to.fileno()])

    def serve() -> None:
        with job.accept()[0] as connection:
            answers_reversed(connection)

    with socket.create_server(("127.0.0.1", 0)) as job, relay_of_sessions(tmp_path) as port:
        thread = threading.Thread(target=serve)
        thread.start()
        with (
            engine_at(tmp_path / SOCKET, hands_over),
            socket.create_connection(("127.0.0.1", port), timeout=10) as client,
        ):
            client.sendall(f"TRAINYARD/1 {TOKEN}\nplease\n".encode())
            lines = client.makefile("rb")
            assert [lines.readline(), lines.readline()] == [b"OK\n", b"started\n"]
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            assert lines.read() == sent[::-1]
            lines.close()
        thread.join(10)


@pytest.mark.parametrize("what", ["file", "unix", "datagrams"])
def test_nothing_but_a_connection_can_be_handed_over(tmp_path: Path, what: str) -> None:
    kinds = {"unix": (socket.AF_UNIX, socket.SOCK_STREAM), "datagrams": (socket.AF_INET, socket.SOCK_DGRAM)}

    def hands_over(connection: socket.socket) -> None:
        with (tmp_path / "file").open("wb") if what == "file" else socket.socket(*kinds[what]) as handed:
            socket.send_fds(connection, [b"started\n"], [handed.fileno()])
            connection.recv(1)

    with relay_of_sessions(tmp_path) as port, engine_at(tmp_path / SOCKET, hands_over):
        assert said(port, f"TRAINYARD/1 {TOKEN}\n".encode()) == b"OK\n"


def test_relay_of_an_engine_takes_nothing_that_is_handed_over(tmp_path: Path, port: int) -> None:
    def hands_over(connection: socket.socket) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            socket.send_fds(connection, [b"hello"], [other.fileno()])
        answers_reversed(connection)

    with engine_at(tmp_path / "engine.sock", hands_over):
        assert said(port, f"TRAINYARD/1 {TOKEN}\n".encode(), b"ab") == b"OK\nhelloba"


@pytest.mark.long
def test_client_that_does_not_read_holds_up_the_engine_and_no_other(tmp_path: Path, port: int) -> None:
    sent: list[int] = []

    def streams(connection: socket.socket) -> None:
        if connection.recv(1) == b"q":
            connection.sendall(b"quick")
            return
        connection.setblocking(False)
        with suppress(OSError):
            while True:
                select.select([], [connection], [], 2)
                sent.append(connection.send(b"x" * 65536))

    greeting = f"TRAINYARD/1 {TOKEN}\n".encode()
    with engine_at(tmp_path / "engine.sock", streams):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as silent:
            silent.sendall(greeting + b"s")
            assert said(port, greeting, b"q") == b"OK\nquick"
            time.sleep(1)
            stalled = sum(sent)
            time.sleep(0.5)
            assert sum(sent) == stalled < 32 << 20
        assert said(port, greeting, b"q") == b"OK\nquick"
