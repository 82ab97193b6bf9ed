"""A job as a run of Trackio: its points once each, its configuration, and how far it has got."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.doubles.trackio import FakeTrackio, running_trackio
from tests.unit.workers.tracking.test_run_facts import SETTINGS, work
from workers.tracking.__main__ import LimitedRun
from workers.tracking.failures import NotDelivered
from workers.tracking.run_facts import service_request

TOKEN = "w0rd-of-the-server"
JOB = "job-1"


@pytest.fixture
def server() -> Iterator[FakeTrackio]:
    with running_trackio() as server:
        server.token = TOKEN
        yield server


def opened(server: FakeTrackio, *, token: str = TOKEN) -> LimitedRun:
    tracker = {"kind": "trackio", "url": "https://t.example", "experiment": "support", "token": token}
    first = service_request(
        SETTINGS, work(("tracking", [tracker]), ("labels", {"team": "a"}), ("data_config.batch_size", 2)), 0
    )
    first["service"] |= {"url": f"{server.url}/", "allow": ["127.0.0.1"]}
    return LimitedRun(first)


def sent(run: LimitedRun, *points: tuple[str, int, Any, int], attempt: int = 2) -> int:
    rows = [[name, step, 0, value, seq] for name, step, value, seq in points]
    return run.act({"points": rows, "seq": points[-1][3], "attempt": attempt})


def test_run_is_continued_by_the_next_process_with_its_points_once_each(server: FakeTrackio) -> None:
    first = opened(server)
    assert first.open() == 0
    sent(first, ("loss", 1, 2.0, 1), ("lr", 1, 0.1, 2), ("loss", 2, "NaN", 3))

    second = opened(server)
    assert second.open() == 3
    sent(second, ("loss", 2, "NaN", 3), ("loss", 3, 1.0, 4), attempt=3)  # one whose answer was lost
    second.act({"state": "COMPLETED", "at_ms": 5, "seq": 4})

    run = server.runs[JOB]
    assert (run.project, run.name) == ("support", "support")
    assert list(run.logs.values()) == [
        {"step": 1, "loss": 2.0, "lr": 0.1},
        {"step": 2, "loss": "NaN"},
        {"step": 3, "loss": 1.0},
        {"step": 3},  # of the state
    ]
    reached = {"trainyard_seq": 4, "trainyard_state": "COMPLETED", "trainyard_attempt": 2}
    assert reached.items() <= run.config.items()
    assert (run.config["batch_size"], run.config["label.team"]) == (2, "a")
    assert TOKEN not in str(run)


def test_run_without_points_is_none(server: FakeTrackio) -> None:
    run = opened(server)
    run.open()
    run.act({"state": "FAILED", "at_ms": 1, "seq": 0})

    assert server.runs == {}


def test_refused_token_is_not_shown(server: FakeTrackio) -> None:
    run = opened(server, token="another-w0rd")
    run.open()

    with pytest.raises(NotDelivered, match="A write_token is required") as caught:
        sent(run, ("loss", 1, 2.0, 1))

    assert caught.value.refused
    assert "another-w0rd" not in caught.value.message


def test_server_that_is_away_is_no_refusal(server: FakeTrackio) -> None:
    server.broken = True

    with pytest.raises(NotDelivered, match="writes are paused") as caught:
        opened(server).open()

    assert not caught.value.refused


def test_interface_of_another_version_is_refused(server: FakeTrackio) -> None:
    server.version = 2

    with pytest.raises(NotDelivered, match="no interface of version 1") as caught:
        opened(server).open()

    assert caught.value.refused
