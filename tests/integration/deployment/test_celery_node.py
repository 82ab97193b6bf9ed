"""The node worker as a process: takes up attempts by message or by looking, and hears control commands."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.domain.lifecycle.states import JobState
from app.domain.units import WHOLE
from app.models import Attempt, Job, Node
from config.queues import NODE
from tests.builders.factories import make_attempt, make_job
from tests.systems.celery_processes import CeleryWorld
from tests.systems.servers import free_port
from tests.systems.system import wait_for

NAME = "box"
MakeWorld = Callable[..., CeleryWorld]


@pytest.fixture
def make_world(tmp_path: Path, sqlite_url: str) -> Iterator[MakeWorld]:
    worlds: list[CeleryWorld] = []

    def make(broker_url: str, *, rarely_polling: bool = False) -> CeleryWorld:
        world = CeleryWorld(
            tmp_path,
            database_url=sqlite_url,
            broker_url=broker_url,
            TRAINYARD_NODE_NAME=NAME,
            TRAINYARD_NODE_SANDBOX="process",
        )
        worlds.append(world)
        world.start_rarely_polling(NODE) if rarely_polling else world.start(NODE)
        wait_for(lambda: node(world), seconds=15, what="the node registers")
        return world

    yield make
    for world in worlds:
        world.close()


def node(world: CeleryWorld) -> Node | None:
    with world.db.read() as session:
        return session.get(Node, NAME)


def dispatch(world: CeleryWorld, *, share: int = WHOLE) -> str:
    """A job that is placed on the node. Its data does not exist, so the attempt ends soon."""
    with world.db.write() as session:
        job = make_job(session)
        make_attempt(session, job, session.get_one(Node, NAME), share=share, claimed=False)
        return job.id


def started_attempt(world: CeleryWorld, job_id: str) -> bool:
    with world.db.read() as session:
        return session.get_one(Attempt, (job_id, 1)).started_at is not None


def wait_until_over(world: CeleryWorld, job_id: str) -> Job:
    wait_for(lambda: world.is_in(job_id, JobState.FAILED), seconds=20, what="the attempt is over")
    return world.job(job_id)


@pytest.mark.long
def test_message_starts_an_attempt_and_its_repetition_nothing(make_world: MakeWorld, redis_url: str) -> None:
    world = make_world(redis_url, rarely_polling=True)
    wait_for(lambda: world.celery.control.ping(timeout=0.5, limit=1), seconds=15, what="the node answers")
    job_id = dispatch(world)

    for _ in range(3):
        world.dispatcher.ring_run([(job_id, 1)], NAME, "cpu", 5)

    wait_for(lambda: started_attempt(world, job_id), seconds=5, what="started")
    job = wait_until_over(world, job_id)
    assert (job.error_type, job.attempt) == ("MODEL_NOT_FOUND", 1)


@pytest.mark.long
def test_one_message_starts_all_that_it_names_but_what_was_cancelled(make_world: MakeWorld, redis_url: str) -> None:
    world = make_world(redis_url, rarely_polling=True)
    wait_for(lambda: world.celery.control.ping(timeout=0.5, limit=1), seconds=15, what="the node answers")
    first, cancelled, last = (dispatch(world, share=25) for _ in range(3))
    with world.db.write() as session:
        session.get_one(Job, cancelled).requested = "cancel"

    world.dispatcher.ring_run([(first, 1), (cancelled, 1), ("job-gone", 1), (last, 1)], NAME, "cpu", 5)

    for job_id in (first, last):
        assert wait_until_over(world, job_id).error_type == "MODEL_NOT_FOUND"
    assert world.is_in(cancelled, JobState.CANCELLED)


@pytest.mark.long
def test_without_a_broker_the_node_polls_the_database(make_world: MakeWorld) -> None:
    world = make_world(f"redis://127.0.0.1:{free_port()}/0")

    job_id = dispatch(world)

    assert wait_until_over(world, job_id).error_type == "MODEL_NOT_FOUND"


@pytest.mark.long
def test_node_listens_to_its_own_queue_alone_and_to_commands(make_world: MakeWorld, redis_url: str) -> None:
    world = make_world(redis_url)
    control = world.celery.control
    wait_for(lambda: control.ping(timeout=0.5, limit=1), seconds=15, what="the node answers")

    queues = control.inspect(timeout=1).active_queues()
    assert {name: [queue["name"] for queue in of] for name, of in queues.items()} == {"node@box": ["cpu.box"]}
    assert control.broadcast("nudge", arguments={"job_id": "job-1"}, reply=True, destination=["node@box"]) == [
        {"node@box": {"ok": "job-1"}}
    ]

    waiting = world.submit()
    control.revoke(waiting)
    wait_for(lambda: world.is_in(waiting, JobState.CANCELLED), seconds=5, what="cancelled without a coordinator")
