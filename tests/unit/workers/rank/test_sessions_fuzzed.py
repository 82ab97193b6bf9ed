"""Any bytes to the session server: each connection is answered or ended, nothing stays open, and others are served."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.systems.session_sites import session_server
from tests.systems.system import wait_for
from trainyard.protocol.channel import short_address
from trainyard.protocol.interactive import CLOSE, RESIZE, SOCKET, STDIN, encode_frame

SECONDS = 20
WORDS = st.text(max_size=8) | st.integers() | st.booleans() | st.none() | st.lists(st.text(max_size=4), max_size=3)
REQUESTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["exec", "connect", "other", None])},
    optional={
        "rank": WORDS,
        "command": st.lists(st.text(max_size=4), max_size=2) | st.just(["true"]) | st.just(["cat"]),
        "tty": WORDS,
        "rows": WORDS,
        "columns": WORDS,
        "term": WORDS,
        "port": WORDS,
    },
)
LINES = st.one_of(
    st.binary(max_size=200),
    REQUESTS.map(lambda request: json.dumps(request).encode()),
    st.sampled_from(
        [b"[" * 60_000, b'{"type":' * 8000, b"9" * 5000, b'{"type":"exec","rank":' + b"9" * 5000 + b"}", b"x" * 70_000]
    ),
).map(lambda line: line.replace(b"\n", b"") + b"\n")
SIZES = st.sampled_from(
    [b"", b"[" * 60_000, b"9" * 5000, b'{"rows":1e999}', b'{"rows":-1,"columns":0}', b'{"rows":5}', b"\xff"]
)
FRAMES = st.one_of(
    st.binary(max_size=100),
    st.builds(encode_frame, st.integers(0, 255), st.binary(max_size=100)),
    SIZES.map(lambda size: encode_frame(RESIZE, size)),
    st.just(encode_frame(STDIN, b"some input\n")),
    st.just(encode_frame(CLOSE, bytes([STDIN]))),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, psutil.Process]]:
    """Of a session server, and its process."""
    place = tmp_path_factory.mktemp("sessions")
    server = session_server(place / SOCKET, place)
    try:
        yield place, psutil.Process(server.pid)
    finally:
        server.kill()
        server.wait()


@contextmanager
def connected(folder: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as connection, short_address(folder / SOCKET) as address:
        connection.settimeout(SECONDS)
        connection.connect(address)
        yield connection


def said(folder: Path, data: bytes) -> bytes:
    """All that the server says to these bytes and their end."""
    heard = b""
    with connected(folder) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                heard += piece
        except ConnectionError:
            pass
    return heard


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=LINES, frames=st.lists(FRAMES, max_size=4))
def test_whatever_comes_is_answered_or_ended(
    folder: tuple[Path, psutil.Process], line: bytes, frames: list[bytes]
) -> None:
    heard = said(folder[0], line + b"".join(frames))

    first = heard.partition(b"\n")[0]
    assert not first or json.loads(first)["type"] in ("started", "refused")


def test_nothing_of_it_stays(folder: tuple[Path, psutil.Process]) -> None:
    place, server = folder
    command = json.dumps({"type": "exec", "command": ["cat"]}).encode() + b"\n"
    terminal = json.dumps({"type": "exec", "command": ["cat"], "tty": True}).encode() + b"\n"
    said(place, command)
    wait_for(lambda: not server.children(), seconds=SECONDS, what="nothing of earlier tests runs")
    before = server.num_fds()

    for data in (
        command,
        terminal,
        command + encode_frame(9, b""),
        terminal + b"\xff" * 9,
        b"{}\n",
        b"no",
        command[:-1],
    ):
        for _ in range(5):
            said(place, data)

    wait_for(lambda: server.num_fds() <= before, seconds=SECONDS, what="nothing is open")
    wait_for(lambda: not server.children(), seconds=SECONDS, what="nothing runs")
    answer = said(place, json.dumps({"type": "exec", "command": ["no-such"]}).encode() + b"\n")
    assert b"no such command" in answer
