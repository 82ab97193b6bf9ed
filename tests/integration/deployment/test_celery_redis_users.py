"""Redis with a user for each process: all work is done, and a node can do nothing else."""

import base64
import json
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import redis
from click.testing import CliRunner

from app.cli.main import main
from config.queues import PRIORITY_SEPARATOR, flower_command
from tests.systems.installations import counting_job, with_inputs
from tests.systems.servers import RedisServer, free_port
from tests.systems.system import System, wait_for

NODE = "box"
PIDBOX = "/0.celery.pidbox"


class _System(System):
    """Each process has the URL of its own user."""

    users: Path

    def environment_of(self, process: str) -> dict[str, str]:
        return self.environment | {"TRAINYARD_BROKER_URL": self.url_of(process)}

    def spawn_flower(self) -> None:
        self._spawn("flower", [])

    def command_of(self, process: str) -> list[str]:
        return flower_command() if process == "flower" else super().command_of(process)

    def url_of(self, user: str) -> str:
        url = (self.users / f"{user}.url").read_text().strip()
        return url.replace(":6379/", f":{self.redis.port}/")

    def client_of(self, user: str) -> "redis.Redis":
        return redis.Redis.from_url(self.url_of(user), decode_responses=True)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]) -> Iterator[_System]:
    folder = tmp_path_factory.mktemp("users")
    users = folder / "redis"
    options = ["--node", NODE, "--node", "other"]
    done = CliRunner().invoke(main, ["redis-users", str(users), *options])
    assert done.exit_code == 0, done.output
    system = with_inputs(
        _System(
            folder / "system",
            TRAINYARD_NODE_SANDBOX="process",
            TRAINYARD_FLOWER_PORT=str(free_port()),
            TRAINYARD_FLOWER_PASSWORD="not-a-secret",
        )
    )
    system.users = users
    password = urlsplit((users / "admin.url").read_text()).password
    system.redis = RedisServer(acl_file=users / "users.acl", user="admin", password=unquote(password or ""))
    try:
        system.start(NODE)
        owned_pids.update(system.pid(name) for name in ("api", "coordinator", f"node-{NODE}"))
        owned_pids.add(system.redis.pid)
        yield system
    finally:
        system.stop()


def denials(system: _System) -> list[str]:
    with system.client_of("admin") as client:
        return [f"{each['username']} {each['reason']} {each['object']}" for each in client.acl_log(50)]


def verdict(system: _System, user: str, *command: str) -> str:
    """What the server says of the command, which it does not run."""
    with system.client_of("admin") as client:
        return str(client.execute_command("ACL DRYRUN", user, *command))


def call(system: _System, path: str) -> bytes:
    request = urllib.request.Request(f"http://127.0.0.1:{system.environment['TRAINYARD_FLOWER_PORT']}{path}")
    request.add_header("Authorization", "Basic " + base64.b64encode(b"admin:not-a-secret").decode())
    with urllib.request.urlopen(request, timeout=10) as response:
        return bytes(response.read())


def flower_answers(system: _System) -> bool:
    try:
        return bool(call(system, "/healthcheck"))
    except OSError:
        return False


def test_every_process_works_as_its_user_and_is_denied_nothing(system: _System, owned_pids: set[int]) -> None:
    system.spawn_flower()
    owned_pids.add(system.pid("flower"))
    wait_for(lambda: flower_answers(system), seconds=20, what="Flower listens")
    done, cancelled = system.submit(counting_job(steps=2)), system.submit(counting_job(steps=10_000))
    wait_for(lambda: system.job(done)["status"] == "COMPLETED", seconds=40, what="completed")
    wait_for(lambda: system.job(cancelled)["status"] == "TRAINING", seconds=40, what="training")
    system.call("POST", f"/v1/jobs/{cancelled}/cancel")
    wait_for(lambda: system.job(cancelled)["status"] == "CANCELLED", seconds=20, what="cancelled")

    workers = json.loads(call(system, "/api/workers?refresh=true"))

    assert {name.partition("@")[0] for name in workers} == {"coordinator", "node"}
    assert all(worker["active_queues"] and worker["stats"] for worker in workers.values())
    assert json.loads(call(system, f"/api/task/info/{done}"))["state"] == "SUCCESS"
    assert json.loads(call(system, "/api/queues/length"))
    assert denials(system) == [], "\n".join(denials(system))


@pytest.mark.parametrize(
    "command",
    [
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
    ],
    ids=" ".join,
)
def test_a_node_may_not(system: _System, command: Sequence[str]) -> None:
    assert "has no permissions" in verdict(system, f"node-{NODE}", *command)


@pytest.mark.parametrize(
    ("user", "command"),
    [
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
    ],
)
def test_others_may_not_either(system: _System, user: str, command: tuple[str, ...]) -> None:
    assert "has no permissions" in verdict(system, user, *command)


def test_the_same_commands_on_its_own_keys_are_a_nodes(system: _System) -> None:
    for key in ("cpu.box", f"cpu.box{PRIORITY_SEPARATOR}5", "gpu.nvidia-a100.box"):
        assert verdict(system, f"node-{NODE}", "BRPOP", key, "1") == "OK"


def test_without_a_user_nothing_is_allowed(system: _System) -> None:
    with redis.Redis(port=system.redis.port) as client, pytest.raises(redis.AuthenticationError):
        client.ping()
