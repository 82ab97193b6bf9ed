"""A port that does not answer, and a client that waits for it."""

import contextlib
import json
import socket
import threading
import time

import pytest

from workers.rank.sessions import server
from workers.rank.sessions.loop import EpollLoop
from workers.rank.sessions.server import CommandEnvironment, SessionServer

SOON = 4.0  # less than it takes to give up the port


@pytest.fixture
def place(tmp_path):
    """Where a session server listens that takes one connection at a time."""
    loop = EpollLoop()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    SessionServer(loop, listener, CommandEnvironment(environments={0: {}}, directory="/"))
    thread = threading.Thread(target=loop.run)
    thread.start()
    yield str(tmp_path / "s")
    loop.call_after(0.3, lambda: setattr(loop, "stopped", True))  # once the connection that wakes it is closed
    with socket.socket(socket.AF_UNIX) as waking:
        waking.connect(str(tmp_path / "s"))
    thread.join(10)
    listener.close()


@pytest.fixture
def full_port():
    """Its listener has a full queue: the kernel answers no more."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        waiting = []
        while True:
            connection = socket.socket()
            connection.settimeout(0.2)
            waiting.append(connection)
            try:
                connection.connect(listener.getsockname())
            except TimeoutError:
                break
        yield listener.getsockname()[1]
        for each in waiting:
            each.close()


def asking(place, port):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(SOON)
    connection.connect(place)
    with contextlib.suppress(BrokenPipeError):  # it may have been refused already
        connection.sendall(json.dumps({"type": "connect", "port": port}).encode() + b"\n")
    return connection


def test_who_hangs_up_frees_their_place_at_once(place, full_port, monkeypatch):
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 1)
    first = asking(place, full_port)
    with asking(place, 1) as second:
        assert "more than 1 connections are open" in json.loads(second.recv(1000))["message"]
    first.close()

    until, said = time.monotonic() + SOON, ""
    while said != "nothing listens on port 1":
        assert time.monotonic() < until, said
        with asking(place, 1) as third:
            said = json.loads(third.recv(1000))["message"]
