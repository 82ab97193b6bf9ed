"""A replica under its real supervisor: the engine answers through the relay, drains, and is cut off with its lease."""

import hashlib
import http.client
import os
import signal
import socket
import time
from typing import Any

import pytest

from app.domain.errors import LeaseLost, NotFound
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.models import Artifact, Job, Replica
from app.security.relay_tokens import relay_token
from app.services.attempts import endpoints, work_orders
from app.storage.object_keys import artifacts_key
from tests.builders.factories import make_document, make_job
from tests.builders.serving import make_service, replica_document
from tests.systems.supervising import World, rows

# Speaks the protocol as the engine server does, without a model: a script may, too.
ENGINE = """
import http.server, os, socket, socketserver, sys, threading, time
from pathlib import Path
from trainyard.protocol.commands import AdapterNotLoaded
from trainyard.protocol.messages import FetchAdapter, Result
from trainyard.protocol.run_spec import RunSpec
from trainyard.protocol.session import Identity, SupervisedSession

spec = RunSpec.read(os.environ["TRAINYARD_SPEC"])
session = SupervisedSession(os.environ["TRAINYARD_CHANNEL"], Identity.of(spec), can_checkpoint=True)
answering = threading.Event()

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path.startswith("/adapter/"):
            job_id, _, name = self.path.removeprefix("/adapter/").partition("/")
            try:
                found = Path(session.fetch_adapter(FetchAdapter(name=name, job_id=job_id)))
                body = " ".join(sorted(path.name for path in found.iterdir()))
            except AdapterNotLoaded as error:
                body = f"refused: {error}"
        elif self.path == "/slow":
            answering.set()
            time.sleep(SLOW)
            answering.clear()
            body = "at last"
        else:
            body = "well"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    address_family, daemon_threads = socket.AF_UNIX, True

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "engine", 0

    def get_request(self):
        return super().get_request()[0], ("relay", 0)

    def handle_error(self, *_):
        pass  # a client that has left says nothing of the engine

os.chdir(spec.run_dir)
SLOW, LISTENS = GIVEN
if LISTENS:
    server = Server("engine.sock", Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
session.phase("SERVING")
session.section("idle")
print("listens", flush=True)
while (stop := session.commands.stop) is None:
    time.sleep(0.02)
print("asked to", stop.kind, flush=True)
while answering.is_set():
    time.sleep(0.02)
time.sleep(0.2)
session.finish(Result(stopped=None if stop.kind == "drain" else stop.kind, step=7))
"""


def start(world: World, *, slow: float = 0.3, listens: bool = True, script: str | None = None) -> str:
    """A replica that is dispatched to the node; its job's id."""
    path = world.directory / "mine" / "engine" / "engine.py"
    path.parent.mkdir()
    path.write_text(script or ENGINE.replace("GIVEN", str((slow, listens))))
    document = {
        **replica_document(),
        "training_config": {
            "training_type": "REPLICA",
            "base_model": {"model_id": "none"},
            "framework": {"type": "CUSTOM", "custom_script_path": str(path)},
        },
    }
    with world.db.write() as session:
        job = make_job(session, document=document, max_retries=0)
        session.add(Replica(job_id=job.id, service_id=make_service(session).id, number=0, revision=1))
    world.take_up(job.id)
    return job.id


def serving(world: World, job_id: str) -> Replica:
    """The replica, once it answers."""
    world.wait(lambda: world.job(job_id).state is JobState.SERVING, 20.0, job_id)
    return replica_of(world, job_id)


def replica_of(world: World, job_id: str) -> Replica:
    with world.db.read() as session:
        return session.get_one(Replica, job_id)


def connected(world: World, replica: Replica, *, fence: int | None = None) -> socket.socket:
    """As a gateway connects, with the token of the replica's fence or of another one."""
    assert replica.attempt is not None
    assert replica.fence is not None
    assert replica.address is not None
    token = relay_token(
        world.settings.security.secret_key,
        job_id=replica.job_id,
        attempt=replica.attempt,
        fence=replica.fence if fence is None else fence,
    )
    connection = socket.create_connection((replica.address, replica.port or 0), timeout=20)
    connection.sendall(f"TRAINYARD/1 {token}\n".encode())
    return connection


def get(world: World, replica: Replica, path: str) -> str:
    with connected(world, replica) as connection:
        return answer_of(connection, path)


def refuses(world: World, replica: Replica) -> bool:
    try:
        connected(world, replica).close()
    except ConnectionResetError:
        return False
    except ConnectionRefusedError:
        return True
    return False


def answer_of(connection: socket.socket, path: str) -> str:
    assert connection.recv(3) == b"OK\n"
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n".encode())
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.read().decode()


@pytest.mark.long
def test_replica_answers_through_its_relay_and_is_completed_by_a_drain(any_world: World) -> None:
    world = any_world
    job_id = start(world)
    replica = serving(world, job_id)
    job = world.job(job_id)

    assert get(world, replica, "/health") == "well"
    assert (replica.attempt, replica.fence) == (1, job.fence)
    assert replica.answers_since is not None
    with connected(world, replica, fence=job.fence - 1) as stale:
        assert stale.recv(1000) == b"NO the token is not that of this attempt\n"

    began = time.monotonic()
    with connected(world, replica) as slow:
        assert slow.recv(3) == b"OK\n"
        slow.sendall(b"GET /slow HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n")
        time.sleep(0.1)
        world.request(job_id, "drain")
        response = http.client.HTTPResponse(slow)
        response.begin()
        assert response.read() == b"at last", "it was begun before the drain"
    job = world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert time.monotonic() - began < 15
    assert world.log(job_id) == ["listens", "asked to drain"]
    assert world.states(job_id) == ["PREPARING", "SERVING", "COMPLETED"]
    assert rows(world, Artifact) == []
    (begins,) = (event for event in world.events(job_id) if event.type == EventType.ATTEMPT_STARTED)
    assert begins.message == "attempt 1 answers requests on local"
    assert world.processes(job_id) == []
    with pytest.raises(ConnectionRefusedError):
        get(world, replica, "/health")


def test_relay_of_a_killed_supervisor_refuses_and_its_fence_is_stale(world: World) -> None:
    job_id = start(world)
    replica = serving(world, job_id)
    work = work_orders.load_work(world.db, job_id, 1)
    supervisor = world.lease(job_id).supervisor_pid
    assert supervisor is not None

    os.kill(supervisor, signal.SIGKILL)
    world.wait(lambda: not world.processes(job_id), 10.0, job_id)
    world.wait(lambda: refuses(world, replica), 10.0, job_id)  # it dies with its parent, a moment later

    with world.db.write() as session:
        session.get_one(Job, job_id).fence += 1
    with pytest.raises(LeaseLost):
        endpoints.record(world.db, work, address="127.0.0.1", port=1)
    assert replica_of(world, job_id).port == replica.port


@pytest.mark.long
def test_job_that_is_no_replica_has_no_endpoint(world: World) -> None:
    job_id = start(world)
    serving(world, job_id)
    with world.db.write() as session:
        session.delete(session.get_one(Replica, job_id))

    with pytest.raises(NotFound):
        endpoints.record(world.db, work_orders.load_work(world.db, job_id, 1), address="127.0.0.1", port=1)
    world.request(job_id, "cancel")
    assert world.wait_for_end(job_id).state is JobState.CANCELLED


@pytest.mark.long
@pytest.mark.parametrize(
    ("requested", "state"),
    [("requeue", JobState.QUEUED), ("preempt", JobState.PREEMPTED), ("cancel", JobState.CANCELLED)],
)
def test_other_stops_end_it_without_a_result(world: World, requested: str, state: JobState) -> None:
    job_id = start(world)
    replica = serving(world, job_id)

    world.request(job_id, requested)
    job = world.wait_for_end(job_id)

    assert job.state is state, world.describe(job_id)
    assert job.fence != replica.fence, "the endpoint is not valid any more"


def test_engine_that_ends_before_it_listens_fails_its_job(world: World) -> None:
    job_id = start(world, script="raise SystemExit(3)")

    assert world.wait_for_end(job_id).state is JobState.FAILED
    assert replica_of(world, job_id).port is None


@pytest.mark.long
def test_drain_before_it_answers_cancels_it(world: World) -> None:
    job_id = start(world, listens=False)
    world.wait_for_line(job_id, "listens")

    world.request(job_id, "drain")
    job = world.wait_for_end(job_id)

    assert job.state is JobState.CANCELLED, world.describe(job_id)
    assert world.states(job_id) == ["PREPARING", "CANCELLED"]
    assert replica_of(world, job_id).port is None


def stored_adapter(world: World, **parts: Any) -> str:
    """A completed job with an adapter in the storage; its id."""
    with world.db.write() as session:
        job = make_job(
            session,
            state=JobState.COMPLETED,
            document=make_document(training_config={"training_type": "LORA", **parts}),
        )
        for path in ("adapter_config.json", "adapter_model.safetensors", "tokenizer.json"):
            data = path.encode()
            world.storage.write(f"{artifacts_key(job.id)}/{path}", data)
            digest = hashlib.sha256(data).hexdigest()
            session.add(Artifact(job_id=job.id, path=path, size_bytes=len(data), sha256=digest))
        return job.id


def test_adapters_of_the_project_are_fetched_while_it_answers(world: World) -> None:
    job_id = start(world)
    replica = serving(world, job_id)
    own = stored_adapter(world, base_model={"model_id": "none"})
    other = stored_adapter(world)

    for _ in range(2):  # the second time it is there already
        assert get(world, replica, f"/adapter/{own}/mine") == "adapter_config.json adapter_model.safetensors"
    assert get(world, replica, f"/adapter/{other}/other") == (
        f"refused: the adapter of {other} was trained on /srv/models/tiny, and this service has none"
    )
    assert get(world, replica, "/adapter/job-x/theirs") == "refused: the project default has no training job job-x"
    assert get(world, replica, f"/adapter/{other}/mine") == "refused: mine is the name of another adapter already"
