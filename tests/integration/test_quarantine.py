"""Nodes that fail one job after the other, from the ends of real attempts to the administrator who enables them."""

from datetime import timedelta
from pathlib import Path

import pytest

from app.cli.administrator import ADMINISTRATOR
from app.cli.node_drain import NodeDrain
from app.domain.job_state import JobState
from app.domain.quarantine import QuarantineRule
from app.extensions import Database
from app.models import AuditEntry, Job, Lease, Node, NodeFault
from app.models.base import utc_now
from app.services import cluster, node_verbs, nodes, quarantine, scheduling
from app.services.endings import Outcome, end_attempt
from app.services.leases import NO_RETRY
from tests.commands import run
from tests.factories import make_attempt, make_job, make_node

RULE = QuarantineRule(faults=3, window_seconds=3600)
BROKEN = Outcome(kind="failed", cause="INTERNAL")


@pytest.fixture
def known(database: Database) -> Database:
    with database.write() as session:
        make_node(session, "a", devices=4)
    return database


def fail(db: Database, *outcomes: Outcome) -> None:
    """Each another job's only attempt."""
    for outcome in outcomes:
        with db.write() as session:
            job = make_job(session, state=JobState.TRAINING)
            make_attempt(session, job, session.get_one(Node, "a"), device_indices=())
            end_attempt(session, job, job.attempt, outcome, NO_RETRY, actor="test")


def state(db: Database) -> tuple[str, str]:
    with db.read() as session:
        node = session.get_one(Node, "a")
        return node.state, node.quarantine_reason


def look(db: Database, rule: QuarantineRule = RULE) -> list[str]:
    return quarantine.look(db, rule, actor="coordinator@x")


def test_three_jobs_that_fail_by_its_doing_and_it_gets_no_more(known: Database) -> None:
    fail(known, BROKEN, Outcome(kind="failed", cause="SCRIPT_ERROR"), BROKEN)
    assert look(known) == []

    fail(known, Outcome(kind="cancelled", left_behind=True))

    assert look(known) == ["a"]
    assert look(known) == [], "once"
    reason = "attempts of 3 jobs ended by its doing within 3600 s: INTERNAL (2), PROCESS_STUCK (1)"
    assert state(known) == ("quarantined", reason)
    with known.write() as session:
        make_job(session)
    assert scheduling.plan_once(known) == []
    with known.read() as session:
        assert cluster.nodes_by_state(session)["quarantined"] == 1
        entry = session.query(AuditEntry).where(AuditEntry.action == "node.quarantine").one()
    assert (entry.actor, entry.target, entry.message) == ("coordinator@x", "a", reason)


def test_what_runs_there_goes_on(known: Database) -> None:
    with known.write() as session:
        job = make_job(session, state=JobState.TRAINING)
        make_attempt(session, job, session.get_one(Node, "a"))
    fail(known, BROKEN, BROKEN, BROKEN)

    look(known)

    with known.read() as session:
        running = session.get_one(Job, job.id)
        assert (running.state, running.requested) == (JobState.TRAINING, None)
        assert session.query(Lease).where(Lease.job_id == job.id, Lease.released_at.is_(None)).count() == 1


def test_neither_a_heartbeat_nor_a_restart_nor_silence_changes_it(known: Database) -> None:
    fail(known, BROKEN, BROKEN, BROKEN)
    look(known)

    assert nodes.heartbeat(known, "a") == "quarantined"
    (beat,) = nodes.heartbeats(known)
    nodes.mark_lost(known, "a", heartbeat_seen=beat.counter)

    assert (state(known)[0], beat.is_ready) == ("quarantined", False)


def test_enabling_it_begins_anew(known: Database) -> None:
    fail(known, BROKEN, BROKEN, BROKEN)
    look(known)

    node_verbs.enable(known, ADMINISTRATOR, "a")

    assert state(known) == ("ready", "")
    fail(known, BROKEN, BROKEN)
    assert look(known) == []
    fail(known, BROKEN)
    assert look(known) == ["a"]


def test_it_can_be_drained(known: Database) -> None:
    fail(known, BROKEN, BROKEN, BROKEN)
    look(known)

    assert node_verbs.drain(known, ADMINISTRATOR, "a").node.state == "draining"
    assert nodes.heartbeat(known, "a") == "drained"
    assert look(known) == [], "not twice"
    assert node_verbs.enable(known, ADMINISTRATOR, "a").node.state == "ready"


def test_a_stop_of_the_whole_machine_does_not_free_it(known: Database, tmp_path: Path) -> None:
    fail(known, BROKEN, BROKEN, BROKEN)
    look(known)
    drain = NodeDrain(known, "a", tmp_path)

    drain.begin()
    drain.undo()

    assert state(known)[0] == "quarantined"


def test_what_is_long_ago_does_not_count_and_is_forgotten(known: Database) -> None:
    fail(known, BROKEN, BROKEN, BROKEN)
    with known.write() as session:
        session.query(NodeFault).first().at = utc_now() - timedelta(seconds=3601)  # type: ignore[union-attr]

    assert look(known) == []
    quarantine.drop_old(known, RULE)

    with known.read() as session:
        assert session.query(NodeFault).count() == 2


def test_it_can_be_turned_off(known: Database) -> None:
    fail(known, BROKEN, BROKEN, BROKEN)

    assert look(known, QuarantineRule(faults=0, window_seconds=3600)) == []
    assert state(known)[0] == "ready"


def test_people_are_told(db: Database) -> None:
    with db.write() as session:
        make_node(session, "a", state="quarantined", quarantine_reason="attempts of 3 jobs ended by its doing")

    listed, shown = run("nodes", "list").stdout, run("nodes", "show", "a").stdout

    assert "a was quarantined: attempts of 3 jobs ended by its doing" in listed
    assert "quarantine_reason" in shown
