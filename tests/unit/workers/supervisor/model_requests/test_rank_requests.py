"""Ranks that ask models over real connections: one that never reads is hung up on, and holds up no other."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config.watchdog import WatchSettings
from tests.systems.system import wait_for
from trainyard.protocol import message_parser
from trainyard.protocol.channel import Message, encode, short_address
from trainyard.protocol.messages import AskModel, fields_of
from workers.supervisor.model_requests.forwarding import MOST_AT_ONCE, MOST_WAITING, ModelRequests
from workers.supervisor.model_requests.rank_requests import MOST_UNREAD_BYTES, RankRequests
from workers.supervisor.ranks.channel_server import ChannelConnection, ChannelServer
from workers.supervisor.ranks.event_loop import EventLoop
from workers.supervisor.ranks.progress_watchdog import ProgressWatchdog

SETTINGS = WatchSettings(step_seconds=60.0, step_factor=10.0, first_step_seconds=1800.0, section_seconds=14_400.0)
PATH = "/v1/chat/completions"


class Gateway:
    """Answers with ``answer``, once ``may_answer`` is set."""

    def __init__(self) -> None:
        self.answer = "{}"
        self.may_answer = threading.Event()

    def post(self, path: str, body: str) -> tuple[int, str]:
        self.may_answer.wait(30)
        return 200, self.answer

    def close(self) -> None:
        self.may_answer.set()


class Site:
    """A supervisor's loop with what answers ranks."""

    def __init__(self, path: Path) -> None:
        self.path, self.gateway, self.loop = path, Gateway(), EventLoop()
        self.requests = ModelRequests({"judge"}, lambda: self.gateway)
        watchdog = ProgressWatchdog(SETTINGS, custom=False)
        self.asking = RankRequests(self.loop, watchdog, self.requests)
        self.server = ChannelServer(path, self.loop, self._receive)
        self.received = 0

    def _receive(self, connection: ChannelConnection, message: Message) -> None:
        report = message_parser.parse(message)
        assert isinstance(report, AskModel)
        self.received += 1
        self.asking.ask(connection, report)

    def client(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        with short_address(self.path) as address:
            client.connect(address)
        client.settimeout(30)
        return client

    def run_until(self, done: Callable[[], bool], what: str) -> None:
        overdue = time.monotonic() + 30
        self.loop.call_after(30, lambda: None)
        self.loop.run_until(lambda: done() or time.monotonic() > overdue)
        assert done(), what

    def close(self) -> None:
        self.asking.close()
        self.server.close()
        self.loop.close()
        wait_for(lambda: not any(t.name == "model-requests" for t in threading.enumerate()), seconds=10, what="the end")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path / "channel")
    yield made
    made.close()


def line(number: int) -> bytes:
    asked = AskModel(number=number, path=PATH, body='{"model": "judge"}')
    return encode({"type": asked.type, "rank": 0, **fields_of(asked)})


def test_a_flood_of_questions_whose_answers_are_not_read_is_hung_up_on(site: Site) -> None:
    flooding, ended = site.client(), threading.Event()

    def flood() -> None:
        block = b"".join(map(line, range(1000)))
        try:
            for _ in range(1000):
                flooding.sendall(block)
        except OSError:
            ended.set()
            site.loop.wake()

    thread = threading.Thread(target=flood)
    thread.start()
    site.run_until(lambda: ended.is_set() and not site.server.connections, "the flood does not end")
    thread.join()
    flooding.close()

    assert site.received > MOST_WAITING
    assert len(site.loop._timers) <= 1, "only that of this test"
    reading = site.client()
    reading.sendall(line(7))
    site.run_until(lambda: bool(site.server.connections and site.server.connections[0].unsent_bytes == 0), "a reader")
    reading.close()


@pytest.mark.long
def test_answers_wait_for_a_rank_that_reads_late(site: Site) -> None:
    site.gateway.answer = json.dumps("a" * MOST_UNREAD_BYTES)
    site.gateway.may_answer.set()
    late, count = site.client(), MOST_AT_ONCE + 8
    late.sendall(b"".join(map(line, range(count))))
    site.run_until(lambda: site.received == count and bool(site.loop._timers[1:]), "answers wait")

    read, is_read = bytearray(), threading.Event()

    def reads() -> None:
        while read.count(b"\n") < count:
            read.extend(late.recv(1 << 20))
        is_read.set()
        site.loop.wake()

    thread = threading.Thread(target=reads)
    thread.start()
    site.run_until(is_read.is_set, "all are read")
    thread.join()
    late.close()

    assert sorted(json.loads(each)["number"] for each in read.splitlines()) == [*range(count)]
