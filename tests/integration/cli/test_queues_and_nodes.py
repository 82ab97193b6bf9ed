"""`trainyard queues` and `trainyard nodes`: pausing, limiting, draining and forgetting, on a database of each kind."""

import pytest

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.models import AuditEntry, Device, Job, Node
from app.services.scheduling import planner
from tests.builders.factories import make_attempt, make_job, make_node
from tests.systems.commands import run_local, run_local_json


def actions(db: Database) -> list[tuple[str, str, str]]:
    with db.read() as session:
        entries = session.query(AuditEntry).where(AuditEntry.action.regexp_match("^(queue|node)[.]"))
        return [(entry.actor, entry.action, entry.target) for entry in entries.order_by(AuditEntry.id)]


def test_a_queue_is_paused_resumed_and_limited(db: Database) -> None:
    run_local_json("queues", "create", "night")
    with db.write() as session:
        make_node(session)
        job_id = make_job(session, queue="night").id

    assert run_local_json("queues", "pause", "night")["paused"] is True
    assert planner.plan_once(db) == []
    assert "is paused" in run_local("queues", "show", "night").stdout
    assert run_local("queues", "resume", "night").stdout == "night open\n"
    assert [dispatched.job_id for dispatched in planner.plan_once(db)] == [job_id]
    limited = run_local_json("queues", "limit", "night", "--running", "2", "--waiting", "0")
    assert (limited["max_running_jobs"], limited["max_waiting_jobs"]) == (2, 0)
    said = run_local("queues", "limit", "night", "--no-waiting").stdout
    assert said == "night open, running at most 2\n"
    assert actions(db) == [("cli", "queue.create", "night"), *[("cli", "queue.patch", "night")] * 4]


def test_a_nodes_devices_are_shown_with_their_links(db: Database) -> None:
    with db.write() as session:
        make_node(session, "gpu-1", devices=2, device_type="h200").devices[1].link_group = 7

    *_, head, first, second = run_local("nodes", "show", "gpu-1").stdout.splitlines()

    assert "link group" in head
    assert first.split() == ["0", "h200", "0", "False", "0"]
    assert second.split() == ["1", "h200", "0", "False", "7", "0"]


def test_making_a_queue_again_leaves_it_as_it_is(db: Database) -> None:
    run_local_json("queues", "create", "night")
    run_local_json("queues", "pause", "night")

    assert run_local_json("queues", "create", "night")["paused"] is True
    assert run_local("queues", "create", "night").stdout == "night\n"


def test_queues_are_listed_with_their_limits(db: Database) -> None:
    with db.write() as session:
        make_job(session, state=JobState.TRAINING)
    run_local_json("queues", "limit", "default", "--running", "7")
    run_local_json("queues", "weight", "default", "2.5")

    lines = run_local("queues", "list").stdout.splitlines()

    assert lines[0].split() == ["name", "status", "waiting", "max", "waiting", "running", "max", "running", "weight"]
    assert lines[1].split()[:3] == ["default", "open", "0"]
    assert lines[1].split()[-3:] == ["1", "7", "2.5"]
    assert run_local_json("queues", "weight", "default", "--none")["weight"] is None


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["limit", "default"], 2),
        (["limit", "default", "--running", "0"], 2),
        (["limit", "default", "--running", "2", "--no-running"], 2),
        (["limit", "nigth", "--running", "2"], 1),
        (["pause", "nigth"], 1),
        (["weight", "default"], 2),
        (["weight", "default", "0"], 2),
        (["weight", "default", "2", "--none"], 2),
        (["resume", "nigth"], 1),
    ],
)
def test_what_cannot_be_changed_is_reported(arguments: list[str], code: int) -> None:
    answer = run_local("queues", *arguments)

    assert answer.exit_code == code
    assert "Error: " in answer.stderr


@pytest.mark.long
def test_draining_may_send_jobs_back(db: Database) -> None:
    with db.write() as session:
        job = make_job(session, state=JobState.TRAINING)
        make_attempt(session, job, make_node(session, "gpu-1"))

    assert run_local("nodes", "drain", "gpu-1", "--requeue").stdout == "gpu-1 draining, requeued jobs: 1\n"
    with db.read() as session:
        assert session.get_one(Job, job.id).requested == "requeue"
    assert run_local_json("nodes", "enable", "gpu-1") == {"name": "gpu-1", "status": "ready"}
    assert actions(db) == [("cli", "node.drain", "gpu-1"), ("cli", "node.enable", "gpu-1")]


def test_a_node_is_labelled_beside_what_its_file_says(db: Database) -> None:
    with db.write() as session:
        make_node(session, "gpu-1", labels=["rack-7"])

    assert run_local("nodes", "label", "gpu-1", "fast", "new", "fast").stdout == "gpu-1: rack-7, fast, new\n"
    assert run_local_json("nodes", "label", "gpu-1", "big", "--remove", "new")["admin_labels"] == ["fast", "big"]
    assert run_local("nodes", "label", "gpu-1", "rack-7").stdout == "gpu-1: rack-7, fast, big\n"
    assert actions(db) == [("cli", "node.label", "gpu-1")] * 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["gpu-1"], 2, "give labels to add, or use --remove"),
        (["gpu-1", "zone=eu"], 2, "'zone=eu' must be 1 to 128 of letters"),
        (["gpu-1", "--remove", "slow"], 1, "node gpu-1 is not labelled 'slow'; it has: rack-7"),
        (["gpu-1", "--remove", "rack-7"], 1, "rack-7 is set in the node.toml of gpu-1"),
        (["gpu-2", "fast"], 1, "no node 'gpu-2'; known: gpu-1"),
    ],
)
def test_labels_that_can_not_be_given_or_taken(db: Database, arguments: list[str], code: int, said: str) -> None:
    with db.write() as session:
        make_node(session, "gpu-1", labels=["rack-7"])

    answer = run_local("nodes", "label", *arguments)

    assert (answer.exit_code, said in answer.stderr) == (code, True)
    assert actions(db) == []


@pytest.mark.both_databases
def test_a_lost_node_is_forgotten_with_its_devices(db: Database) -> None:
    with db.write() as session:
        make_node(session, "gpu-1", state="lost")
        make_node(session, "gpu-2")

    assert run_local("nodes", "remove", "gpu-1").stdout == "gpu-1 removed\n"

    with db.read() as session:
        assert [node.name for node in session.query(Node)] == ["gpu-2"]
        assert {device.node for device in session.query(Device)} == {"gpu-2"}
    assert actions(db) == [("cli", "node.remove", "gpu-1")]


@pytest.mark.parametrize(
    ("state", "way_out"),
    [
        ("ready", "stop its worker first"),
        ("draining", "enable it and wait until it counts as lost"),
        ("drained", "enable it and wait until it counts as lost"),
    ],
)
def test_only_a_lost_node_is_forgotten(db: Database, state: str, way_out: str) -> None:
    with db.write() as session:
        make_node(session, "gpu-1", state=state)

    answer = run_local("nodes", "remove", "gpu-1")

    assert answer.exit_code == 1
    assert way_out in answer.stderr
    assert run_local_json("nodes", "show", "gpu-1")["status"] == state


def test_a_node_whose_attempt_is_not_ended_yet_stays(db: Database) -> None:
    with db.write() as session:
        make_attempt(session, make_job(session), make_node(session, "gpu-1", state="lost"))

    answer = run_local("nodes", "remove", "gpu-1")

    assert (answer.exit_code, "attempts still hold node gpu-1" in answer.stderr) == (1, True)
    assert run_local("nodes", "remove", "gpu-2").exit_code == 1
