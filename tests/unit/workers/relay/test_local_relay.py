"""The relay's Unix socket for gateways of its machine: the token counts there, too, and ends are passed on."""

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.systems.relayed_engines import TOKEN, engine_at, said
from workers.relay import relay
from workers.supervisor.serving.relay_process import RelayPlace, RelayProcess

pytestmark = pytest.mark.skipif(
    int(Path("/proc/sys/net/core/wmem_max").read_text()) < relay.LOCAL_BYTES // 2,
    reason="the kernel's buffers are too small: relays listen by TCP alone",
)


@contextmanager
def local_relay(folder: Path) -> Iterator[Path]:
    """Where a relay of the engine in this folder listens, too."""
    process, local = RelayProcess(), folder / "relay.sock"
    process.start(RelayPlace(address="127.0.0.1", socket=folder / "engine.sock", token=TOKEN, local=local))
    process.port()
    try:
        yield local
    finally:
        process.close()


def connected(local: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect(str(local))
    return client


def test_clients_of_the_unix_socket_need_the_token_as_well(tmp_path: Path) -> None:
    with engine_at(tmp_path / "engine.sock"), local_relay(tmp_path) as local:
        with connected(local) as stranger:
            stranger.sendall(f"TRAINYARD/1 {'b' * 64}\n".encode())
            assert stranger.recv(100) == b"NO the token is not that of this attempt\n"
        with connected(local) as client:
            client.sendall(f"TRAINYARD/1 {TOKEN}\nabc".encode())
            client.shutdown(socket.SHUT_WR)
            assert client.recv(3) == b"OK\n"
            assert client.recv(100) == b"cba"


def test_unix_socket_is_for_its_owner_and_replaces_that_of_an_earlier_relay(tmp_path: Path) -> None:
    for _ in range(2):
        with local_relay(tmp_path) as local, connected(local) as client:
            assert local.stat().st_mode & 0o077 == 0
            client.sendall(b"x\n")
            assert client.recv(100) == f"NO {relay.NO_GREETING}\n".encode()


def test_a_relay_that_can_not_listen_at_a_path_listens_by_tcp(tmp_path: Path) -> None:
    process, place = RelayProcess(), tmp_path / "missing" / "relay.sock"
    process.start(RelayPlace(address="127.0.0.1", socket=tmp_path / "engine.sock", token=TOKEN, local=place))
    assert said(process.port(), b"x\n").startswith(b"NO")
    process.close()


@pytest.mark.parametrize("count", [3, 1 << 20])
def test_what_a_client_of_the_unix_socket_said_last_arrives(tmp_path: Path, count: int) -> None:
    got, ended = bytearray(), threading.Event()

    def reads(connection: socket.socket) -> None:
        while piece := connection.recv(1 << 16):
            got.extend(piece)
        ended.set()

    with engine_at(tmp_path / "engine.sock", reads), local_relay(tmp_path) as local:
        with connected(local) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
            client.sendall(f"TRAINYARD/1 {TOKEN}\n".encode())
            assert client.recv(3) == b"OK\n"
            client.sendall(b"x" * count)
        assert ended.wait(10)

    # No more than the engine takes at once is waited for: its own buffer has room for a part of a mebibyte.
    assert len(got) == count if count == 3 else len(got) > 100_000


def test_engine_that_reads_nothing_is_left_at_once_by_a_client_of_the_unix_socket(tmp_path: Path) -> None:
    left = threading.Event()

    def deaf(connection: socket.socket) -> None:
        waits = select.poll()
        waits.register(connection, select.POLLHUP)
        if waits.poll(10_000):
            left.set()

    with engine_at(tmp_path / "engine.sock", deaf), local_relay(tmp_path) as local:
        with connected(local) as client:
            client.sendall(f"TRAINYARD/1 {TOKEN}\n".encode())
            assert client.recv(3) == b"OK\n"
            client.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    client.send(b"x" * 65536)
        assert left.wait(10)
