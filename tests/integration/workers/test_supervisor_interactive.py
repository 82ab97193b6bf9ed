"""People in the sandbox of an attempt under its real supervisor: opening, ports, readiness, what a failure leaves."""

import os
import signal
import socket
from dataclasses import replace
from importlib.util import find_spec

import pytest

from app.domain.lifecycle.states import JobState
from app.models import InteractiveEndpoint, Reservation
from app.models.base import utc_now
from app.services.attempts.leases import ControlRequests
from app.services.attempts.work_orders import load_work
from tests.systems.people import connected, endpoint_of, open_sandbox, run
from tests.systems.supervising import NODE, SLEEPS, environment, rows, training
from trainyard.protocol.interactive import SOCKET
from workers.supervisor.interactive.sandbox_access import AccessCalls, SandboxAccess
from workers.supervisor.ranks.observations import Observations

SERVES = """
import http.server, pathlib, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if not pathlib.Path("broken").exists() else 503)
        self.end_headers()
        self.wfile.write(b"hello " + self.path.encode())
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
"""
FAILS = "open('left', 'w').write('traces'); print('failing', flush=True); raise SystemExit(7)\n"


@pytest.fixture
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def kinds(world, job_id):
    return [event.type for event in world.events(job_id)]


def test_sandbox_opens_on_request_with_the_environment_and_directory_of_the_rank(world):
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")
    assert rows(world, InteractiveEndpoint) == []

    endpoint = open_sandbox(world, job_id)
    said, code = run(world, endpoint, "sh", "-c", "echo $TRAINYARD_JOB_ID $RANK; pwd; exit 3")

    assert code == 3
    directory = world.data_dir.resolve() / "run" / "jobs" / job_id / "1" / "work"
    assert said.split() == [job_id, "0", str(directory)]
    assert world.log(job_id) == ["ready"]


def test_session_ends_with_its_attempt_and_nothing_is_left(world):
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")
    endpoint = open_sandbox(world, job_id)

    with connected(world, endpoint, type="exec", command=["sleep", "100"]) as (connection, _):
        world.request(job_id, "cancel")
        assert connection.recv(100) == b""

    assert world.wait_for_end(job_id).state is JobState.CANCELLED
    assert world.processes(job_id) == []


@pytest.mark.long
def test_job_with_a_port_is_open_from_its_start_and_its_readiness_follows_the_answers(world, free_port):
    job_id = world.start(
        SERVES.replace("PORT", str(free_port)),
        document={
            "interactive_config": {
                "ports": [{"name": "web", "port": free_port}],
                "readiness_probe": {"port": free_port, "path": "/health", "period_seconds": 1, "failure_threshold": 1},
            }
        },
    )
    endpoint = endpoint_of(world, job_id)
    world.wait(lambda: world.job(job_id).ready is True, 20, job_id)

    with connected(world, endpoint, type="connect", port=free_port) as (connection, answer):
        assert answer == {"type": "started"}
        connection.sendall(b"GET /a HTTP/1.0\r\n\r\n")
        assert connection.makefile("rb").read().endswith(b"hello /a")
    run(world, endpoint, "touch", "broken")
    world.wait(lambda: world.job(job_id).ready is False, 20, job_id)
    run(world, endpoint, "rm", "broken")
    world.wait(lambda: world.job(job_id).ready is True, 20, job_id)

    changes = [kind for kind in kinds(world, job_id) if "ready" in kind]
    assert changes[-3:] == ["job.ready", "job.not_ready", "job.ready"]
    said = [event.message for event in world.events(job_id) if event.type == "job.not_ready"]
    assert said[-1] == "not ready: GET /health is answered with 503"
    world.request(job_id, "cancel")
    assert world.wait_for_end(job_id).ready is None


def test_sandbox_of_a_failed_script_stays_until_it_is_released(world):
    job_id = world.start(FAILS, document={"interactive_config": {"keep_on_failure_seconds": 600}})
    world.wait(lambda: world.job(job_id).kept_until is not None, 20, job_id)
    job = world.job(job_id)
    assert job.state is JobState.TRAINING
    assert 500 < (job.kept_until - utc_now()).total_seconds() < 601

    endpoint = open_sandbox(world, job_id)
    assert run(world, endpoint, "cat", "left") == ("traces", 0)
    assert len(rows(world, Reservation)) == 1
    world.request(job_id, release_attempt=1)
    ended = world.wait_for_end(job_id)

    assert (ended.state, ended.error_type) == (JobState.FAILED, "SCRIPT_ERROR")
    assert "exit code 7" in ended.error_message
    assert ended.kept_until is None
    (said,) = [event.message for event in world.events(job_id) if event.type == "job.kept"]
    assert said.startswith("rank 0 ended with exit code 7; sandbox and devices stay until ")
    assert f"trainyard release {job_id}" in said
    assert rows(world, Reservation) == []


@pytest.mark.parametrize(("asked", "state"), [("cancel", JobState.CANCELLED), ("pause", JobState.PAUSED)])
def test_kept_sandbox_ends_when_its_job_is_told_to(world, asked, state):
    job_id = world.start(FAILS, document={"interactive_config": {"keep_on_failure_seconds": 600}})
    world.wait(lambda: world.job(job_id).kept_until is not None, 20, job_id)

    world.request(job_id, asked)

    assert world.wait_for_end(job_id).state is state


@pytest.mark.parametrize("asked", ["requeue", "preempt"])
def test_kept_sandbox_makes_room_for_others_and_its_job_has_failed(world, asked):
    job_id = world.start(FAILS, document={"interactive_config": {"keep_on_failure_seconds": 600}})
    world.wait(lambda: world.job(job_id).kept_until is not None, 20, job_id)

    world.request(job_id, asked)
    ended = world.wait_for_end(job_id)

    assert (ended.state, ended.error_type) == (JobState.FAILED, "SCRIPT_ERROR")


@pytest.mark.long
def test_time_limit_ends_a_kept_sandbox(world):
    document = {"interactive_config": {"keep_on_failure_seconds": 600}}
    job_id = world.start(FAILS, document=document, max_runtime_seconds=3)

    assert world.wait_for_end(job_id).error_type == "MAX_RUNTIME_EXCEEDED"
    assert "job.kept" in kinds(world, job_id)


@pytest.mark.long
def test_kept_sandbox_ends_after_its_time_or_with_the_jobs(world):
    short = world.start(FAILS, document={"interactive_config": {"keep_on_failure_seconds": 1}})
    ended = world.wait_for_end(short)

    assert (ended.state, ended.error_type) == (JobState.FAILED, "SCRIPT_ERROR")
    assert "job.kept" in kinds(world, short)


@pytest.mark.long
def test_script_that_was_cancelled_or_succeeds_keeps_nothing(world):
    config = {"interactive_config": {"keep_on_failure_seconds": 600}}
    done = world.start("print('done')\n", document=config)
    assert world.wait_for_end(done).state is JobState.COMPLETED
    cancelled = world.start(SLEEPS, document=config)
    world.wait_for_line(cancelled, "ready")
    world.request(cancelled, "cancel")

    assert world.wait_for_end(cancelled).state is JobState.CANCELLED
    assert "job.kept" not in kinds(world, done) + kinds(world, cancelled)


@pytest.mark.long
def test_sessions_survive_the_failure_of_a_rank_whose_sandbox_stays(world):
    script = "import time, pathlib\nprint('ready', flush=True)\n"
    script += "while not pathlib.Path('fail').exists(): time.sleep(0.05)\nraise SystemExit(7)\n"
    job_id = world.start(script, document={"interactive_config": {"keep_on_failure_seconds": 600}})
    world.wait_for_line(job_id, "ready")
    endpoint = open_sandbox(world, job_id)

    with connected(world, endpoint, type="exec", command=["sh", "-c", "touch fail; sleep 1000"]) as (connection, _):
        world.wait(lambda: world.job(job_id).kept_until is not None, 20, job_id)
        connection.settimeout(5)  # longer than failed ranks are given
        with pytest.raises(TimeoutError):
            connection.recv(1)
    world.request(job_id, "cancel")
    world.wait_for_end(job_id)


def test_built_in_trainer_without_a_sandbox_is_not_opened(bare_world):
    world = bare_world
    job_id = world.submit(SLEEPS)
    work = replace(load_work(world.db, job_id, world.dispatch(job_id), node=NODE), framework="PYTORCH")
    told: list[object] = []
    calls = AccessCalls(place=pytest.fail, tell_agent=told.append, on_kept=pytest.fail, add=told.append, on_lost=print)
    access = SandboxAccess(world.db, work, Observations(custom=False), calls)

    access.begin("process")
    access.apply(ControlRequests(requested=None, pause_saves=True, checkpoint_requests=0, interactive=True))
    endpoint = endpoint_of(world, job_id)
    access.close()

    assert endpoint.port == 0
    assert "a shell in a job that runs no script of its own would be one of the node" in endpoint.message
    assert told == []


def test_shell_in_a_job_without_sandbox_is_for_scripts_alone(bare_world):
    world = bare_world
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")

    assert run(world, open_sandbox(world, job_id), "echo", "in") == ("in\n", 0)


@pytest.mark.long
@pytest.mark.skipif(find_spec("jupyterlab") is not None, reason="JupyterLab is here")
def test_notebook_without_jupyterlab_is_a_line_of_the_history_and_the_job_runs_on(world):
    script = "import pathlib, time\nwhile not pathlib.Path('end').exists(): time.sleep(0.05)\n"
    job_id = world.start(script, document={"interactive_config": {"notebook": True}})
    endpoint = endpoint_of(world, job_id)

    def said():
        return [event.message for event in world.events(job_id) if event.reason == "NOTEBOOK"]

    world.wait(lambda: bool(said()), 30, job_id)
    assert "add jupyterlab to training_config.packages" in said()[0]
    run(world, endpoint, "touch", "end")
    assert world.wait_for_end(job_id).state is JobState.COMPLETED
    assert len(said()) == 1


@pytest.mark.long
def test_output_on_a_terminal_is_the_log(world):
    script = (
        "import sys\nprint(sys.stdout.isatty())\nfor n in range(5000): print('line', n)\nsys.exit(sys.stdin.isatty())\n"
    )
    job_id = world.start(script, document={"interactive_config": {"terminal": True}})

    assert world.wait_for_end(job_id).state is JobState.COMPLETED, world.describe(job_id)
    assert world.log(job_id) == ["True", *(f"line {number}" for number in range(5000))]


def test_socket_that_the_job_replaced_by_a_link_leads_nowhere(world):
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")
    endpoint = open_sandbox(world, job_id)
    run(world, endpoint, "sh", "-c", f"cd .. && rm {SOCKET} && ln -s /run/other.sock {SOCKET}")

    with pytest.raises(AssertionError, match="no socket"):
        run(world, endpoint, "echo", "in")


@pytest.mark.long
@pytest.mark.usefixtures("no_memory_kills")
def test_attempt_that_restarts_in_place_is_open_again(world, free_port):
    document = {"interactive_config": {"ports": [{"name": "web", "port": free_port}]}}
    job_id = world.start(training(steps=200, pause=0.1, save_at=(1,)), document=document)
    world.wait_for_line(job_id, "step 2")
    first = endpoint_of(world, job_id)
    mark = b"RANK=0"
    (rank,) = [pid for pid in world.processes(job_id, 1) if mark in environment(pid)]
    os.kill(rank, signal.SIGKILL)
    world.wait(lambda: world.attempt_trains(job_id, 2), 20, job_id)

    again = endpoint_of(world, job_id)

    assert (again.attempt, again.port != first.port) == (2, True)
    assert run(world, again, "sh", "-c", "echo $TRAINYARD_ATTEMPT") == ("2\n", 0)
    world.request(job_id, "cancel")
    world.wait_for_end(job_id)
