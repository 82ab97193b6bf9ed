"""W&B's own client and a double of its server: where a run is continued, how it ends, and what the client may keep."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.wandb import FakeWandb, login, running_wandb
from workers.tracking.failures import NotDelivered

pytestmark = pytest.mark.long  # the client starts a program of its own

KEY = "k" * 40
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
def wandb() -> Any:
    """Imported when a test runs, since collections leave it out."""
    return pytest.importorskip("wandb", reason="the extra wandb is not installed")


@pytest.fixture
def make_run(
    server: FakeWandb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wandb: Any
) -> Iterator[Callable[..., Any]]:
    from workers.tracking.wandb_run import LiveWandbRun, WandbFacts  # noqa: PLC0415 – where the client is installed

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")

    def make(*, url: str = server.url, seconds: float = 10.0, **more: Any) -> Any:
        return LiveWandbRun(url, KEY, seconds, WandbFacts(**FACTS), **more)

    yield make
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
    assert run.act(points(1, 3)) == 0
    assert run.act(points(4, 6)) == 3

    assert numbers(server)[:3] == [1, 2, 3]

    assert run.act({"outcome": "completed", "seq": 6}) == 6
    assert numbers(server) == [1, 2, 3, 4, 5, 6]


def test_points_that_the_server_refused_are_not_delivered(server: FakeWandb, make_run: Callable[..., Any]) -> None:
    run = make_run()
    run.open()
    server.forgets = True
    run.act(points(1, 3))

    with pytest.raises(NotDelivered, match="does not have all points"):
        run.act({"outcome": "completed", "seq": 3})


def test_points_that_the_server_shows_a_moment_later_are_delivered(
    server: FakeWandb, make_run: Callable[..., Any]
) -> None:
    run = make_run()
    run.open()
    run.act(points(1, 3))
    server.late = 2

    assert run.act({"outcome": "completed", "seq": 3}) == 3
    assert server.late == 0


def test_login_that_the_server_repeats_is_in_no_message(server: FakeWandb, make_run: Callable[..., Any]) -> None:
    server.key = "another"

    with pytest.raises(NotDelivered, match="returned error 401") as raised:
        make_run().open()

    assert raised.value.refused
    assert "Authorization: Basic ***" in raised.value.message
    assert login(KEY)[:16] not in raised.value.message


def test_address_that_the_client_does_not_take_is_a_refusal(make_run: Callable[..., Any]) -> None:
    with pytest.raises(NotDelivered, match="is not a valid server address") as raised:
        make_run(url="https://wandb.ai").open()

    assert raised.value.refused


def test_secret_that_a_cut_goes_through_is_in_no_message(
    make_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, wandb: Any
) -> None:
    def fail(**_: Any) -> None:
        raise wandb.Error("x" * 290 + login(KEY))

    monkeypatch.setattr(wandb, "init", fail)

    with pytest.raises(NotDelivered, match="W&B's client: xxx") as raised:
        make_run().open()

    assert login(KEY)[:8] not in raised.value.message


def test_run_that_was_deleted_is_a_refusal(server: FakeWandb, make_run: Callable[..., Any]) -> None:
    server.deleted = True

    with pytest.raises(NotDelivered, match="HTTP 409: the run was previously created and deleted") as raised:
        make_run(seconds=2.0).open()

    assert raised.value.refused
