"""docker-compose.yml as local processes: every service's own command, environment and health check, and a job."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from tests.systems.installations import SCRIPTS, counting_job
from tests.systems.servers import free_port
from tests.systems.system import wait_for

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
PROGRAMS = Path(sys.executable).parent
OURS = ("coordinator", "api", "gateway", "node-cpu", "node-gpu", "flower", "tensorboard")
USERS = ("", "API_", "COORDINATOR_", "FLOWER_", "NODE_CPU_", "NODE_GPU_")
SECRETS = {
    "POSTGRES_PASSWORD": "x",
    **{f"REDIS_{name}PASSWORD": f"not-a-secret-{number}" for number, name in enumerate(USERS)},
    "FLOWER_PASSWORD": "hush",
    "TRAINYARD_SECURITY_SECRET_KEY": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
}


class Composition:
    """Each service with a data directory of its own, as containers have; what they share lies where all see it."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder = folder
        self.database_url = database_url
        self.ports = {inside: str(free_port()) for inside in ("6379", "8000", "8001", "5555", "5556")}
        self.logs = folder / "logs"
        for name in ("files", "shared", "logs"):
            (folder / name).mkdir()
        self._started = ExitStack()

    def environment(self, name: str) -> dict[str, str]:
        """What compose would give the service, and the image, with our addresses for the containers'."""
        given = {key: self._here(str(value)) for key, value in SERVICES[name].get("environment", {}).items()}
        if "TRAINYARD_DATABASE_URL" in given:
            assert given["TRAINYARD_DATABASE_URL"] == "postgresql+psycopg://trainyard:x@postgres:5432/trainyard"
            given["TRAINYARD_DATABASE_URL"] = self.database_url
        data = self.folder / name
        data.mkdir(exist_ok=True)
        variables = {
            "TRAINYARD_API_PORT": "8000",
            "TRAINYARD_GATEWAY_PORT": "8001",
            "TRAINYARD_FLOWER_PORT": "5555",
            "TRAINYARD_TENSORBOARD_PORT": "5556",
        }
        ports = {variable: self.ports[inside] for variable, inside in variables.items()}
        image = {"PYTHONSAFEPATH": "1", "TRAINYARD_DATA_DIR": str(data)}
        of_ours = {**image, **ports} if name in (*OURS, "migrate") else {}
        return {**os.environ, **given, **of_ours, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}

    def start(self, name: str) -> "subprocess.Popen[bytes]":
        words = [self._here(str(word)) for word in SERVICES[name]["command"]]
        log = self._started.enter_context((self.logs / name).open("wb"))
        process = self._started.enter_context(
            subprocess.Popen(words, env=self.environment(name), cwd=self.folder, stdout=log, stderr=log)
        )
        self._started.callback(process.kill)
        return process

    def is_healthy(self, name: str) -> bool:
        kind, *words = (self._here(str(word)) for word in SERVICES[name]["healthcheck"]["test"])
        command = ["sh", "-c", *words] if kind == "CMD-SHELL" else words
        seconds = int(SERVICES[name]["healthcheck"]["timeout"].removesuffix("s"))
        try:
            done = subprocess.run(
                command, env=self.environment(name), capture_output=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def execute(self, name: str, *command: str) -> "subprocess.CompletedProcess[str]":
        """As `docker compose exec` does."""
        return subprocess.run(command, env=self.environment(name), capture_output=True, text=True, check=False)

    def close(self) -> None:
        self._started.close()

    def _here(self, text: str) -> str:
        """The text as compose hands it on, with this machine's places for the containers'."""
        filled = re.sub(r"(?<!\$)\$\{(\w+):[?-]([^}]*)\}", lambda m: SECRETS.get(m[1], m[2]), text).replace("$$", "$")
        places = {
            "@redis:6379": f"@127.0.0.1:{self.ports['6379']}",
            "printf '": f"printf 'port {self.ports['6379']}\\ndir .\\n",  # the image's redis runs in its volume
            "redis-cli --user": f"redis-cli -p {self.ports['6379']} --user",
            "/tmp/": f"{self.folder}/",
            "/usr/local/etc/redis/users.acl": str(ROOT / "deploy/docker/redis-users.acl"),
            "gateway:8001": f"127.0.0.1:{self.ports['8001']}",
            "/srv/trainyard": str(self.folder),
            **{f"127.0.0.1:{inside}/": f"127.0.0.1:{here}/" for inside, here in self.ports.items()},
        }
        for inside, here in places.items():
            filled = filled.replace(inside, here)
        return filled


@pytest.fixture
def composition(tmp_path: Path, postgres_url: str) -> Iterator[Composition]:
    made = Composition(tmp_path, postgres_url)
    yield made
    made.close()


def call(composition: Composition, key: str, path: str, body: Any = None) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{composition.ports['8000']}{path}")
    request.add_header("Authorization", f"Bearer {key}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, json.dumps(body).encode() if body else None, timeout=30) as reply:
        return json.loads(reply.read())["data"]


@pytest.mark.timeout(300)  # seven processes and a job, also on a busy machine
def test_everything_becomes_healthy_and_trains_a_job(composition: Composition) -> None:
    composition.start("redis")
    wait_for(lambda: composition.is_healthy("redis"), seconds=20, what="redis is healthy")
    assert composition.start("migrate").wait(60) == 0
    for name in OURS:
        composition.start(name)
    for name in OURS:
        wait_for(lambda name=name: composition.is_healthy(name), seconds=60, what=f"{name} is healthy")  # type: ignore[misc]

    for script in SCRIPTS.glob("count.py"):
        (composition.folder / "shared" / script.name).write_bytes(script.read_bytes())
    (composition.folder / "shared" / "data.jsonl").write_text('{"text": "a line"}\n')
    (composition.folder / "shared" / "model").mkdir()
    (composition.folder / "shared" / "model" / "config.json").write_text("{}")
    made = composition.execute("api", "trainyard", "keys", "create", "--role", "super_admin", "--local", "--json")
    key = json.loads(made.stdout)["key"]
    document = counting_job(steps=3)
    shared = composition.folder / "shared"
    document["training_config"]["base_model"]["model_id"] = str(shared / "model")
    document["training_config"]["framework"]["custom_script_path"] = str(shared / "count.py")
    document["data_config"]["sources"][0]["path"] = str(shared / "data.jsonl")
    job_id = call(composition, key, "/v1/jobs", document)["job_id"]

    ended = wait_for(
        lambda: (job := call(composition, key, f"/v1/jobs/{job_id}"))["finished_at"] and job, seconds=60, what="its end"
    )
    doctor = json.loads(composition.execute("coordinator", "trainyard", "doctor", "--json").stdout)

    assert ended["status"] == "COMPLETED", f"{ended['error_type']}: {ended['error_message']}"
    assert {node["name"] for node in call(composition, key, "/v1/nodes")["nodes"]} == {"cpu-1", "gpu-1"}
    # A test's PostgreSQL runs without fsync, and this machine may be full.
    excused = {"disk space", "GPU driver"}
    failed = {row["check"]: row["message"] for row in doctor["checks"] if row["level"] == "failed"}
    assert {check: said for check, said in failed.items() if check not in excused} == {}
    assert {row["level"] for row in doctor["checks"] if row["check"] == "stored files"} == {"ok"}
    assert composition.execute("migrate", "trainyard", "db", "check").returncode == 0
    admin = f"redis://admin:{SECRETS['REDIS_PASSWORD']}@127.0.0.1:{composition.ports['6379']}"
    with redis.Redis.from_url(admin, decode_responses=True) as client:
        denied = [f"{each['username']} {each['reason']} {each['object']}" for each in client.acl_log(20)]
    assert denied == []
