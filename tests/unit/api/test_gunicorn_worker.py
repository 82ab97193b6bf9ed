"""A client that stalls in the middle of a request body or of an answer is not waited for indefinitely."""

import socket
import threading
from collections.abc import Iterator

import pytest
from gunicorn.config import Config
from gunicorn.http.parser import RequestParser

from app.server import gunicorn_worker
from app.server.gunicorn_worker import SLOWEST_BYTES_PER_SECOND, BodyDeadline, LargeReads, TimedSocket

HEAD = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Ours and theirs."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def parser_of(ours: socket.socket) -> RequestParser:
    return RequestParser(Config(), ours, ("127.0.0.1", 1))


def test_body_that_stops_counts_as_ended_and_its_connection_is_closed(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    parser = parser_of(ours)
    theirs.sendall(HEAD + b"12345")
    request = next(parser)
    BodyDeadline(parser).begin(0.05)

    assert request.body.read() == b"12345"
    assert request.should_close()
    assert ours.gettimeout() is None


def test_body_that_arrives_in_time_is_whole_and_its_connection_stays_open(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    parser = parser_of(ours)
    theirs.sendall(HEAD + b"12345")
    request = next(parser)
    BodyDeadline(parser).begin(30.0)
    theirs.sendall(b"67890")

    assert request.body.read() == b"1234567890"
    assert not request.should_close()


def test_time_of_a_body_grows_with_what_has_arrived(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    with TimedSocket.over(ours) as connection:
        parser = parser_of(connection)
        theirs.sendall(HEAD + b"12345")
        request = next(parser)
        BodyDeadline(parser).begin(0.01)
        connection.extend_body_time(30 * SLOWEST_BYTES_PER_SECOND)
        body = LargeReads(request.body.reader)
        first = body.read(3)
        late = threading.Timer(0.1, theirs.sendall, [b"67890"])
        late.start()

        assert first + body.read(100) == b"1234567890"
        assert body.read(100) == b""
        late.join()


def test_body_is_read_into_a_buffer_and_what_follows_it_is_kept(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    with TimedSocket.over(ours) as connection:
        parser = parser_of(connection)
        theirs.sendall(HEAD + b"12345")
        body = LargeReads(next(parser).body.reader)
        BodyDeadline(parser).begin(30.0)
        theirs.sendall(b"67890GET / HTTP")
        buffer = bytearray(100)

        assert [bytes(buffer[: body.readinto(memoryview(buffer)[:size])]) for size in (3, 4)] == [b"123", b"4567"]
        assert bytes(buffer[: body.readinto(buffer)]) == b"890"
        assert body.readinto(buffer) == 0
        assert connection.recv(100) == b"GET / HTTP"


def test_body_of_unknown_length_is_read_into_a_buffer(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    chunked = HEAD.replace(b"Content-Length: 10", b"Transfer-Encoding: chunked")
    theirs.sendall(chunked + b"5\r\n12345\r\n5\r\n67890\r\n0\r\n\r\n")
    body = LargeReads(next(parser_of(ours)).body.reader)
    buffer = bytearray(8)

    assert [bytes(buffer[: body.readinto(buffer)]) for _ in range(3)] == [b"12345678", b"90", b""]


def test_body_that_stops_is_not_waited_for_by_a_buffer(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    with TimedSocket.over(ours) as connection:
        parser = parser_of(connection)
        theirs.sendall(HEAD + b"12345")
        request = next(parser)
        BodyDeadline(parser).begin(0.05)
        buffer = bytearray(100)

        assert bytes(buffer[: LargeReads(request.body.reader).readinto(buffer)]) == b"12345"
        assert request.should_close()


def test_body_that_came_fast_may_not_stop_for_longer_than_any_other(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends
    with TimedSocket.over(ours) as connection:
        parser = parser_of(connection)
        theirs.sendall(HEAD + b"12345")
        request = next(parser)
        BodyDeadline(parser).begin(0.01)
        monkeypatch.setattr(gunicorn_worker, "BODY_SECONDS", 0.05)
        connection.settimeout(20.0)  # of the test: reported as an error
        connection.extend_body_time(3600 * SLOWEST_BYTES_PER_SECOND)

        assert LargeReads(request.body.reader).read(100) == b"12345"


def test_unread_body_is_not_waited_for_longer_than_gunicorn_says(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    parser = parser_of(ours)
    theirs.sendall(HEAD + b"12345")
    next(parser)
    BodyDeadline(parser).begin(30.0)

    assert parser.finish_body(deadline=0.0) is False


def test_unread_answer_breaks_the_connection(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, _theirs = ends

    with TimedSocket.over(ours, send_seconds=0.05) as connection, pytest.raises(BrokenPipeError):
        connection.sendall(b"x" * 10_000_000)


def test_answer_that_is_read_arrives(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends

    with TimedSocket.over(ours, send_seconds=0.05) as connection:
        connection.sendall(b"answer")

    assert theirs.recv(100) == b"answer"
