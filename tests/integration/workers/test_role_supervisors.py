"""Jobs with roles under real supervisors, on one node and on two: they find each other, fail, start again and end."""

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.models import Lease, Reservation
from app.services.attempts.work_orders import load_work
from tests.builders.factories import make_node
from tests.systems.people import connected, endpoint_of
from tests.systems.roles import begin, ends, events_of, lines_by_rank, role, settings_of, submit
from tests.systems.servers import free_port
from tests.systems.supervising import NODE, World, rows
from workers.node.attempt_manager import AttemptManager
from workers.supervisor.interactive.setup import probed_part

OTHER = "other"
PLACES = """
import json, os, socket, sys, time
tasks, role = json.loads(os.environ["TRAINYARD_TASKS"]), os.environ["TRAINYARD_ROLE"]
index = int(os.environ["TRAINYARD_TASK_INDEX"])
def serve():
    mine = tasks[role][index]
    with socket.create_server((mine["address"], mine["port"])) as server:
        print("serves", flush=True)
        while True:
            peer = server.accept()[0]
            peer.sendall(f"{role} {index}".encode())
            peer.close()
def ask(name, number):
    place = tasks[name][number]["address"], tasks[name][number]["port"]
    for _ in range(200):
        try:
            with socket.create_connection(place) as peer:
                return peer.recv(100).decode()
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise SystemExit("no answer")
"""
SERVES = PLACES + "serve()\n"
ASKS = PLACES + "print('heard', *[ask('server', n) for n in range(len(tasks['server']))], flush=True)\n"
SLEEPS = "import time; print('ready', flush=True); time.sleep(120)"
Submit = Callable[..., str]


@pytest.fixture
def run(any_world: World) -> Submit:
    """Submits a job with these roles, places it and starts its supervisors; ``nodes``: of four CPU slots each."""

    def start(*tasks: Mapping[str, Any], nodes: int = 1, **training: Any) -> str:
        if nodes > 1:
            with any_world.db.write() as session:
                make_node(session, OTHER, devices=4)
        job_id = submit(any_world, tasks, **training)
        begin(any_world, job_id)
        return job_id

    return start


def test_a_server_and_its_client_meet_on_one_node_and_the_sidecar_is_stopped(any_world: World, run: Submit) -> None:
    job_id = run(role("client", ASKS), role("server", SERVES, count=2, sidecar=True))

    job = any_world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, any_world.describe(job_id)
    assert lines_by_rank(any_world, job_id) == {0: ["heard server 0 server 1"], 1: ["serves"], 2: ["serves"]}
    assert ends(any_world, job_id) == {"client 0": 0, "server 0": 143, "server 1": 143}
    assert any_world.attempt(job_id).node_names == [NODE]
    assert events_of(any_world, job_id, EventType.RANK_EXITED) == []
    assert any_world.processes(job_id) == []
    assert rows(any_world, Reservation) == []


@pytest.mark.long
def test_roles_on_two_nodes_know_all_places_and_their_own_world(any_world: World, run: Submit) -> None:
    says = "print(*[os.environ[n] for n in 'TRAINYARD_RANK RANK WORLD_SIZE NODE_RANK NNODES'.split()], flush=True)\n"
    job_id = run(role("trainer", ASKS + says, gpus=3, count=2), role("server", SERVES, count=2, sidecar=True), nodes=2)

    job = any_world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, any_world.describe(job_id)
    said = lines_by_rank(any_world, job_id)
    assert said[0] == ["heard server 0 server 1", "0 0 6 0 2"]
    assert said[5] == ["heard server 0 server 1", "5 5 6 1 2"]
    assert (said[6], said[7]) == (["serves"], ["serves"])
    assert sorted(any_world.attempt(job_id).node_names) == [NODE, OTHER]
    assert ends(any_world, job_id) == {"trainer 0": 0, "trainer 1": 0, "server 0": 143, "server 1": 143}
    assert rows(any_world, Reservation) == []
    assert any_world.processes(job_id) == []


@pytest.mark.long
def test_a_role_waits_for_one_that_starts_on_another_node(any_world: World, run: Submit) -> None:
    logs = "from trainyard import hooks; hooks.init().log_metrics({'value': 7.0}, step=3)"
    job_id = run(role("late", "print('late')", gpus=4, depends_on=["early"]), role("early", logs, gpus=4), nodes=2)

    job = any_world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, any_world.describe(job_id)
    assert job.latest_metrics["early/value"] == 7.0  # stored by the supervisor of the other node
    progress = (any_world.attempt(job_id).rendezvous or {})["roles"]
    assert {part: said["started"] for part, said in progress.items()} == {"0": [["late", 0]], "1": [["early", 0]]}


def test_an_instance_that_fails_starts_again_alone(any_world: World, run: Submit) -> None:
    flaky = """
import os, pathlib
was = pathlib.Path("was-" + os.environ["TRAINYARD_TASK_INDEX"])
if os.environ["TRAINYARD_TASK_INDEX"] == "1" and not was.exists():
    was.touch()
    raise SystemExit(9)
print("well", flush=True)
"""
    waits = "import pathlib, time\nwhile not pathlib.Path('was-1').exists(): time.sleep(0.02)\n"
    job_id = run(role("main", waits), role("worker", flaky, count=2, restart="task"))

    job = any_world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, any_world.describe(job_id)
    assert job.attempt == 1
    assert ends(any_world, job_id) == {"main 0": 0, "worker 0": 0, "worker 1": 0}
    (message,) = events_of(any_world, job_id, EventType.TASK_RESTARTED)
    assert message.startswith("worker 1 starts again alone, because its rank 2 ended with exit code 9")


def test_the_end_of_an_instance_ends_the_job_and_is_named(any_world: World, run: Submit) -> None:
    job_id = run(role("main", SLEEPS), role("worker", "raise SystemExit(9)", count=2))

    job = any_world.wait_for_end(job_id)

    assert job.state is JobState.FAILED, any_world.describe(job_id)
    assert "(worker " in (job.error_message or "")
    assert "exit code 9" in (job.error_message or "")
    assert any("(worker " in message for message in events_of(any_world, job_id, EventType.RANK_EXITED))
    assert ends(any_world, job_id)["main 0"] == 143
    assert any_world.processes(job_id) == []


@pytest.mark.long
def test_the_work_of_another_node_is_waited_for_and_may_fail(any_world: World, run: Submit) -> None:
    fails_later = "import time; time.sleep(1.5); raise SystemExit(4)"
    job_id = run(role("quick", "print('done')", gpus=4), role("long", fails_later, gpus=4), nodes=2)

    job = any_world.wait_for_end(job_id)

    assert job.state is JobState.FAILED, any_world.describe(job_id)
    assert "(long 0) ended with exit code 4" in (job.error_message or "")
    assert any_world.attempt(job_id).exit_code == 4


@pytest.mark.long
def test_a_cancel_reaches_nodes_whose_own_work_has_ended(any_world: World, run: Submit) -> None:
    job_id = run(role("quick", "print('done')", gpus=4), role("long", SLEEPS, gpus=4), nodes=2)
    any_world.wait_for_line(job_id, "ready")

    any_world.request(job_id, "cancel")
    job = any_world.wait_for_end(job_id)

    assert job.state is JobState.CANCELLED, any_world.describe(job_id)
    assert any_world.processes(job_id) == []
    assert rows(any_world, Reservation) == []


SAVES = """
import time
from trainyard import hooks
run = hooks.init()
resumed = run.resume_checkpoint()
if resumed:
    print("resumed at", open(f"{resumed}/state").read(), flush=True)
    raise SystemExit(0)
with run.checkpoint(step=3) as path:
    open(f"{path}/state", "w").write("3")
print("saved", flush=True)
time.sleep(120)
"""


@pytest.mark.long
def test_after_the_loss_of_a_supervisor_all_roles_go_on_from_the_checkpoint(any_world: World, run: Submit) -> None:
    job_id = run(role("trainer", SAVES, gpus=4), role("helper", SLEEPS, gpus=4, sidecar=True), nodes=2)
    any_world.wait_for_line(job_id, "ready", 20.0)
    any_world.wait(lambda: any(e.type == EventType.CHECKPOINT_SAVED for e in any_world.events(job_id)), 20.0, job_id)
    lost = rows(any_world, Lease, job_id=job_id, part=1)[0]
    assert lost.supervisor_pid is not None

    os.kill(lost.supervisor_pid, signal.SIGKILL)
    any_world.wait(lambda: lost.supervisor_pid not in any_world.processes(job_id), 5.0, job_id)
    manager = AttemptManager(settings_of(any_world, lost.node), any_world.db, lost.node)

    def is_queued() -> bool:
        manager.poll()
        return any_world.job(job_id).state is JobState.QUEUED

    any_world.wait(is_queued, 30.0, job_id)
    assert any_world.attempt(job_id).cause == "SUPERVISOR_LOST"
    assert any_world.processes(job_id) == []

    begin(any_world, job_id)
    assert any_world.wait_for_end(job_id).state is JobState.COMPLETED, any_world.describe(job_id)
    assert "resumed at 3" in any_world.log(job_id)
    assert ends(any_world, job_id, 2) == {"trainer 0": 0, "helper 0": 143}


def test_a_rank_that_is_killed_starts_all_roles_again_under_the_same_supervisor(any_world: World, run: Submit) -> None:
    dies = """
import os, signal
if os.environ["TRAINYARD_ATTEMPT"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
"""
    job_id = run(role("main", dies), role("helper", SLEEPS, sidecar=True))

    any_world.wait(lambda: any_world.job(job_id).state is JobState.COMPLETED, 20.0, job_id)

    assert any_world.attempt(job_id).cause == "RANK_KILLED"
    assert ends(any_world, job_id, 1)["main 0"] == 137
    assert ends(any_world, job_id, 2) == {"main 0": 0, "helper 0": 143}


@pytest.mark.long
def test_a_job_with_roles_is_ended_for_a_pause(any_world: World, run: Submit) -> None:
    hooked = "from trainyard import hooks; hooks.init(can_checkpoint=True)\n"
    job_id = run(role("main", hooked + SLEEPS), role("helper", SLEEPS))
    any_world.wait_for_line(job_id, "ready")

    any_world.request(job_id, "pause", pause_force=True)
    job = any_world.wait_for_end(job_id)

    assert job.state is JobState.PAUSED, any_world.describe(job_id)
    assert any_world.processes(job_id) == []


@pytest.mark.long
def test_what_an_instance_said_before_its_restart_does_not_count(any_world: World, run: Submit) -> None:
    raises_once = """
import os, pathlib, time
from trainyard import hooks
hooks.init()
was = pathlib.Path("was")
if not was.exists():
    was.touch()
    raise ValueError("the first time")
print("again", flush=True)
time.sleep(120)
"""
    job_id = run(role("main", SLEEPS), role("worker", raises_once, restart="task"))
    any_world.wait_for_line(job_id, "again")

    any_world.request(job_id, "pause", pause_force=False)
    job = any_world.wait_for_end(job_id)

    assert job.state is JobState.PAUSED, any_world.describe(job_id)


WEB = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{os.environ['TRAINYARD_ROLE']} {os.environ['TRAINYARD_TASK_INDEX']}".encode())
    def log_message(self, *_): pass
class Server(http.server.HTTPServer):
    def server_bind(self):
        http.server.socketserver.TCPServer.server_bind(self)
Server(("127.0.0.1", PORT + int(os.environ["TRAINYARD_TASK_INDEX"])), Handler).serve_forever()
"""


@pytest.mark.long
def test_a_port_of_an_instance_is_reached_and_probed_on_its_node(any_world: World) -> None:
    with any_world.db.write() as session:
        make_node(session, OTHER, devices=4)
    port = free_port()
    apart = [{"role": "trainer", "where": "other_nodes"}]
    web = role("web", WEB.replace("PORT", str(port)), count=2, affinity=apart)
    config = {
        "ports": [{"name": f"web-{n}", "port": port + n, "role": "web", "index": n} for n in (0, 1)],
        "readiness_probe": {"port": port + 1, "path": "/", "period_seconds": 1},
    }
    job_id = submit(any_world, [role("trainer", SLEEPS), web], config)
    begin(any_world, job_id)

    any_world.wait(lambda: any_world.job(job_id).ready is True, 30, job_id)
    endpoint = endpoint_of(any_world, job_id, rank=2)

    assert endpoint.part == 1
    assert probed_part(load_work(any_world.db, job_id, 1, node=NODE)) == 1
    assert {each["role"]: each["part"] for each in any_world.attempt(job_id).instances or ()} == {
        "trainer": 0,
        "web": 1,
    }
    with connected(any_world, endpoint, type="connect", port=port + 1) as (connection, answer):
        assert answer == {"type": "started"}
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert connection.makefile("rb").read().endswith(b"web 1")
    any_world.request(job_id, "cancel")
    assert any_world.wait_for_end(job_id).state is JobState.CANCELLED
