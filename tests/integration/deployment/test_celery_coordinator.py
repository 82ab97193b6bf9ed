"""The coordinator as a process: woken by messages, working without them, and only one of many planning."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from celery.exceptions import TaskRevokedError
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import JobState
from app.models import Job, Node
from app.services.nodes import quarantine
from app.services.operations.bootstrap import prepare
from tasks.celery_app import SHUTDOWN_SECONDS
from tests.builders.factories import make_attempt, make_job, make_node
from tests.systems.celery_processes import CeleryWorld, is_over
from tests.systems.servers import RedisServer, free_port
from tests.systems.system import wait_for

MakeWorld = Callable[..., CeleryWorld]


@pytest.fixture
def make_world(tmp_path: Path, sqlite_url: str) -> Iterator[MakeWorld]:
    worlds: list[CeleryWorld] = []

    def make(broker_url: str, *, database_url: str = sqlite_url, **variables: str) -> CeleryWorld:
        worlds.append(CeleryWorld(tmp_path, database_url=database_url, broker_url=broker_url, **variables))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server that the test may kill."""
    server = RedisServer()
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def broker(owned_pids: set[int]) -> Iterator[RedisServer]:
    """Of the coordinator that tests share."""
    server = RedisServer()
    server.start()
    owned_pids.add(server.pid)
    yield server
    server.close()


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Path, broker: RedisServer, owned_pids: set[int]
) -> Iterator[CeleryWorld]:
    """One for tests that leave no node that takes jobs; jobs of earlier ones may wait there."""
    folder = tmp_path_factory.mktemp("running")
    shutil.copyfile(migrated_sqlite, folder / "trainyard.db")
    with closing(CeleryWorld(folder, database_url=f"sqlite:///{folder}/trainyard.db", broker_url=broker.url)) as world:
        owned_pids.add(world.start().pid)
        wait_for(lambda: world.celery.control.ping(timeout=0.5, limit=1), seconds=15, what="the coordinator answers")
        yield world


def answers(world: CeleryWorld) -> bool:
    try:
        return bool(world.celery.control.ping(timeout=0.5, limit=1))
    except (OSError, RedisError, OperationalError):  # the test's own connection broke with the broker
        return False


@pytest.mark.long
def test_message_wakes_the_planner_and_it_sends_the_next_one(
    make_world: MakeWorld, redis_url: str, redis_server: RedisServer
) -> None:
    world = make_world(redis_url)
    world.add_node("local")
    world.start_rarely_polling()
    wait_for(lambda: world.celery.control.ping(timeout=0.5, limit=1), seconds=15, what="the coordinator answers")
    job_id = world.submit(priority=10)

    world.dispatcher.ring_admit(job_id, "default", 10)

    wait_for(lambda: world.is_in(job_id, JobState.SCHEDULING), seconds=5, what="dispatched")
    with redis_server.client() as client:
        assert wait_for(lambda: client.llen("cpu.local"), seconds=5, what="the wake-up of the node") == 1


def test_results_of_jobs_are_what_celery_expects_of_tasks(running: CeleryWorld) -> None:
    waiting = running.shown(running.submit(JobState.PAUSED))
    done = running.shown(running.submit(JobState.COMPLETED, report={"model_hash": "abc"}))
    failed = running.shown(
        running.submit(JobState.FAILED, error_type="SCRIPT_ERROR", error_message="exit 3", error_stack="line 7")
    )
    stopped = [running.shown(running.submit(state)) for state in (JobState.CANCELLED, JobState.PREEMPTED)]

    assert done.get(timeout=15)["model_hash"] == "abc"
    with pytest.raises(Exception, match="exit 3") as caught:
        failed.get(timeout=15)
    assert type(caught.value).__name__ == "SCRIPT_ERROR"
    for each in stopped:
        with pytest.raises(TaskRevokedError, match=each.id):
            each.get(timeout=15)
    wait_for(lambda: waiting.state == "PAUSED", seconds=15, what="the paused job to be shown")
    assert [each.ready() for each in (waiting, done, failed, *stopped)] == [False, True, True, True, True]
    assert [each.successful() for each in (waiting, done, failed, *stopped)] == [False, True, False, False, False]
    assert [each.failed() for each in (waiting, done, failed, *stopped)] == [False, False, True, False, False]
    assert (waiting.result["state"], failed.traceback) == ("PAUSED", "line 7")


@pytest.mark.long
def test_celerys_own_command_line_is_answered(running: CeleryWorld) -> None:
    ((worker, _),) = running.celery.control.ping(timeout=10, limit=1)[0].items()

    def inspect(question: str) -> object:
        """As a client that knows only the broker's address."""
        command = ["celery", "-b", running.settings.broker.url, "inspect", question, "-j", "-t", "30", "-d", worker]
        run = subprocess.run([sys.executable, "-m", *command], capture_output=True, check=True, text=True, timeout=60)
        return json.loads(run.stdout)[worker]

    assert [inspect(each) for each in ("ping", "active", "registered")] == [{"ok": "pong"}, [], ["trainyard.admit"]]


def test_without_any_message_jobs_are_admitted_and_dispatched(running: CeleryWorld) -> None:
    running.add_node("takes-all", devices=64)

    job_id = running.submit()

    wait_for(lambda: running.is_in(job_id, JobState.SCHEDULING), seconds=5, what="dispatched")
    with running.db.write() as session:
        session.get_one(Node, "takes-all").state = "drained"


@pytest.mark.long
def test_node_that_fails_one_job_after_the_other_is_quarantined(running: CeleryWorld) -> None:
    running.add_node("fails")
    with running.db.write() as session:
        for job_id in ("job-1", "job-2", "job-3"):
            quarantine.note(session, "fails", job_id=job_id, attempt=1, cause="DEVICE_FAULT", is_proven=True)

    def state() -> str:
        with running.db.read() as session:
            return session.get_one(Node, "fails").state

    wait_for(lambda: state() == "quarantined", seconds=7, what="the node to be quarantined")


@pytest.mark.long
def test_coordinator_waits_silently_until_the_schema_is_there(
    make_world: MakeWorld, redis_url: str, tmp_path: Path
) -> None:
    world = make_world(redis_url, database_url=f"sqlite:///{tmp_path}/late.db")
    process = world.start()
    wait_for(lambda: world.celery.control.ping(timeout=0.5, limit=1), seconds=15, what="the coordinator answers")

    prepare(world.settings)

    wait_for(lambda: world.planner_pid() == process.pid, seconds=15, what="it plans")
    assert "no such table" not in world.log


@pytest.mark.long
def test_broker_that_was_never_there_stops_nothing(make_world: MakeWorld) -> None:
    world = make_world(f"redis://127.0.0.1:{free_port()}/0")
    world.add_node("local")
    job_id = world.submit()

    process = world.start()

    wait_for(lambda: world.is_in(job_id, JobState.SCHEDULING), seconds=15, what="dispatched")
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0


@pytest.mark.long
def test_broker_that_does_not_answer_stops_nothing(make_world: MakeWorld, own_redis: RedisServer) -> None:
    world = make_world(own_redis.url)
    world.add_node("local", devices=2)
    process = world.start()
    wait_for(lambda: answers(world), seconds=30, what="the coordinator answers")
    began, first = time.monotonic(), world.submit()
    wait_for(lambda: world.is_in(first, JobState.SCHEDULING), seconds=60, what="dispatched with a broker")
    usual = time.monotonic() - began  # on a machine as busy as this one
    os.kill(own_redis.pid, signal.SIGSTOP)
    job_id = world.submit()

    before = time.monotonic()
    world.dispatcher.ring_admit(job_id, "default", 5)

    assert time.monotonic() - before < 0.5
    wait_for(lambda: world.is_in(job_id, JobState.SCHEDULING), seconds=4 + 2 * usual, what="dispatched")
    process.send_signal(signal.SIGTERM)
    process.wait(SHUTDOWN_SECONDS + 1.5 + usual)  # before `trainyard up` loses its patience
    os.kill(own_redis.pid, signal.SIGCONT)


@pytest.mark.long
def test_killed_broker_costs_nothing_and_is_used_again(make_world: MakeWorld, own_redis: RedisServer) -> None:
    world = make_world(own_redis.url)
    world.add_node("local")
    world.start()
    wait_for(lambda: answers(world), seconds=15, what="the coordinator answers")
    own_redis.stop()

    during = world.submit()
    wait_for(lambda: world.is_in(during, JobState.SCHEDULING), seconds=5, what="dispatched without a broker")
    own_redis.start()

    wait_for(lambda: answers(world), seconds=30, what="the coordinator answers again")
    wait_for(lambda: world.shown(during).state == "SCHEDULING", seconds=15, what="shown in the new broker")


def test_new_queue_is_listened_to(running: CeleryWorld) -> None:
    running.submit(queue="night")

    active = running.celery.control.inspect(timeout=0.5, limit=1).active_queues
    wait_for(
        lambda: [q["name"] for queues in (active() or {}).values() for q in queues if q["name"] == "jobs.night"],
        seconds=10,
        what="consumed",
    )


@pytest.mark.long
def test_state_is_readable_under_the_jobs_id_and_comes_back_after_flushall(
    running: CeleryWorld, broker: RedisServer
) -> None:
    job_id = running.submit(name="first steps")
    wait_for(lambda: running.shown(job_id).state == "QUEUED", seconds=5, what="shown")
    result = running.shown(job_id).result
    assert result["name"] == "first steps"
    assert result["progress"] == 0.0

    with broker.client() as client:
        client.flushall()

    wait_for(lambda: running.shown(job_id).state == "QUEUED", seconds=15, what="shown again")


@pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")  # by Celery's own way
def test_what_is_stored_is_what_celery_itself_would_store(running: CeleryWorld, broker: RedisServer) -> None:
    job_id = running.submit()
    wait_for(lambda: running.shown(job_id).state == "QUEUED", seconds=5, what="shown")
    backend = running.celery.backend
    backend.store_result("task-1", running.shown(job_id).result, "QUEUED")

    with broker.client() as client:
        ours, theirs = (str(backend.get_key_for_task(each), "ascii") for each in (job_id, "task-1"))
        assert json.loads(client.get(ours) or "") == json.loads(client.get(theirs) or "") | {"task_id": job_id}
        assert abs(client.ttl(ours) - client.ttl(theirs)) < 60


@pytest.mark.long
def test_progress_of_a_running_job_is_shown(running: CeleryWorld) -> None:
    with running.db.write() as session:
        job_id = running_job(session)
    wait_for(lambda: running.shown(job_id).state == "PREPARING", seconds=5, what="shown")

    with running.db.write() as session:
        session.get_one(Job, job_id).progress = 0.5

    wait_for(lambda: running.shown(job_id).result["progress"] == 0.5, seconds=5, what="progress shown")


@pytest.mark.long
def test_revoke_of_a_waiting_job_cancels_it(running: CeleryWorld) -> None:
    job_id = running.submit()

    running.celery.control.revoke(job_id)

    wait_for(lambda: running.is_in(job_id, JobState.CANCELLED), seconds=5, what="cancelled")
    wait_for(lambda: running.shown(job_id).state == "REVOKED", seconds=5, what="shown")


@pytest.mark.parametrize("terminate", [True, False])
def test_revoke_of_a_running_job_requests_its_cancellation(running: CeleryWorld, terminate: bool) -> None:  # noqa: FBT001
    with running.db.write() as session:
        job_id = running_job(session)

    running.celery.control.revoke([job_id, "job-unknown"], terminate=terminate, signal="SIGKILL")

    wait_for(lambda: running.job(job_id).requested == "cancel", seconds=5, what="requested")
    assert running.job(job_id).requested_by == "revoke"


def test_revoke_of_anything_else_is_celerys_own(running: CeleryWorld) -> None:
    (reply,) = running.celery.control.revoke("d2c5bfb4", reply=True, timeout=2, limit=1)

    assert "flagged as revoked" in str(reply)
    assert running.celery.control.inspect(timeout=2, limit=1).revoked().popitem()[1].count("d2c5bfb4") == 1


@pytest.mark.long
def test_one_of_two_plans_and_the_other_takes_over_when_it_is_killed(make_world: MakeWorld, redis_url: str) -> None:
    world = make_world(redis_url)
    world.add_node("local")
    processes = {process.pid: process for process in (world.start(), world.start())}
    wait_for(lambda: len(world.celery.control.ping(timeout=0.5, limit=2)) == 2, seconds=15, what="both answer")
    first = wait_for(world.planner_pid, seconds=5, what="one plans")
    (other,) = processes.keys() - {first}

    processes[first].kill()

    wait_for(lambda: world.planner_pid() == other, seconds=4, what="taken over")
    job_id = world.submit()
    wait_for(lambda: world.is_in(job_id, JobState.SCHEDULING), seconds=5, what="dispatched")


@pytest.mark.long
def test_planner_that_stands_still_is_replaced(make_world: MakeWorld, redis_url: str, postgres_url: str) -> None:
    """On PostgreSQL: a process that is stopped while it writes to an SQLite file blocks all other writers."""
    world = make_world(redis_url, database_url=postgres_url)
    processes = {process.pid: process for process in (world.start(), world.start())}
    wait_for(lambda: len(world.celery.control.ping(timeout=0.5, limit=2)) == 2, seconds=15, what="both answer")
    first = wait_for(world.planner_pid, seconds=5, what="one plans")
    (other,) = processes.keys() - {first}

    processes[first].send_signal(signal.SIGSTOP)
    # 15 s until its transaction is ended, 5 s for the election.
    wait_for(lambda: world.planner_pid() == other, seconds=25, what="taken over")

    processes[first].send_signal(signal.SIGCONT)
    time.sleep(1.5)  # long enough for the first to have tried to take it back
    assert world.planner_pid() == other


@pytest.mark.long
def test_lease_that_stands_still_goes_back_to_the_queue(make_world: MakeWorld, redis_url: str) -> None:
    world = make_world(
        redis_url,
        TRAINYARD_LEASE_TTL_SECONDS="2",
        TRAINYARD_LEASE_FENCE_SECONDS="1",
        TRAINYARD_LEASE_RENEW_SECONDS="0.3",
        TRAINYARD_LEASE_KILL_GRACE_SECONDS="0.5",
    )
    with world.db.write() as session:
        job_id = running_job(session)

    process = world.start()

    wait_for(lambda: world.is_in(job_id, JobState.QUEUED), seconds=15, what="taken away")
    assert not is_over(process)


def running_job(session: Session) -> str:
    job = make_job(session)
    node = make_node(session, f"of-{job.id}", state="drained")
    make_attempt(session, job, node)
    job.node_names = []
    return job.id
