"""One run of everything with a secret in every place that takes one, and what could be seen of it anywhere."""

import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet

from tests.doubles.hub import OWNER, Hub
from tests.doubles.hub_repositories import Account
from tests.secrets.answers import ask, get_everything
from tests.secrets.canaries import Canaries
from tests.secrets.watching import ProcessWatch, RedisWatch, Seen
from tests.systems.flower_site import FlowerSite
from tests.systems.places import Web
from tests.systems.servers import PostgresServer
from tests.systems.system import TRAINYARD, System, wait_for

Texts = dict[str, bytes]
ENDED = {"COMPLETED", "FAILED", "CANCELLED"}
# Trains a little, so that there is time to look at its processes, then tells everything and fails.
SCRIPT = """
import os, time
from trainyard import hooks
run = hooks.init()
for step in range(1, 31):
    time.sleep(0.05)
    run.log_metrics({"loss": 1 / step}, step=step)
    run.progress(step, 30)
    if step == 10:
        with run.checkpoint(step=step, metrics={"loss": 0.1}) as path:
            open(path + "/state", "w").write("10")
secrets = {name: os.environ[name] for name in ("WANDB_API_KEY", "RESULTS_STORE")}
print("my secrets are", secrets, flush=True)
raise RuntimeError(f"failed with {secrets}")
"""


@dataclass(kw_only=True)
class Evidence:
    """What was seen, by kind of place and name of place."""

    canaries: Canaries
    data_dir: Path
    admin_key_file: Path
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)  # by what they are for
    environment_of: str = ""  # the job whose ranks were given secrets
    processes: set[Seen] = field(default_factory=set)
    redis_commands: bytes = b""
    redis_content: Texts = field(default_factory=dict)
    answers: Texts = field(default_factory=dict)
    flower: Texts = field(default_factory=dict)
    dump: Texts = field(default_factory=dict)
    commands: Texts = field(default_factory=dict)


class Run:
    """Plants, runs, and collects; everything that it starts has ended when it returns."""

    def __init__(self, folder: Path, assets: Path, web: Web, hub: Hub, postgres: PostgresServer) -> None:
        self.canaries = Canaries()
        self.assets, self.web, self.hub, self.postgres = assets, web, hub, postgres
        self.database = folder.name.replace("-", "_")
        self.flower = FlowerSite(self.canaries.plant("flower password"))
        self.system = System(folder, database_url=postgres.url(self.database), **self._settings(folder / "inputs"))
        self.canaries.remember("redis password", self.system.redis.password)
        self.canaries.remember("database password", postgres.password)
        (self.system.inputs / "tells.py").write_text(SCRIPT)
        (self.system.inputs / "data.jsonl").write_text('{"text": "a line"}\n')
        self.evidence = Evidence(
            canaries=self.canaries, data_dir=self.system.data_dir, admin_key_file=self.system.data_dir / "admin.key"
        )

    def run(self) -> Evidence:
        with ExitStack() as stack:
            stack.callback(self.system.stop)
            watch = stack.enter_context(ProcessWatch(self.system.data_dir))
            self.system.start("n1")
            heard = stack.enter_context(RedisWatch(self.system.redis.url))
            stack.callback(self.flower.stop)
            self.flower.start(self.system)
            self._plant_keys()
            self._be_refused()
            ids = self._submit()
            self.evidence.jobs = {what: self._ended(job_id) for what, job_id in ids.items()}
            self._collect(ids)
            self.evidence.processes = watch.seen
            self.evidence.redis_commands = bytes(heard.heard)
        return self.evidence

    # ---- what is planted

    def _settings(self, inputs: Path) -> dict[str, str]:
        plant = self.canaries.plant
        return {
            "TRAINYARD_STORAGE_ROOTS": f"{self.assets}:{inputs}",
            "TRAINYARD_FETCH_ALLOW": "127.0.0.1",
            "TRAINYARD_WEBHOOK_ALLOW": "127.0.0.1",
            "TRAINYARD_FETCH_S3_ENDPOINT": self.web.url,
            "TRAINYARD_FETCH_S3_KEY": plant("storage key", tail=""),
            "TRAINYARD_FETCH_S3_SECRET": plant("storage secret"),
            "TRAINYARD_FETCH_TOKEN_EXCHANGE_SECRET": plant("exchange secret"),
            "TRAINYARD_SECURITY_SECRET_KEY": self.canaries.remember("secret key", Fernet.generate_key().decode()),
            **self.flower.settings,
            "AWS_SECRET_ACCESS_KEY": plant("operator's storage secret"),
            "HF_TOKEN": plant("operator's hub token", head="hf_", tail=""),
            "HF_ENDPOINT": self.hub.url,
            "HF_HUB_DISABLE_XET": "1",
        }

    def _plant_keys(self) -> None:
        self.canaries.remember("admin key", self.system.key)
        headers = {"Idempotency_Key": f"keys-{self.canaries.plant('idempotency', tail='')[:10]}"}
        del self.canaries.values["idempotency"]  # no secret
        status, body = self.system.call("POST", "/v1/keys", {"role": "user", "project": "default"}, **headers)
        assert status == 201, body
        self.canaries.remember("key", body["data"]["key"])
        self.canaries.remember("secret part of a key", body["data"]["key"].split("_")[2][:32])
        self.canaries.remember("signing key", body["data"]["secret_key"])
        for name, given in (("webhook's given secret", {"secret": self.canaries.plant("given")}), ("made", {})):
            status, body = self.system.call(
                "POST",
                "/v1/webhooks",
                {"url": f"{self.web.url}/hook", **given},
                Idempotency_Key=f"webhook-{len(given)}",
            )
            assert status == 201, body
            self.canaries.remember(name, body["data"]["secret"])

    def _be_refused(self) -> None:
        """What is refused is not repeated, neither in the answer nor in a log."""
        plant = self.canaries.plant
        document = self._document("CUSTOM", {"path": "data.jsonl"})
        token = plant("refused hub_token")
        bodies = [
            document | {"output_config": {"hub_token": [token]}},
            document | {"output_config": {"hub_token": f"{token}\0"}},
            document | {"output_config": {"hub_token": token * 1000}},
            document | {"data_config": {"sources": [{"path": f"https://me:{plant('refused URL', tail='')}@host/a"}]}},
            self._document("CUSTOM", {"path": "data.jsonl"}, environment={"TOKEN": [plant("refused environment")]}),
            {"webhook": {"secret": plant("refused webhook secret")}},
        ]
        texts = [json.dumps(body) for body in bodies]
        texts.append(texts[0][:-3])  # no JSON any more
        answers = self.evidence.answers
        for n, text in enumerate(texts):
            for path in ("/v1/jobs", "/v1/webhooks"):
                answers[f"refused {path} {n}"] = ask(self.system, path, body=text.encode())
        in_query = f"/v1/jobs?api_key={plant('key in a query', tail='')}"
        answers["refused key"] = ask(self.system, in_query, key=plant("wrong key", tail=""))

    def _submit(self) -> dict[str, str]:
        plant = self.canaries.plant
        header = {
            "X_ScaiDrive_Token": plant("drive token"),
            "X_ScaiAtlas_Token": plant("atlas token"),
            "X_User_Token": plant("user token"),
            "Idempotency_Key": "the-one-that-tells",
        }
        environment = {
            "WANDB_API_KEY": plant("environment by name"),
            "RESULTS_STORE": f"postgres://me:{plant('environment by form', tail='')}@db.example/results",
        }
        documents = {
            "tells": self._document("CUSTOM", {"path": "data.jsonl"}, environment=environment),
            "trains": self._document("HF_TRAINER", {"path": self._signed_url(), "format": "jsonl"})
            | {
                "output_config": {
                    "push_to_hub": True,
                    "hub_repo_id": f"{OWNER}/trained",
                    "hub_token": self._hub_token(),
                    "checkpoint": {"save_steps": 2},
                }
            },
            "fetches": self._document("CUSTOM", {"path": "s3://bucket/none.jsonl"}),
        }
        ids = {}
        for what, document in documents.items():
            status, body = self.system.call("POST", "/v1/jobs", document, **(header if what == "tells" else {}))
            assert status == 201, body
            ids[what] = body["data"]["job_id"]
            self.evidence.answers[f"submit {what}"] = json.dumps(body).encode()
        self.evidence.environment_of = ids["tells"]
        return ids

    def _document(self, framework: str, source: dict[str, str], **training: Any) -> dict[str, Any]:
        custom = framework == "CUSTOM"
        return {
            "name": "canaries",
            "training_config": {
                "training_type": "SFT",
                "base_model": {"model_id": "none" if custom else str(self.assets / "model")},
                "framework": {"type": framework, **({"custom_script_path": "tells.py"} if custom else {})},
                "hyperparameters": {} if custom else {"max_steps": "4"},
                "max_retries": 0,
                **training,
            },
            "data_config": {"sources": [source], "max_seq_length": 32, "batch_size": 2},
            "resource_config": {"gpu_count": 1, "device_type": "cpu"},
        }

    def _signed_url(self) -> str:
        signature, token = self.canaries.plant("signature", tail=""), self.canaries.plant("token in a URL", tail="")
        return f"{self.web.url}/train.jsonl?X-Amz-Signature={signature}&token={token}"

    def _hub_token(self) -> str:
        token = self.canaries.plant("hub_token", head="hf_", tail="")
        self.hub.repositories.accounts[token] = Account(OWNER)
        return token

    # ---- what is seen

    def _ended(self, job_id: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            job = self.system.job(job_id)
            return job if job["status"] in ENDED else None

        return wait_for(look, seconds=150, what=f"the end of {job_id}")

    def _collect(self, ids: Mapping[str, str]) -> None:
        self.evidence.answers |= get_everything(self.system, ids.values())
        pages = ["/", "/tasks", "/broker", "/api/workers?refresh=1", "/api/tasks", "/metrics", "/worker/node@n1"]
        pages += [f"/task/{job_id}" for job_id in ids.values()]
        pages += [f"/api/task/info/{job_id}" for job_id in ids.values()]
        self.evidence.flower = {page: self.flower.page(page).encode() for page in pages}
        with self.system.redis.client() as client:
            for key in client.scan_iter("*"):
                self.evidence.redis_content[key] = repr(_content(client, key)).encode()
        for command in (["doctor"], ["db", "export"], ["keys", "list", "--local"]):
            self.evidence.commands[" ".join(command)] = self._said(command)
        environment = {**os.environ, "PGPASSWORD": self.postgres.password}
        where = ["-h", "127.0.0.1", "-p", str(self.postgres.port), "-U", "trainyard"]
        dumped = subprocess.run(
            ["pg_dump", *where, self.database], env=environment, capture_output=True, check=True, timeout=60
        )
        self.evidence.dump = {"pg_dump": dumped.stdout}

    def _said(self, command: list[str]) -> bytes:
        """On both channels, whatever the exit code: some of it finds faults."""
        done = subprocess.run(
            [TRAINYARD, *command], env=self.system.environment, capture_output=True, check=False, timeout=60
        )
        return done.stdout + done.stderr


def _content(client: Any, key: str) -> Any:
    read = {
        "string": client.get,
        "hash": client.hgetall,
        "set": client.smembers,
        "list": lambda k: client.lrange(k, 0, -1),
        "zset": lambda k: client.zrange(k, 0, -1),
        "stream": client.xrange,
    }
    return read[client.type(key)](key)
