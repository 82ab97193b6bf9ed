"""The supervisor's end of the channel against clients that behave, and against those that don't."""

import itertools
import json
import logging
import os
import resource
import socket
import threading
from typing import Any

import pytest

from trainyard.protocol.channel import MAX_LINE_BYTES, Channel, short_address
from workers.supervisor.ranks.channel_server import MAX_COMPLAINTS, MAX_UNSENT_BYTES, ChannelServer
from workers.supervisor.ranks.event_loop import EventLoop


class Ear:
    """A server on a loop, with everything it heard."""

    def __init__(self, path):
        self.loop = EventLoop()
        self.heard: list[Any] = []
        self.server = ChannelServer(path, self.loop, lambda connection, message: self.heard.append(message))

    def listen_for(self, count, seconds=5.0):
        overdue = []
        self.loop.call_after(seconds, lambda: overdue.append(True))
        self.loop.run_until(lambda: len(self.heard) >= count or bool(overdue))
        return self.heard

    def close(self):
        self.server.close()
        self.loop.close()


@pytest.fixture
def path(tmp_path):
    # Longer than the 108 bytes of sun_path: job ids and data directories are.
    directory = tmp_path / ("x" * 100)
    directory.mkdir()
    return directory / "channel"


@pytest.fixture
def ear(path):
    ear = Ear(path)
    yield ear
    ear.close()


@pytest.fixture
def raw(ear, path):
    client = socket.socket(socket.AF_UNIX)
    with short_address(path) as address:
        client.connect(address)
    yield client
    client.close()


def test_clients_of_every_rank_are_heard(ear, path):
    channels = [Channel(path, rank=rank, can_checkpoint=True, on_command=lambda _: None) for rank in range(3)]

    heard = ear.listen_for(3)

    assert sorted(message["rank"] for message in heard) == [0, 1, 2]
    for channel in channels:
        channel.close()


def test_commands_reach_every_client(ear, path):
    heard, arrived = [], threading.Semaphore(0)

    def note(message):
        heard.append(message)
        arrived.release()

    channels = [Channel(path, rank=rank, can_checkpoint=True, on_command=note) for rank in range(2)]
    ear.listen_for(2)

    ear.server.broadcast({"type": "pause", "save_checkpoint": True})

    assert arrived.acquire(timeout=5)
    assert arrived.acquire(timeout=5)
    assert heard == [{"type": "pause", "save_checkpoint": True}] * 2
    for channel in channels:
        channel.close()


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\xff\xfe\x00garbage\n",
        b"{\n",
        b"[]\n",
        b'{"type": 5}\n',
        b"[" * 100_000 + b"\n",
        b'{"type":"progress","step":' + b"9" * 10_000 + b"}\n",
        b"\n\n\n",
    ],
)
def test_nonsense_is_skipped_and_the_next_line_is_heard(ear, raw, nonsense):
    raw.sendall(nonsense + b'{"type":"done"}\n')

    assert ear.listen_for(1) == [{"type": "done"}]


def test_endless_line_is_bounded_and_skipped(ear, raw):
    def flood():
        raw.sendall(b"x" * (3 * MAX_LINE_BYTES) + b"\n" + b'{"type":"done"}\n')

    thread = threading.Thread(target=flood)
    thread.start()

    assert ear.listen_for(1) == [{"type": "done"}]
    thread.join()


def test_flood_of_nonsense_is_not_a_flood_in_our_log(ear, raw, caplog):
    with caplog.at_level(logging.WARNING):
        raw.sendall(b"nonsense\n" * 1000 + b'{"type":"done"}\n')
        ear.listen_for(1)

    assert len(caplog.records) == MAX_COMPLAINTS


def test_line_in_pieces_is_put_together(ear, raw):
    line = json.dumps({"type": "phase", "phase": "TRAINING"}).encode() + b"\n"
    for byte in line:
        raw.sendall(bytes([byte]))

    assert ear.listen_for(1) == [{"type": "phase", "phase": "TRAINING"}]


def test_client_that_never_reads_does_not_block(ear, raw):
    raw.sendall(b'{"type":"hello"}\n')
    ear.listen_for(1)

    for _ in range(100):
        ear.server.broadcast({"type": "pause", "padding": "x" * 100_000})

    raw.sendall(b'{"type":"done"}\n')
    assert ear.listen_for(2)[-1] == {"type": "done"}


def test_client_that_hangs_up_is_forgotten(ear, raw):
    raw.sendall(b'{"type":"hello"}\n')
    ear.listen_for(1)

    raw.close()
    ear.loop.call_after(0.05, lambda: ear.heard.append("time is up"))
    ear.listen_for(2)

    assert ear.server.connections == []


def test_many_connections_cannot_bypass_the_limit_of_our_log(ear, path, caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(10):
            with socket.socket(socket.AF_UNIX) as client, short_address(path) as address:
                client.connect(address)
                client.sendall(b"nonsense\n" * 10 + b'{"type":"done"}\n')
        ear.listen_for(10)

    assert len(caplog.records) == MAX_COMPLAINTS


def test_full_channel_serves_those_it_has_and_the_next_when_one_leaves(path):
    loop, heard = EventLoop(), []
    server = ChannelServer(path, loop, lambda connection, message: heard.append(message["n"]), max_connections=2)
    clients = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    for n, client in enumerate(clients):
        with short_address(path) as address:
            client.connect(address)
        client.sendall(b'{"type":"hello","n":%d}\n' % n)
    rounds = []
    loop.call_after(0.3, lambda: rounds.append("late"))

    loop.run_until(lambda: bool(rounds))
    assert heard == [0, 1]

    clients[0].close()
    loop.call_after(5.0, lambda: rounds.append("overdue"))
    loop.run_until(lambda: len(heard) == 3 or len(rounds) > 1)
    assert heard == [0, 1, 2]

    for client in clients:
        client.close()
    server.close()
    loop.close()


def test_lack_of_file_descriptors_does_not_keep_the_loop_busy(ear, path):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX) as client, short_address(path) as address:
        client.connect(address)
        free = os.dup(0)
        os.close(free)
        rounds, late = itertools.count(), []
        ear.loop.call_after(0.5, lambda: late.append(True))
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
        try:
            ear.loop.run_until(lambda: next(rounds) > 1000 or bool(late))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert next(rounds) < 10

        client.sendall(b'{"type":"hello"}\n')
        assert ear.listen_for(1) == [{"type": "hello"}]


def test_large_messages_reach_a_slow_client_whole(ear, raw):
    ear.listen_for(1, seconds=0.2)
    (connection,) = ear.server.connections
    sent = [{"type": "model_answered", "number": number, "body": "x" * 700_000} for number in range(4)]
    for message in sent:
        connection.send(message)
    assert connection.unsent_bytes > 1_000_000

    received = bytearray()

    def read():
        while received.count(b"\n") < 4:
            received.extend(raw.recv(65536))

    reader = threading.Thread(target=read)
    reader.start()
    overdue = []
    ear.loop.call_after(10.0, lambda: overdue.append(True))
    ear.loop.run_until(lambda: connection.unsent_bytes == 0 or bool(overdue))
    reader.join(5)

    assert [json.loads(line) for line in received.splitlines()] == sent


def test_client_that_never_reads_loses_what_is_beyond_the_buffer(ear, raw):
    ear.listen_for(1, seconds=0.2)
    (connection,) = ear.server.connections

    for _ in range(20):
        connection.send({"type": "model_answered", "body": "x" * 700_000})

    assert connection.unsent_bytes <= MAX_UNSENT_BYTES
