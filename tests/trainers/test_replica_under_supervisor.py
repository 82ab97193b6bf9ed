"""A replica with the small model under the real supervisor and sandbox, asked through its relay."""

import http.client
import json
import shutil
import socket
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Artifact, Replica
from app.security.relay_tokens import relay_token
from tests.builders.factories import make_job
from tests.builders.serving import make_service, replica_document
from tests.systems.supervising import World, rows

CHAT = {"model": "support", "messages": [{"role": "user", "content": "def f(x):"}], "max_tokens": 12, "temperature": 0}


@pytest.fixture
def world(tmp_path, sqlite_url, assets, forked_supervisors, forked_agents):
    """A node in miniature that has the small model."""
    made = World(tmp_path, sqlite_url, spawn=forked_supervisors.spawn)
    forked_agents.serve(made.data_dir)
    shutil.copytree(assets, tmp_path / "mine" / "demo")
    yield made
    made.close()


def start(world: World) -> str:
    document = replica_document()
    document["training_config"]["base_model"] = {"model_id": "demo/model", "dtype": "float32"}
    with world.db.write() as session:
        job = make_job(session, document=document, max_retries=0)
        session.add(Replica(job_id=job.id, service_id=make_service(session).id, number=0, revision=1))
    world.take_up(job.id)
    world.wait(lambda: world.job(job.id).state is JobState.SERVING, 90, job.id)
    return job.id


def ask(world: World, job_id: str, body: dict[str, Any]) -> str:
    with world.db.read() as session:
        replica = session.get_one(Replica, job_id)
    key = world.settings.security.secret_key
    token = relay_token(key, job_id=job_id, attempt=replica.attempt or 0, fence=replica.fence or 0)
    with socket.create_connection((replica.address or "", replica.port or 0), timeout=60) as connection:
        connection.sendall(f"TRAINYARD/1 {token}\n".encode())
        assert connection.recv(3) == b"OK\n"
        client = http.client.HTTPConnection("engine")
        client.sock = connection
        client.request("POST", "/v1/chat/completions", json.dumps(body))
        answer = client.getresponse()
        assert answer.status == 200
        return answer.read().decode()


@pytest.mark.long
def test_model_answers_until_it_is_drained(world: World) -> None:
    job_id = start(world)

    whole = json.loads(ask(world, job_id, CHAT))["choices"][0]["message"]["content"]
    stream = ask(world, job_id, {**CHAT, "stream": True})

    events = [json.loads(each.removeprefix("data: ")) for each in stream.split("\n\n")[:-2]]
    assert "".join(each["choices"][0]["delta"].get("content", "") for each in events) == whole
    world.request(job_id, "drain")
    job = world.wait_for_end(job_id, 60)
    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert world.states(job_id) == ["PREPARING", "SERVING", "COMPLETED"]
    assert rows(world, Artifact) == []
