"""The rank's end of the channel: framing, sending without waiting, commands, and a supervisor that is gone."""

import contextlib
import math
import queue
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainyard.protocol.channel import (
    MAX_LINE_BYTES,
    Channel,
    ChannelClosed,
    LineDecoder,
    ProtocolError,
    encode,
    short_address,
)


class Server:
    """One accepted connection, spoken to by hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_address(path) as address:
            self._listener.bind(address)
        self._listener.listen()
        self._decoder = LineDecoder()
        self._ready: list[dict[str, Any]] = []

    def accept(self) -> None:
        self.client, _ = self._listener.accept()
        self.client.settimeout(5)

    def next(self) -> dict[str, Any]:
        while not self._ready:
            data = self.client.recv(65536)
            assert data, "the client hung up"
            self._ready = self._decoder.feed(data)
        return self._ready.pop(0)

    def hung_up(self) -> bool:
        return self.client.recv(1) == b""

    def close(self) -> None:
        self._listener.close()
        if hasattr(self, "client"):
            self.client.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    # Longer than the 108 bytes that an address of a Unix socket may have.
    directory = tmp_path / ("d" * 60) / ("e" * 60)
    directory.mkdir(parents=True)
    server = Server(directory / "channel")
    yield server
    server.close()


@contextlib.contextmanager
def connected(server: Server, **options: Any) -> Iterator[Channel]:
    channel = Channel(server.path, **{"rank": 1, "can_checkpoint": True, "on_command": lambda _: None, **options})
    server.accept()
    try:
        yield channel
    finally:
        channel.close()


def test_decoder_joins_what_arrives_in_pieces():
    decoder = LineDecoder()
    line = encode({"type": "progress", "step": 1})

    assert decoder.feed(line[:5]) == []
    assert decoder.feed(line[5:] + line + b"\n") == [{"type": "progress", "step": 1}] * 2


def test_decoder_handles_text_of_any_language_and_line_ends_in_texts():
    message = {"type": "error", "message": "zu groß\n\u2028 東京"}

    assert LineDecoder().feed(encode(message)) == [message]


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"no": "type"}', b'{"type": 1}', b"\xff"])
def test_decoder_refuses_what_is_no_message(line):
    with pytest.raises(ProtocolError):
        LineDecoder().feed(line + b"\n")


def test_decoder_refuses_an_endless_line():
    with pytest.raises(ProtocolError, match="longer"):
        LineDecoder().feed(b"x" * (MAX_LINE_BYTES + 1))


def test_numbers_that_json_lacks_travel_as_words():
    (message,) = LineDecoder().feed(encode({"type": "metric", "values": {"a": math.nan, "b": [math.inf, -math.inf]}}))

    assert message["values"] == {"a": "NaN", "b": ["Infinity", "-Infinity"]}


def test_first_line_introduces_the_rank(server):
    with connected(server):
        hello = server.next()

    assert (hello["type"], hello["rank"], hello["can_checkpoint"]) == ("hello", 1, True)
    assert hello["pid"] > 0


def test_messages_arrive_in_order_with_the_rank(server):
    with connected(server) as channel:
        for step in range(100):
            channel.send("metric", step=step)
        assert channel.flush()
        server.next()
        received = [server.next() for _ in range(100)]

    assert [message["step"] for message in received] == list(range(100))
    assert {message["rank"] for message in received} == {1}


def test_close_sends_what_is_queued(server):
    with connected(server) as channel:
        channel.send("done")

    assert [server.next()["type"], server.next()["type"]] == ["hello", "done"]
    assert server.hung_up()


def test_sending_does_not_wait_for_a_supervisor_that_does_not_read(server):
    sent = threading.Event()

    def send() -> None:
        for _ in range(400):
            channel.send("metric", values={"padding": "x" * 10_000})
        sent.set()

    with connected(server) as channel:
        thread = threading.Thread(target=send)
        thread.start()
        in_time = sent.wait(5)
        thread.join()
        assert not channel.flush(timeout_seconds=0.05)
        server.client.close()

    assert in_time


def test_commands_reach_the_callback(server):
    commands: queue.Queue[dict[str, Any]] = queue.Queue()
    with connected(server, on_command=commands.put):
        server.client.sendall(encode({"type": "pause", "save_checkpoint": True}) + encode({"type": "cancel"}))
        received = [commands.get(timeout=5), commands.get(timeout=5)]

    assert [command["type"] for command in received] == ["pause", "cancel"]


def test_lost_supervisor_is_noticed_once_and_ends_sending(server):
    losses: queue.Queue[str] = queue.Queue()
    with connected(server, on_closed=lambda: losses.put("closed")) as channel:
        server.client.close()
        assert losses.get(timeout=5) == "closed"
        with pytest.raises(ChannelClosed):
            channel.send("metric")
        assert channel.closed

    assert losses.empty()


def test_closing_a_channel_is_not_reported_as_a_loss(server):
    losses: queue.Queue[str] = queue.Queue()
    with connected(server, on_closed=lambda: losses.put("closed")) as channel:
        channel.close()

    assert losses.empty()


def test_supervisor_that_hangs_up_on_the_last_message_is_not_reported_as_a_loss(server):
    losses: queue.Queue[str] = queue.Queue()

    def answer() -> None:
        while server.next()["type"] != "done":
            pass
        server.client.close()

    with connected(server, on_closed=lambda: losses.put("closed")) as channel:
        thread = threading.Thread(target=answer)
        thread.start()
        channel.send("done")
        channel.close()
        thread.join()

    assert losses.empty()


def test_without_a_supervisor_connecting_fails(tmp_path):
    with pytest.raises(FileNotFoundError):
        Channel(tmp_path / "channel", rank=0, can_checkpoint=False, on_command=lambda _: None)


def test_rank_that_can_not_take_a_message_ends_instead_of_going_deaf(server, capsys):
    losses: queue.Queue[str] = queue.Queue()

    def fail(message: dict[str, Any]) -> None:
        raise KeyError(message["type"])

    with connected(server, on_command=fail, on_closed=lambda: losses.put("closed")) as channel:
        server.client.sendall(encode({"type": "pause"}))
        assert losses.get(timeout=5) == "closed"
        assert channel.closed

    assert "KeyError: 'pause'" in capsys.readouterr().err


def test_superseded_progress_is_left_out_and_the_last_is_always_sent(server):
    with connected(server) as channel:
        for step in range(1, 201):
            channel.send_newest("progress", {"step": step})
        server.next()
        steps = [server.next()["step"]]
        while steps[-1] != 200:
            steps.append(server.next()["step"])

    assert len(steps) < 10
    assert steps == sorted(steps)


def test_newest_is_released_before_what_follows(server):
    with connected(server) as channel:
        channel.send_newest("progress", {"step": 1})
        channel.send_newest("progress", {"step": 2})
        channel.release()
        channel.send_newest("progress", {"step": 3})
        channel.release()
        channel.send("done")
        server.next()
        heard = [server.next() for _ in range(3)]

    assert [message.get("step") for message in heard] == [2, 3, None]


def test_newest_is_not_sent_to_a_supervisor_that_is_gone(server):
    losses: queue.Queue[str] = queue.Queue()
    with connected(server, on_closed=lambda: losses.put("closed")) as channel:
        server.client.close()
        losses.get(timeout=5)
        with pytest.raises(ChannelClosed):
            channel.send_newest("progress", {"step": 1})
