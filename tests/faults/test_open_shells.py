"""An open shell when a process of ours is killed or its job stops: it stays open, or its user reads why it ended."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.systems.installations import counting_job, running_system
from tests.systems.reachable_jobs import Commands, InTerminal
from tests.systems.system import System, wait_for
from tests.systems.with_gateway import answers, gateway_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(200)]

SOON = 8.0  # promised is a second or two; a busy machine may take longer
FAILS = """
import os, sys, time

if int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
    sys.exit(3)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("shells") / "system"
    settings = {"TRAINYARD_QUARANTINE_FAULTS": "0", "TRAINYARD_SCHEDULER_RETRY_BASE_SECONDS": "0.1"}
    with running_system(folder, owned_pids, "n1", "n2", **settings) as started, gateway_of(started):
        yield started


@pytest.fixture
def commands(system: System, tmp_path: Path, owned_pids: set[int]) -> Iterator[Commands]:
    yield Commands(tmp_path, f"http://127.0.0.1:{system.port}", system.key)
    owned_pids.update(map(system.pid, ("gateway", "node-n1", "node-n2")))  # which a test may have started again


@pytest.fixture
def job_id(system: System) -> Iterator[str]:
    """A job that counts for long."""
    made = system.submit(counting_job(steps=3000, step_seconds=0.1))
    system.wait_for_step(made, 1)
    yield made
    system.call("POST", f"/v1/jobs/{made}/cancel", {})
    wait_for(lambda: not system.processes_of(made), seconds=20, what="no process of the job left")


@contextmanager
def shell(commands: Commands, job_id: str, *options: str) -> Iterator[InTerminal]:
    """An open one, which has answered."""
    opened = commands.in_terminal("shell", job_id, *options)
    try:
        opened.type(b"stty -echo; echo r''eady\r")
        opened.until(b"ready")
        yield opened
    finally:
        opened.close()


def sessions_of(system: System, job_id: str) -> list[dict[str, Any]]:
    return list(system.get(f"/v1/jobs/{job_id}/sessions")["sessions"])


def audited_end(system: System, job_id: str) -> str:
    """The reason in the audit trail, of the only session of this job."""

    def ends() -> list[str]:
        entries = system.get(f"/v1/audit?action=session.end&target={job_id}")["entries"]
        return [each["message"] for each in entries]

    found = wait_for(ends, seconds=SOON, what="a line about the session's end")
    assert len(found) == 1
    (session,) = sessions_of(system, job_id)
    assert (session["status"], session["end_reason"], session["exit_code"]) == ("ended", found[0], None)
    return str(found[0])


def ended_with(open_shell: InTerminal, cause: Callable[[], object]) -> str:
    """What its user has read when it has ended, which was soon."""
    cause()
    began = time.monotonic()
    assert open_shell.ended() == 255
    assert time.monotonic() - began < SOON
    return open_shell.heard.decode()


def session_server_of(system: System, job_id: str) -> psutil.Process:
    below = system.supervisor_of(job_id).children(recursive=True)
    return next(each for each in below if _is_session_server(each))


def _is_session_server(process: psutil.Process) -> bool:
    try:
        return "workers.rank.sessions" in process.cmdline()
    except psutil.Error:  # it has just ended
        return False


def test_it_goes_on_while_its_node_worker_is_restarted(system: System, commands: Commands, job_id: str) -> None:
    node = f"node-{system.job(job_id)['node_names'][0]}"
    with shell(commands, job_id) as opened:
        system.kill(node)
        opened.type(b"echo with''out\r")
        opened.until(b"without")
        system.start_node(node.removeprefix("node-"))
        adopted = f"job {job_id} attempt 1 runs under supervisor"
        wait_for(lambda: adopted in system.log(node), seconds=30, what="the node has its attempts again")
        opened.type(b"echo ag''ain; exit 7\r")
        opened.until(b"again")

        assert opened.ended() == 7
    assert [(each["exit_code"], each["end_reason"]) for each in sessions_of(system, job_id)] == [
        (7, "the command has ended with exit code 7")
    ]


def test_a_killed_supervisor_ends_it(system: System, commands: Commands, job_id: str) -> None:
    with shell(commands, job_id) as opened:
        said = ended_with(opened, lambda: system.supervisor_of(job_id).kill())

    reason = audited_end(system, job_id)
    assert reason in said.replace("\r\n", " ")
    assert reason.startswith("attempt 1 of its job has ended")


def test_a_killed_session_server_ends_it_and_the_next_one_begins(
    system: System, commands: Commands, job_id: str
) -> None:
    with shell(commands, job_id) as opened:
        said = ended_with(opened, lambda: session_server_of(system, job_id).kill())

    assert "the connection to the job's sandbox has broken" in said
    assert "if the job still runs, open another session" in audited_end(system, job_id)
    done = commands.run("exec", job_id, "--", "echo", "again")
    assert (done.stdout, done.stderr) == (b"again\n", b"")
    assert system.job(job_id)["attempt"] == 1


def test_a_killed_gateway_ends_it_and_a_coordinator_says_so(system: System, commands: Commands, job_id: str) -> None:
    with shell(commands, job_id) as opened:
        said = ended_with(opened, lambda: system.kill("gateway"))
    system.start_gateway()
    wait_for(lambda: answers(system.gateway_port), seconds=30, what="the gateway listens again")

    assert "the connection to the gateway broke" in said
    with sqlite3.connect(system.data_dir / "trainyard.db") as database:  # the minute that a coordinator waits
        database.execute("UPDATE interactive_session SET seen_at = '2020-01-01 00:00:00' WHERE job_id = ?", [job_id])
    wait_for(lambda: sessions_of(system, job_id)[0]["ended_at"], seconds=60, what="its end")
    assert audited_end(system, job_id) == "its gateway has stopped answering"
    server = session_server_of(system, job_id)
    wait_for(lambda: not server.children(recursive=True), seconds=SOON, what="the shell has ended in the sandbox, too")


@pytest.mark.parametrize(
    ("verb", "why"),
    [("pause", "its job was paused"), ("cancel", "its job has ended, CANCELLED"), ("preempt", "PREEMPTED")],
)
def test_a_job_that_stops_ends_it(system: System, commands: Commands, job_id: str, verb: str, why: str) -> None:
    with shell(commands, job_id) as opened:
        said = ended_with(opened, lambda: system.call("POST", f"/v1/jobs/{job_id}/{verb}", {}))

    reason = audited_end(system, job_id)
    assert why in reason
    assert reason[:60] in said.replace("\r\n", " ")


def kept(system: System, **changes: Any) -> str:
    """A job whose script has failed and whose sandbox stays."""
    document = counting_job(interactive_config={"keep_on_failure_seconds": 600}, **changes)
    document["training_config"]["framework"] = {"type": "CUSTOM", "custom_script_path": "fails.py"}
    (system.inputs / "fails.py").write_text(FAILS)
    job_id = system.submit(document)
    wait_for(lambda: system.job(job_id)["kept_until"], seconds=60, what=f"{job_id} is kept")
    return job_id


def test_a_drained_supervisor_ends_a_kept_sandbox_and_the_job_has_failed(system: System, commands: Commands) -> None:
    job_id = kept(system)
    with shell(commands, job_id) as opened:
        said = ended_with(opened, lambda: system.supervisor_of(job_id).terminate())

    job = wait_for(lambda: _with_status(system, job_id, "FAILED"), seconds=20, what="it has failed")
    assert job["kept_until"] is None
    reason = audited_end(system, job_id)
    assert "FAILED" in reason
    assert reason[:60] in said.replace("\r\n", " ")


def test_the_part_of_a_gang_that_failed_stays_and_can_be_entered(system: System, commands: Commands) -> None:
    job_id = kept(system, resource_config={"gpu_count": 2, "device_type": "cpu", "node_count": 2})
    with shell(commands, job_id, "--rank", "1") as opened:
        opened.type(b"echo rank=$RANK.\r")
        opened.until(b"rank=1.")
        assert commands.run("release", job_id).returncode == 0
        assert opened.ended() == 255
    wait_for(lambda: _with_status(system, job_id, "FAILED"), seconds=30, what="it has failed")
    wait_for(lambda: not system.processes_of(job_id), seconds=20, what="no process of the job left")


def _with_status(system: System, job_id: str, status: str) -> dict[str, Any] | None:
    job = system.job(job_id)
    return job if job["status"] == status else None
