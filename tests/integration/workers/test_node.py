"""A node worker on a real database: takes up, adopts, nudges, releases, cleans; its process needs no broker."""

import os
import platform
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from app.domain.lifecycle.states import JobState
from app.host import processes
from app.models import Job, Lease, Node
from tests.builders.statements import statements
from tests.systems.supervising import NODE, SLEEPS
from workers.node.attempt_manager import AttemptManager
from workers.node.node_config import NodeConfig
from workers.node.worker_step import InvalidNodeName, NodeThreads, lock_node_name, make_report
from workers.process_environment import settings_environment
from workers.run_dir.layout import run_directory


@pytest.fixture
def manager(world):
    return AttemptManager(world.settings, world.db, NODE)


@pytest.mark.long
def test_dispatched_attempt_is_taken_up_without_a_message(world, manager):
    job_id = world.submit("print('hello')\n")
    world.dispatch(job_id)

    manager.poll()

    assert world.wait_for_end(job_id).state is JobState.COMPLETED, world.describe(job_id)


def test_while_nothing_changes_only_the_counter_is_read(world, manager):
    manager.poll()

    with statements(world.db) as sent:
        manager.poll()
        manager.poll()

    assert [statement for statement in sent if "change" not in statement] == []


def test_attempts_of_other_nodes_are_left_alone(world):
    job_id = world.submit("print('hello')\n")
    world.dispatch(job_id)

    AttemptManager(world.settings, world.db, "another").poll()

    assert world.job(job_id).state is JobState.SCHEDULING


@pytest.mark.long
def test_nudge_makes_the_supervisor_read_a_control_request_at_once(world, manager):
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")
    with world.db.write() as session:
        job = session.get_one(Job, job_id)
        job.requested = "cancel"
    began = time.monotonic()

    manager.nudge(job_id)
    manager.poll()

    assert world.wait_for_end(job_id).state is JobState.CANCELLED
    assert time.monotonic() - began < 1.5


def test_dead_supervisor_is_released_without_waiting_for_its_lease(world, manager):
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")
    os.kill(world.lease(job_id).supervisor_pid, signal.SIGKILL)
    world.wait(lambda: not world.supervisor_alive(job_id, 1), 5)

    manager.poll()
    manager.poll()

    job = world.job(job_id)
    assert (job.state, job.error_type) == (JobState.QUEUED, "SUPERVISOR_LOST")
    assert world.processes(job_id) == []


@pytest.mark.long
def test_living_supervisor_of_an_earlier_worker_is_adopted(world, manager):
    job_id = world.start("import time\ntime.sleep(1.5)\nprint('done')\n")
    world.wait(lambda: world.lease(job_id).supervisor_pid is not None, 5, job_id)

    for _ in range(4):
        manager.poll()

    assert world.lease(job_id).released_at is None
    assert world.wait_for_end(job_id).state is JobState.COMPLETED


def test_supervisor_that_is_still_starting_is_not_taken_for_dead(world, manager):
    job_id = world.start("print('hello')\n")

    while world.lease(job_id).released_at is None:
        manager.poll()

    assert world.wait_for_end(job_id).state is JobState.COMPLETED, world.describe(job_id)


@pytest.mark.parametrize("place", ["another-boot/1", None])
def test_lease_of_another_place_is_left_to_run_out(world, manager, place):
    job_id = world.submit(SLEEPS)
    world.dispatch(job_id)
    with world.db.write() as session:
        lease = session.get_one(Lease, world.lease(job_id).id)
        lease.counter, lease.supervisor_pid, lease.supervisor_started, lease.boot_id = 1, 4_000_000, 1, place

    for _ in range(4):
        manager.poll()

    assert world.lease(job_id).released_at is None


def test_claim_whose_supervisor_was_never_started_is_released(world, manager):
    job_id = world.submit(SLEEPS)
    world.dispatch(job_id)
    with world.db.write() as session:
        lease = session.get_one(Lease, world.lease(job_id).id)
        lease.counter, lease.boot_id = 1, processes.place()
        session.get_one(Job, job_id).status = JobState.PREPARING

    manager.poll()
    manager.poll()

    assert world.lease(job_id).released_at is not None
    assert world.job(job_id).state is JobState.QUEUED


def test_leftover_run_directories_are_removed_and_living_ones_kept(world, manager):
    left = run_directory(world.data_dir, "job-of-yesterday", 3)
    left.make()
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")

    manager.poll()

    assert not left.path.parent.exists()
    assert run_directory(world.data_dir, job_id, 1).path.exists()
    world.request(job_id, "cancel")
    world.wait_for_end(job_id)


def straggler(job_id, attempt):
    """What a rank may leave behind: a process of its own session, which knows its attempt by the environment alone."""
    environment = {**os.environ, "TRAINYARD_JOB_ID": job_id, "TRAINYARD_ATTEMPT": str(attempt)}
    return subprocess.Popen(["sleep", "60"], env=environment, start_new_session=True)


@pytest.mark.parametrize("keep_runs", [False, True])
def test_processes_of_an_ended_attempt_are_killed_before_another_begins(world, keep_runs):
    settings = replace(world.settings, node=replace(world.settings.node, keep_runs=keep_runs))
    left = run_directory(world.data_dir, "job-of-yesterday", 3)
    left.make()
    job_id = world.submit("print('hello')\n")
    world.dispatch(job_id)

    with straggler("job-of-yesterday", 3) as process:
        AttemptManager(settings, world.db, NODE).poll()
        # Not by its exit code, which is the manager's to collect: the straggler is a child of this process.
        assert processes.start_ticks(process.pid) is None

    assert left.path.exists() == keep_runs


def test_node_offers_its_devices_only_when_no_dead_attempt_uses_them(world):
    run_directory(world.data_dir, "job-of-yesterday", 3).make()
    node = NodeThreads(world.settings, world.db)

    with straggler("job-of-yesterday", 3) as process:
        node._heartbeat()
        assert processes.start_ticks(process.pid) is None


@pytest.mark.parametrize("name", ["", "a:b", "a b", "-a", "a" * 64, "ä"])
def test_name_that_can_not_name_a_node_is_refused(world, name):
    settings = replace(world.settings, node=replace(world.settings.node, name=name or "."))

    with pytest.raises(InvalidNodeName, match="TRAINYARD_NODE_NAME"):
        make_report(settings, NodeConfig())


@pytest.fixture
def worker(world):
    """The real node process, with a broker that is not there."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRAINYARD_")}
    environment |= settings_environment(world.settings)
    environment |= {"TRAINYARD_BROKER_URL": "redis://127.0.0.1:1/0", "TRAINYARD_NODE_NAME": NODE}
    with (world.directory / "node.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "tasks.node"], env=environment, stdout=log, stderr=log)
    yield process
    process.kill()
    process.wait()


@pytest.mark.long
def test_node_process_registers_and_works_without_a_broker(world, worker):
    job_id = world.submit(SLEEPS)
    world.dispatch(job_id)

    world.wait_for_line(job_id, "ready", 20)
    with world.db.read() as session:
        node = session.get_one(Node, NODE)
    assert (node.sandbox, node.state, node.arch) == ("bubblewrap", "ready", platform.machine())
    world.request(job_id, "cancel")
    world.wait_for_end(job_id)


@pytest.mark.long
def test_sigterm_to_the_node_process_leaves_supervisors_alone(world, worker):
    job_id = world.submit("import time\nprint('ready', flush=True)\ntime.sleep(4)\nprint('done')\n")
    world.dispatch(job_id)
    world.wait_for_line(job_id, "ready", 20)

    worker.terminate()

    assert worker.wait(15) == 0
    assert world.wait_for_end(job_id).state is JobState.COMPLETED


def test_second_worker_of_a_name_is_refused(world):
    with lock_node_name(world.settings), pytest.raises(InvalidNodeName, match="already"):
        lock_node_name(world.settings)

    lock_node_name(world.settings).close()
