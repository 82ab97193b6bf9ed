"""Redis with a user for each process: all work is done, and a node can do nothing else."""

import base64
import json
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import redis
from click.testing import CliRunner
from kombu.connection import Connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.cli.main import main
from app.services.requests.wakeups import RUN
from config.queues import PRIORITY_SEPARATOR, flower_command, node_message_keys, node_options
from config.settings import load_settings
from tasks.message_rules import check_task
from tests.builders.messages import task_message
from tests.systems.installations import counting_job, with_inputs
from tests.systems.servers import RedisServer, free_port
from tests.systems.system import System, wait_for

NODE = "box"
PIDBOX = "/0.celery.pidbox"


class Users:
    """A Redis that was started with what `trainyard redis-users` writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        done = CliRunner().invoke(main, ["redis-users", str(folder), "--node", NODE, "--node", "other"])
        assert done.exit_code == 0, done.output
        password = urlsplit((folder / "admin.url").read_text()).password or ""
        self.redis = RedisServer(acl_file=folder / "users.acl", user="admin", password=unquote(password))

    def url_of(self, user: str) -> str:
        return (self._folder / f"{user}.url").read_text().strip().replace(":6379/", f":{self.redis.port}/")

    def client_of(self, user: str) -> "redis.Redis":
        return redis.Redis.from_url(self.url_of(user), decode_responses=True)

    def verdict(self, user: str, *command: str) -> str:
        """What the server says of the command, which it does not run."""
        with self.client_of("admin") as client:
            return str(client.execute_command("ACL DRYRUN", user, *command))

    def denials(self) -> list[str]:
        with self.client_of("admin") as client:
            return [f"{each['username']} {each['reason']} {each['object']}" for each in client.acl_log(50)]


class SystemOfUsers(System):
    """Each process has the URL of its own user, and Flower is one of them."""

    def __init__(self, folder: Path, users: Users) -> None:
        super().__init__(
            folder,
            TRAINYARD_NODE_SANDBOX="process",
            TRAINYARD_FLOWER_PORT=str(free_port()),
            TRAINYARD_FLOWER_PASSWORD="not-a-secret",
        )
        self.users, self.redis = users, users.redis

    def environment_of(self, process: str) -> dict[str, str]:
        return self.environment | {"TRAINYARD_BROKER_URL": self.users.url_of(process)}

    def command_of(self, process: str) -> list[str]:
        return flower_command() if process == "flower" else super().command_of(process)

    def start_flower(self) -> None:
        self._spawn("flower", [])

    def flower_says(self, path: str) -> Any:
        """Its answer; None as long as it does not listen."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.environment['TRAINYARD_FLOWER_PORT']}{path}")
        request.add_header("Authorization", "Basic " + base64.b64encode(b"admin:not-a-secret").decode())
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return json.loads(response.read())
        except OSError:
            return None


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Users]:
    users = Users(tmp_path / "redis")
    users.redis.start()
    yield users
    users.redis.close()


@pytest.fixture
def system(tmp_path: Path) -> Iterator[SystemOfUsers]:
    system = with_inputs(SystemOfUsers(tmp_path / "system", Users(tmp_path / "redis")))
    try:
        system.start(NODE)
        yield system
    finally:
        system.stop()


@pytest.mark.long
def test_every_process_works_as_its_user_and_is_denied_nothing(system: SystemOfUsers) -> None:
    system.start_flower()
    done, cancelled = system.submit(counting_job(steps=2)), system.submit(counting_job(steps=10_000))
    wait_for(lambda: system.job(done)["status"] == "COMPLETED", seconds=40, what="completed")
    wait_for(lambda: system.job(cancelled)["status"] == "TRAINING", seconds=40, what="training")
    system.call("POST", f"/v1/jobs/{cancelled}/cancel")
    wait_for(lambda: system.job(cancelled)["status"] == "CANCELLED", seconds=20, what="cancelled")

    workers = wait_for(lambda: system.flower_says("/api/workers?refresh=true"), seconds=30, what="Flower sees workers")

    assert {name.partition("@")[0] for name in workers} == {"coordinator", "node"}
    assert all(worker["active_queues"] and worker["stats"] for worker in workers.values())
    wait_for(lambda: system.flower_says(f"/api/task/info/{cancelled}"), seconds=40, what="Flower shows a job")
    assert system.flower_says("/api/queues/length")
    assert system.users.denials() == []
    assert [name for name in ("coordinator", f"node-{NODE}") if "rejected a message" in system.log(name)] == []


NOT_FOR_NODES: list[Sequence[str]] = [
    ("LRANGE", "cpu.other", "0", "-1"),
    ("BRPOP", "cpu.other", "1"),
    ("BRPOP", f"cpu.other{PRIORITY_SEPARATOR}5", "1"),
    ("BRPOP", "gpu.nvidia-a100.other", "1"),
    ("BRPOP", "jobs.default", "1"),
    ("LPUSH", "cpu.other", "x"),
    ("LPUSH", "jobs.default", "x"),
    ("BRPOP", "x.reply.celery.pidbox", "1"),
    ("HGET", "unacked", "x"),
    ("HGET", "unacked.node.other", "x"),
    ("GET", "celery-task-meta-job-1"),
    ("SET", "celery-task-meta-job-1", "x"),
    ("HSET", "trainyard:rate:x", "tokens", "0"),
    ("DEL", "trainyard:mirror"),
    ("SADD", "_kombu.binding.reply.celery.pidbox", "x"),
    ("PUBLISH", PIDBOX, "x"),
    ("PUBLISH", "celery-task-meta-job-1", "x"),
    ("SUBSCRIBE", "/0.celeryev/worker.heartbeat"),
    ("PSUBSCRIBE", "*"),
    ("EVAL", "return 1", "0"),
    ("SCRIPT", "LOAD", "return 1"),
    ("FUNCTION", "LIST"),
    *((words.split()) for words in ("KEYS *", "SCAN 0", "FLUSHALL", "FLUSHDB", "CONFIG GET *", "MONITOR", "SAVE")),
    *((words.split()) for words in ("SHUTDOWN", "REPLICAOF no one", "ACL LIST", "CLIENT LIST", "CLIENT PAUSE 1")),
    *((words.split()) for words in ("DEBUG SLEEP 0", "MODULE LIST", "INFO", "RANDOMKEY", "DBSIZE", "SWAPDB 0 1")),
]
NOT_FOR_OTHERS: list[tuple[str, Sequence[str]]] = [
    ("api", ("BRPOP", "jobs.default", "1")),
    ("api", ("LPUSH", "cpu.box", "x")),
    ("api", ("CONFIG", "GET", "*")),
    ("api", ("SET", "celery-task-meta-job-1", "x")),
    ("coordinator", ("BRPOP", "cpu.box", "1")),
    ("coordinator", ("FLUSHALL",)),
    ("coordinator", ("KEYS", "*")),
    ("flower", ("LPUSH", "cpu.box", "x")),
    ("flower", ("LRANGE", "jobs.default", "0", "-1")),
    ("flower", ("SET", "celery-task-meta-job-1", "x")),
    ("flower", ("SHUTDOWN",)),
]


def test_users_may_do_nothing_else(users: Users) -> None:
    cases = [*((f"node-{NODE}", command) for command in NOT_FOR_NODES), *NOT_FOR_OTHERS]

    allowed = [(user, command) for user, command in cases if "no permissions" not in users.verdict(user, *command)]

    assert allowed == []
    for key in ("cpu.box", f"cpu.box{PRIORITY_SEPARATOR}5", "gpu.nvidia-a100.box"):
        assert users.verdict(f"node-{NODE}", "BRPOP", key, "1") == "OK"


def test_a_node_takes_its_own_unacknowledged_messages_back_without_a_script(users: Users) -> None:
    """As after its death, in a process of the test: the node does so every ten seconds."""
    url, name = users.url_of("node-other"), "other"
    options = node_options(load_settings({"TRAINYARD_BROKER_URL": url, "TRAINYARD_NODE_NAME": name}))
    transport = options["broker_transport_options"] | {"visibility_timeout": 60}
    message = json.dumps([task_message(["job-1", 1], task=RUN, queue="cpu.other"), "", "cpu.other"])
    keys = node_message_keys(name)
    with users.client_of("admin") as client:
        client.hset(keys["unacked_key"], mapping={"old": message, "new": message})
        client.zadd(keys["unacked_index_key"], {"old": time.time() - 61, "new": time.time()})

        with Connection(
            url, transport="tasks.checked_transport:CheckedTransport", transport_options=transport
        ) as broker:
            broker.channel().qos.restore_visible()

        (restored,) = client.lrange(f"cpu.other{PRIORITY_SEPARATOR}5", 0, -1)
        assert json.loads(restored)["headers"]["redelivered"] is True
        check_task(restored.encode(), "cpu.other")
        assert client.hkeys(keys["unacked_key"]) == client.zrange(keys["unacked_index_key"], 0, -1) == ["new"]


def test_without_a_user_nothing_is_allowed(users: Users) -> None:
    with (
        redis.Redis(port=users.redis.port, retry=Retry(NoBackoff(), 0)) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()
