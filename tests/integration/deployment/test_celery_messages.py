"""What workers do with messages that are none: they drop, log and count them, and take the next."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from kombu.connection import Connection

from app.domain.lifecycle.states import JobState
from app.services.requests.wakeups import RUN
from config.queues import NODE
from tests.builders.messages import command_message, task_message
from tests.systems.celery_processes import CeleryWorld, is_over
from tests.systems.servers import RedisServer
from tests.systems.system import wait_for

PIDBOX = "/0.celery.pidbox"

DEFECTIVE: list[Any] = [
    "{",
    "\udcff",
    "[" * 100_000,
    "null",
    "[]",
    "{}",
    " " * 300_000,
    {"headers": {}, "properties": {}},
    task_message("job-1") | {"headers": None},
    task_message("job-1") | {"body": None},
    task_message("job-1") | {"body": "%"},
    task_message("job-1") | {"body": "e3s="},
    task_message("job-1") | {"content-type": "application/x-python-serialize"},
    task_message("job-1") | {"content-encoding": None},
    task_message(properties={"delivery_tag": None}),
    task_message(properties={"delivery_info": None}),
    task_message(headers={"task": "os.system"}),
    task_message(headers={"task": {}}),
    task_message(headers={"id": None}),
    task_message(headers={"compression": "application/x-gzip"}),
    task_message(headers={"expires": 10**400}),
    task_message(headers={"timelimit": "x"}),
    task_message(headers={"eta": "2090-01-01T00:00:00+00:00"}),
    task_message(7, {}, None),
    task_message(task="celery.chunks", body=[[], {}, {}]),
    task_message(body=7),
    task_message(body=[[], {}, {"callbacks": [{"task": "trainyard.admit"}]}]),
]
DEFECTIVE_COMMANDS: list[Any] = [
    "{",
    "[" * 100_000,
    "7",
    {},
    command_message("ping") | {"body": "MQ=="},
    command_message("ping") | {"headers": {"clock": "x"}},
    command_message("ping") | {"properties": {}},
    command_message("ping", "x"),
    *map(command_message, ("shutdown", "pool_restart", "disable_events")),
    command_message("cancel_consumer", {"queue": "jobs.default"}),
    command_message({}),  # type: ignore[arg-type]
]


@pytest.fixture(scope="module")
def broker(owned_pids: set[int]) -> Iterator[RedisServer]:
    server = RedisServer()
    server.start()
    owned_pids.add(server.pid)
    yield server
    server.close()


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Path, broker: RedisServer
) -> Iterator[CeleryWorld]:
    folder = tmp_path_factory.mktemp("messages")
    shutil.copyfile(migrated_sqlite, folder / "trainyard.db")
    with closing(
        CeleryWorld(
            folder,
            database_url=f"sqlite:///{folder}/trainyard.db",
            broker_url=broker.url,
            TRAINYARD_NODE_NAME="box",
            TRAINYARD_NODE_SANDBOX="process",
        )
    ) as world:
        yield world


@pytest.fixture(scope="module")
def workers(world: CeleryWorld, owned_pids: set[int]) -> list["Popen[bytes]"]:
    started = [world.start_rarely_polling(), world.start_rarely_polling(NODE)]
    owned_pids.update(each.pid for each in started)
    wait_for(lambda: len(world.celery.control.ping(timeout=0.5, limit=2)) == 2, seconds=30, what="both answer")
    return started


def encoded(message: object) -> bytes:
    return (message if isinstance(message, str) else json.dumps(message)).encode(errors="surrogateescape")


def rejected(world: CeleryWorld, origin: str) -> list[int]:
    """For each worker, how many messages of the queue or channel it dropped."""
    answers = world.celery.control.broadcast("rejected", reply=True, timeout=5, limit=2)
    return [
        sum(each["messages"] for each in counts if each["origin"] == origin)
        for answer in answers
        for counts in answer.values()
    ]


@pytest.mark.long
def test_defective_messages_of_a_queue_are_dropped_logged_and_counted(
    world: CeleryWorld, workers: list["Popen[bytes]"], broker: RedisServer
) -> None:
    job_id = world.submit()
    with broker.client() as client:
        client.lpush("jobs.default", *map(encoded, DEFECTIVE), encoded(task_message(job_id)))
        client.lpush("cpu.box", *map(encoded, DEFECTIVE), encoded(task_message(["job-1"], task=RUN, queue="cpu.box")))

    wait_for(lambda: not world.is_in(job_id, JobState.PENDING), seconds=10, what="the job behind them is admitted")
    wait_for(lambda: sum(rejected(world, "jobs.default")) == len(DEFECTIVE), seconds=10, what="the coordinator's")
    wait_for(lambda: sum(rejected(world, "cpu.box")) == len(DEFECTIVE) + 1, seconds=10, what="the node's")
    assert not any(map(is_over, workers))
    assert "rejected a message of jobs.default: the task 'os.system' is unknown (1 of this kind)" in world.log
    assert "rejected a message of cpu.box: it is not JSON (3 of this kind)" in world.log
    with broker.client() as client:
        assert [client.llen("jobs.default"), client.llen("cpu.box")] == [0, 0]
        # The job is admitted before its message is acknowledged.
        wait_for(lambda: client.hlen("unacked") == 0, seconds=10, what="every message is acknowledged")


@pytest.mark.long
def test_defective_commands_are_dropped_by_every_worker(
    world: CeleryWorld, workers: list["Popen[bytes]"], broker: RedisServer
) -> None:
    with broker.client() as client:
        for each in DEFECTIVE_COMMANDS:
            assert client.publish(PIDBOX, encoded(each)) == 2

    count = len(DEFECTIVE_COMMANDS)
    wait_for(lambda: rejected(world, PIDBOX) == [count, count], seconds=10, what="both dropped all")
    assert not any(map(is_over, workers))


@pytest.mark.parametrize("only_reader", [True, False])
def test_what_cannot_be_put_back_is_dropped(broker: RedisServer, only_reader: bool) -> None:  # noqa: FBT001
    keys = {f"{name}_key": f"{name}.{only_reader}" for name in ("unacked", "unacked_index", "unacked_mutex")}
    options = {**keys, "only_reader": only_reader, "visibility_timeout": 1}
    queue = f"restored.{only_reader}"
    message = json.dumps([task_message("job-1", queue=queue), "", queue])
    entries = {"1": "{", "2": "[" * 100_000, "3": "[1]", "4": "7", "5": '[1, "", "x"]', "6": message}
    with broker.client() as client:
        client.hset(keys["unacked_key"], mapping=entries)
        client.zadd(keys["unacked_index_key"], dict.fromkeys(entries, 1.0))

        transport = "tasks.checked_transport:CheckedTransport"
        with Connection(broker.url, transport=transport, transport_options=options) as connection:
            connection.channel().qos.restore_visible()

        assert not client.exists(*keys.values())
        assert [client.llen(key) for key in client.keys(f"{queue}*")] == [1]
