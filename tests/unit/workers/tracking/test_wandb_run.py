"""W&B's own client and a double of its server: where a run is continued, how it ends, and what the client may keep."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.wandb import FakeWandb, running_wandb
from workers.tracking.failures import NotDelivered

wandb = pytest.importorskip("wandb", reason="the extra wandb is not installed")

pytestmark = pytest.mark.long  # the client starts a program of its own

FACTS: dict[str, Any] = {
    "job_id": "job-1",
    "name": "support",
    "project": "p",
    "entity": "",
    "config": {"learning_rate": 2e-4},
    "tags": ["team=a"],
    "group": "sweep-1",
    "job_type": "SFT",
}


@pytest.fixture
def server() -> Iterator[FakeWandb]:
    with running_wandb() as server:
        yield server


@pytest.fixture
def make_run(server: FakeWandb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    from workers.tracking.wandb_run import WandbFacts, WandbRun  # noqa: PLC0415 – where the client is installed

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    yield lambda **more: WandbRun(server.url, "k" * 40, 10.0, WandbFacts(**FACTS), **more)
    wandb.teardown()


def points(first: int, last: int) -> dict[str, Any]:
    numbers = range(first, last + 1)
    return {"points": [["loss", each, 1000 * each, 1 / each, each] for each in numbers], "seq": last, "attempt": 1}


def numbers(server: FakeWandb) -> list[int]:
    return [row["_step"] for row in server.runs["job-1"].history]


def test_run_is_continued_after_the_last_point_that_the_server_has(
    server: FakeWandb, make_run: Callable[..., Any]
) -> None:
    first = make_run()
    assert first.open() == 0
    first.act(points(1, 5))
    first.act({"outcome": "paused", "seq": 5})
    server.runs["job-1"].history[3:] = []  # as if these had not arrived
    server.runs["job-1"].summary["_step"] = 3

    second = make_run()
    assert second.open() == 3
    second.act(points(4, 6))
    second.act({"outcome": "completed", "seq": 6})

    run = server.runs["job-1"]
    assert numbers(server) == [1, 2, 3, 4, 5, 6]
    assert (run.ends, run.marked) == ([1, 0], 1)
    assert run.config["learning_rate"]["value"] == 2e-4
    assert (run.described["jobType"], run.described["tags"]) == ("SFT", ["team=a"])


def test_state_that_the_outcome_did_not_foresee_is_written(server: FakeWandb, make_run: Callable[..., Any]) -> None:
    run = make_run()
    run.open()
    run.act(points(1, 1))
    run.act({"outcome": "completed", "seq": 1})
    run.act({"state": "COMPLETED", "at_ms": 1, "seq": 1})
    assert server.runs["job-1"].ends == [0]

    run.act({"state": "FAILED", "at_ms": 1, "seq": 1})

    assert server.runs["job-1"].ends == [0, 1]
    assert numbers(server) == [1]


def test_run_that_late_points_have_opened_again_is_ended(server: FakeWandb, make_run: Callable[..., Any]) -> None:
    run = make_run()
    run.open()
    run.act(points(1, 2))
    run.act({"outcome": "paused", "seq": 2})
    run.act(points(3, 3))

    run.act({"state": "PAUSED", "at_ms": 1, "seq": 3})

    assert numbers(server) == [1, 2, 3]
    assert (server.runs["job-1"].ends, server.runs["job-1"].marked) == ([1, 1], 2)


def test_client_keeps_no_more_than_a_bounded_number_of_points(server: FakeWandb, make_run: Callable[..., Any]) -> None:
    run = make_run(most_unconfirmed=4)
    run.open()
    run.act(points(1, 3))
    run.act(points(4, 6))

    assert numbers(server)[:3] == [1, 2, 3]

    run.act({"outcome": "completed", "seq": 6})
    assert numbers(server) == [1, 2, 3, 4, 5, 6]


def test_points_that_the_server_refused_are_not_delivered(server: FakeWandb, make_run: Callable[..., Any]) -> None:
    run = make_run()
    run.open()
    server.forgets = True
    run.act(points(1, 3))

    with pytest.raises(NotDelivered, match="does not have all points"):
        run.act({"outcome": "completed", "seq": 3})
