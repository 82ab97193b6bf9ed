"""One attempt with a real supervisor on each of two nodes: they meet, and whatever ends one of them ends both."""

import hashlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.models import Artifact, Job, Lease, Node, Reservation
from app.services.attempts import artifacts
from app.services.scheduling import planner
from app.storage.logs import LogReader
from config.settings import Settings
from tests.builders.factories import make_node, make_project
from tests.systems.people import endpoint_of, open_sandbox, run
from tests.systems.supervising import NODE, World, rows
from workers.node.attempt_manager import AttemptManager

OTHER = "other"
MEETS = """
import os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
print("rank", rank, "of", world, "local", os.environ["LOCAL_RANK"], "node", os.environ["NODE_RANK"], flush=True)
if rank == 0:
    with socket.create_server(place) as server:
        others = [server.accept()[0] for _ in range(world - 1)]
        for other in others:
            other.sendall(b"go")
else:
    for _ in range(200):
        try:
            connection = socket.create_connection(place)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    assert connection.recv(2) == b"go"
print("met", flush=True)
"""
SLEEPS = MEETS + "time.sleep(120)\n"
WRITES = """
for name in (f"rank-{rank}", f".note-{rank}"):
    with open(os.environ["TRAINYARD_OUTPUT_DIR"] + "/" + name, "w") as file:
        file.write("result")
"""
# Rank 2 stays until it is killed; rank 0, on the other node, ends soon after it has lost rank 3: in two seconds, as
# that many may pass on a busy machine until rank 3's node has seen it.
LOSES = """
import select, signal
if rank == 0:
    select.select(others, [], [])
    time.sleep(2)
    raise SystemExit("lost a rank")
if rank == 2:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if rank == 3:
    BREAKS
time.sleep(120)
"""
Start = Callable[..., str]


@pytest.fixture
def start(any_world: World) -> Start:
    """Runs a script on both nodes, two ranks on each; which of them is the first their names decide."""

    def run(script: str, on: Sequence[str] = (NODE, OTHER), capabilities: Sequence[str] = (), **more: object) -> str:
        with any_world.db.write() as session:
            make_node(session, OTHER, devices=4).capabilities = [*capabilities]
        resources = {"resource_config": {"gpu_count": 2, "node_count": 2, "device_type": "cpu"}}
        job_id = any_world.submit(script, ranks=2)
        with any_world.db.write() as session:
            job = session.get_one(Job, job_id)
            job.spec = {**job.spec, **resources, **more}
            job.status = JobState.QUEUED
        begin(any_world, job_id, on)
        return job_id

    return run


def begin(world: World, job_id: str, on: Sequence[str] = (NODE, OTHER)) -> None:
    for placed in planner.plan_once(world.db):
        if placed.node in on:
            take_up(world, job_id, placed.attempt, placed.node)


def take_up(world: World, job_id: str, attempt: int, node: str) -> None:
    assert world.start_supervisor(job_id, attempt, settings_of(world, node), node)


def settings_of(world: World, node: str) -> Settings:
    return replace(world.settings, node=replace(world.settings.node, name=node))


def all_lines(world: World, job_id: str, text: str) -> set[int]:
    """The ranks that have said it."""
    lines = LogReader(world.storage, job_id).read(live=False, limit=10_000)
    return {line.rank for line in lines if text in line.line}


def wait_until_met(world: World, job_id: str) -> None:
    world.wait(lambda: all_lines(world, job_id, "met") == {0, 1, 2, 3}, 20.0, job_id)


def lease_of(world: World, job_id: str, node: str) -> Lease:
    return next(each for each in rows(world, Lease, job_id=job_id, node=node) if each.released_at is None)


@pytest.mark.long
@pytest.mark.parametrize("failing", [0, 3])
def test_when_a_rank_fails_anywhere_all_end_and_the_cause_is_reported(
    any_world: World, start: Start, failing: int
) -> None:
    job_id = start(SLEEPS.replace("time.sleep(120)", f"rank == {failing} and exit(7)\ntime.sleep(120)"))

    job = any_world.wait_for_end(job_id)

    assert job.state is JobState.FAILED, any_world.describe(job_id)
    assert (job.error_type, any_world.attempt(job_id).exit_code) == ("SCRIPT_ERROR", 7)
    assert f"rank {failing} ended with exit code 7" in (job.error_message or "")
    assert any_world.processes(job_id) == []
    assert rows(any_world, Reservation) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("breaks", "state", "cause", "said"),
    [
        ("os._exit(7)", JobState.FAILED, "SCRIPT_ERROR", "rank 3 ended with exit code 7"),
        ("os.kill(os.getpid(), 9)", JobState.QUEUED, "RANK_KILLED", "rank 3 was killed from outside"),
    ],
)
def test_the_first_error_is_reported_though_its_node_ends_last(
    any_world: World, start: Start, breaks: str, state: JobState, cause: str, said: str
) -> None:
    job_id = start(MEETS + LOSES.replace("BREAKS", breaks))

    job = any_world.wait_for_end(job_id)

    assert job.state is state, any_world.describe(job_id)
    assert any_world.attempt(job_id).cause == cause
    assert said in (job.error_message or "")


@pytest.mark.long
def test_gang_whose_project_demands_a_network_of_its_own_does_not_begin(any_world: World, start: Start) -> None:
    with any_world.db.write() as session:
        make_project(session).quota = {"required_capabilities": ["sandbox:network"]}
        session.get_one(Node, NODE).capabilities = ["sandbox:network"]

    job_id = start(MEETS, capabilities=["sandbox:network"])

    job = any_world.wait_for_end(job_id)
    assert (job.state, job.error_type) == (JobState.FAILED, "INVALID_CONFIG"), any_world.describe(job_id)
    assert "sandbox:network" in (job.error_message or "")


@pytest.mark.long
def test_each_node_copies_the_log_of_its_ranks(any_world: World, start: Start) -> None:
    place = any_world.directory / "mine" / "logs"
    job_id = start(MEETS, output_config={"log_path": str(place)})

    assert any_world.wait_for_end(job_id).state is JobState.COMPLETED, any_world.describe(job_id)

    names = {str(path.relative_to(place / job_id)) for path in place.rglob("*.log")}
    assert names == {f"attempt-1-node-{rank // 2}/rank-{rank}.log" for rank in range(4)}


@pytest.mark.long
def test_ranks_start_when_all_nodes_are_prepared_and_the_job_is_completed_once(any_world: World, start: Start) -> None:
    job_id = start(MEETS + WRITES, on=(OTHER,))
    any_world.wait(lambda: (any_world.attempt(job_id).rendezvous or {}).get("prepared") == [1], 20.0, job_id)
    assert all_lines(any_world, job_id, "") == set()

    take_up(any_world, job_id, 1, NODE)

    assert any_world.wait_for_end(job_id).state is JobState.COMPLETED, any_world.describe(job_id)
    place = (any_world.attempt(job_id).rendezvous or {})["place"]
    assert (place["address"], place["checkpoint_id"]) == ("127.0.0.1", None)
    assert all_lines(any_world, job_id, "met") == {0, 1, 2, 3}
    said = [line for line in any_world.log(job_id) if line.startswith("rank ")]
    assert sorted(said) == [f"rank {rank} of 4 local {rank % 2} node {rank // 2}" for rank in range(4)]
    assert rows(any_world, Reservation) == []
    assert any_world.states(job_id).count("COMPLETED") == 1
    assert {row.path for row in rows(any_world, Artifact, job_id=job_id)} >= {"rank-0", "rank-1", ".note-0"}
    folder = "node-outputs/attempt-1-node-1"
    (told,) = [event for event in any_world.events(job_id) if event.type == EventType.EXPORTED]
    assert told.data.items() >= {"node": any_world.attempt(job_id).node_names[1], "folder": folder, "files": 4}.items()
    stored = {row.path: row for row in rows(any_world, Artifact, job_id=job_id) if row.path.startswith("node-outputs/")}
    assert stored.keys() == {f"{folder}/{name}" for name in ("rank-2", "rank-3", ".note-2", ".note-3")}
    assert {row.sha256 for row in stored.values()} == {hashlib.sha256(b"result").hexdigest()}
    assert not any(row.pending for row in stored.values())
    with artifacts.opened(any_world.storage, stored[f"{folder}/rank-3"]) as file:
        assert file.read() == b"result"
    assert len([e for e in any_world.events(job_id) if e.type == "attempt_ended"]) <= 1
    assert any_world.processes(job_id) == []


@pytest.mark.long
def test_cancel_ends_the_ranks_of_both_nodes(any_world: World, start: Start) -> None:
    job_id = start(SLEEPS)
    wait_until_met(any_world, job_id)

    any_world.request(job_id, "cancel")
    job = any_world.wait_for_end(job_id)

    assert job.state is JobState.CANCELLED, any_world.describe(job_id)
    assert any_world.processes(job_id) == []
    assert rows(any_world, Reservation) == []


@pytest.mark.long
def test_a_script_on_several_nodes_is_ended_for_a_pause(any_world: World, start: Start) -> None:
    job_id = start("from trainyard import hooks\nhooks.init()\n" + SLEEPS)
    wait_until_met(any_world, job_id)

    any_world.request(job_id, "pause", pause_force=True)
    job = any_world.wait_for_end(job_id)

    assert job.state is JobState.PAUSED, any_world.describe(job_id)
    assert any_world.attempt(job_id).can_checkpoint is not True
    assert any_world.processes(job_id) == []


@pytest.mark.long
@pytest.mark.parametrize("lost", [NODE, OTHER])
def test_when_a_supervisor_is_killed_the_job_goes_on_as_a_whole(any_world: World, start: Start, lost: str) -> None:
    job_id = start(SLEEPS)
    wait_until_met(any_world, job_id)
    lease = lease_of(any_world, job_id, lost)
    assert lease.supervisor_pid is not None

    os.kill(lease.supervisor_pid, signal.SIGKILL)
    any_world.wait(lambda: lease.supervisor_pid not in any_world.processes(job_id), 5.0, job_id)
    manager = AttemptManager(settings_of(any_world, lost), any_world.db, lost)

    def is_queued() -> bool:
        manager.poll()
        return any_world.job(job_id).state is JobState.QUEUED

    any_world.wait(is_queued, 20.0, job_id)

    assert any_world.attempt(job_id).cause == "SUPERVISOR_LOST"
    assert any_world.processes(job_id) == []
    begin(any_world, job_id)
    any_world.wait(lambda: any_world.job(job_id).state is JobState.TRAINING, 20.0, job_id)
    assert any_world.job(job_id).attempt == 2


@pytest.mark.long
def test_each_node_opens_the_sandbox_of_its_part(any_world: World, start: Start) -> None:
    job_id = start(SLEEPS)
    wait_until_met(any_world, job_id)
    open_sandbox(any_world, job_id)
    any_world.nudge(job_id)

    found = {}
    for rank in (0, 3):
        endpoint = endpoint_of(any_world, job_id, rank=rank)
        found[rank] = run(any_world, endpoint, "sh", "-c", "echo $RANK $NODE_RANK", rank=rank)

    assert found == {0: ("0 0\n", 0), 3: ("3 1\n", 0)}
    any_world.request(job_id, "cancel")
    assert any_world.wait_for_end(job_id).state is JobState.CANCELLED
