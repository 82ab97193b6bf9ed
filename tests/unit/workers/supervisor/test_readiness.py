"""When a job counts as ready, and how its port is asked through a relay and a session server."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.domain.spec.interactive import ReadinessProbe
from workers.supervisor.interactive.port_probe import Final, Way, ask, connect
from workers.supervisor.interactive.readiness import Readiness, watch_readiness
from workers.supervisor.recording.report_writer import Note
from workers.supervisor.serving.probe import NoAnswer

TOKEN = "a" * 64
STARTED = b'{"type": "started"}\n'


def taken(readiness: Readiness, *answers: str | None) -> list[str]:
    notes = [readiness.take(answer) for answer in answers]
    return [note.kind.value for note in notes if note is not None]


def test_changes_alone_are_events():
    readiness = Readiness(ReadinessProbe(port=80, failure_threshold=2))

    assert taken(readiness, "no", None, None, "no", None, "no", "no", "no", None) == [
        "job.ready",
        "job.not_ready",
        "job.ready",
    ]


def test_so_many_successes_in_a_row_make_it_ready():
    readiness = Readiness(ReadinessProbe(port=80, success_threshold=3, failure_threshold=9))

    assert taken(readiness, None, None, "no", None, None) == []
    assert taken(readiness, None) == ["job.ready"]


def test_job_that_never_answers_is_not_ready():
    readiness = Readiness(ReadinessProbe(port=80, failure_threshold=1))

    assert taken(readiness, "no", "no") == ["job.not_ready"]
    assert readiness.ready is False


def test_watch_ends_when_it_is_closed():
    closed, asked = threading.Event(), []
    notes: list[Note] = []

    def answer(probe: ReadinessProbe) -> None:
        asked.append(probe)
        if len(asked) == 2:
            closed.set()

    probe = ReadinessProbe(port=80, period_seconds=0)
    watch_readiness(probe, answer, add=notes.append, closed=closed)

    assert asked == [probe, probe]
    assert [note.columns for note in notes] == [{"ready": True}]


def test_an_answer_that_nobody_foresaw_is_a_failure_and_the_watch_goes_on():
    closed = threading.Event()
    notes: list[Note] = []

    def answer(_: ReadinessProbe) -> None:
        if len(notes) == 1:
            closed.set()
        raise RecursionError

    watch_readiness(
        ReadinessProbe(port=80, period_seconds=0, failure_threshold=2), answer, add=notes.append, closed=closed
    )

    assert [(note.message, note.columns) for note in notes] == [
        ("not ready: its answer cannot be read", {"ready": False})
    ]


@contextmanager
def answering(*pieces: bytes) -> Iterator[tuple[Way, list[bytes]]]:
    """A relay that answers so after each line that it gets; and what it got."""
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as lines:
                for piece in pieces:
                    got.append(lines.readline())
                    connection.sendall(piece)
                while (line := lines.readline()).strip():
                    got.append(line)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Way(address="127.0.0.1", port=server.getsockname()[1], token=TOKEN), got
        thread.join(10)


@pytest.mark.parametrize("status", ["200 OK", "204", "302 Found", "399 Odd"])
def test_path_that_is_answered_is_a_success(status):
    with answering(b"OK\n", STARTED, f"HTTP/1.1 {status}\r\n\r\n".encode()) as (way, got):
        ask(way, ReadinessProbe(port=8080, path="/a b\r\nX: y?c=d"))

    assert got[0] == f"TRAINYARD/1 {TOKEN}\n".encode()
    assert json.loads(got[1]) == {"type": "connect", "port": 8080}
    assert got[2] == b"GET /a%20b%0D%0AX:%20y?c=d HTTP/1.1\r\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [("HTTP/1.1 404 Not Found", "answered with 404"), ("HTTP/1.0 500 x", "answered with 500"), ("SSH-2.0", "in HTTP")],
)
def test_other_answers_are_failures(line, said):
    with answering(b"OK\n", STARTED, f"{line}\r\n\r\n".encode()) as (way, _), pytest.raises(NoAnswer, match=said):
        ask(way, ReadinessProbe(port=8080, path="/"))


def test_port_without_a_path_only_has_to_listen():
    with answering(b"OK\n", STARTED) as (way, _):
        ask(way, ReadinessProbe(port=8080))


@pytest.mark.parametrize(("final", "kind"), [(True, Final), (False, NoAnswer)])
def test_refusal_of_the_session_server_is_the_reason(final, kind):
    refused = json.dumps({"type": "refused", "message": "nothing listens on port 8080", "final": final}).encode()
    with answering(b"OK\n", refused + b"\n") as (way, _), pytest.raises(kind, match="nothing listens") as caught:
        connect(way, 8080, seconds=5)

    assert type(caught.value) is kind


def test_relay_that_is_gone_is_a_failure():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    with pytest.raises(NoAnswer, match="Connection refused"):
        connect(Way(address="127.0.0.1", port=port, token=TOKEN), 8080, seconds=1)
