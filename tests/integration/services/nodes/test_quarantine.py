"""Nodes that fail one job after the other, from the ends of real attempts to the administrator who enables them.

Here the jobs that fail on the node `a` get through on `b`, but where a test says otherwise.
"""

from datetime import timedelta
from pathlib import Path

import pytest

from app.cli.local.node_drain import NodeDrain
from app.database.engine import Database
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.domain.nodes.quarantine import QuarantineRule
from app.models import AuditEntry, Job, Lease, Node, NodeFault
from app.models.base import utc_now
from app.services.access.api_keys import ADMINISTRATOR
from app.services.nodes import maintenance, quarantine, registry, reliability
from app.services.operations import cluster_summary
from app.services.scheduling import planner
from tests.builders.factories import make_attempt, make_job, make_node
from tests.builders.recovering import tried_on
from tests.systems.commands import run_local

pytestmark = pytest.mark.both_databases

RULE = QuarantineRule(faults=3, window_seconds=3600)
BROKEN = Outcome(kind="failed", cause="INTERNAL")


@pytest.fixture
def known(database: Database) -> Database:
    with database.write() as session:
        make_node(session, "a", devices=4)
        make_node(session, "b", state="drained")
        for name in ("a", "b"):
            reliability.begin(session, name)
    return database


def fail(db: Database, *outcomes: Outcome) -> None:
    """Each of another job on `a`; what is tried again gets through on `b`."""
    for job_id in fail_alone(db, *outcomes):
        with db.read() as session:
            is_tried_again = session.get_one(Job, job_id).state is JobState.QUEUED
        if is_tried_again:
            tried_on(db, job_id, "b")


def fail_alone(db: Database, *outcomes: Outcome) -> list[str]:
    """The same without a second attempt; returns the jobs."""
    with db.write() as session:
        jobs = [make_job(session).id for _ in outcomes]
    for job_id, outcome in zip(jobs, outcomes, strict=True):
        tried_on(db, job_id, "a", outcome)
    return jobs


def reputation(db: Database, name: str) -> float:
    with db.read() as session:
        return round(reliability.reputations(session)[name], 6)


def state(db: Database) -> tuple[str, str]:
    with db.read() as session:
        node = session.get_one(Node, "a")
        return node.state, node.quarantine_reason


def look(db: Database, rule: QuarantineRule = RULE) -> list[str]:
    return quarantine.evaluate(db, rule, actor="coordinator@x")


def test_a_node_that_fails_three_jobs_gets_no_more(known: Database) -> None:
    fail(known, BROKEN, Outcome(kind="failed", cause="SCRIPT_ERROR"), BROKEN)
    assert look(known) == []

    fail(known, Outcome(kind="cancelled", left_behind=True))

    assert look(known) == ["a"]
    assert look(known) == [], "once"
    reason = "attempts of 3 jobs were ended by the node within 3600 s: INTERNAL (2), PROCESS_STUCK (1)"
    assert state(known) == ("quarantined", reason)
    with known.write() as session:
        make_job(session)
    assert planner.plan_once(known) == []
    with known.read() as session:
        assert cluster_summary.nodes_by_state(session)["quarantined"] == 1
        entry = session.query(AuditEntry).where(AuditEntry.action == "node.quarantine").one()
    assert (entry.actor, entry.target, entry.message) == ("coordinator@x", "a", reason)


LOST = Outcome(kind="failed", cause="SUPERVISOR_LOST", end_step=7)


@pytest.mark.parametrize("cause", ["INTERNAL", "NODE_LOST", "SUPERVISOR_LOST", "OUTCOME_ERROR"])
def test_what_no_other_node_did_better_is_held_against_none(known: Database, cause: str) -> None:
    jobs = fail_alone(known, *[Outcome(kind="failed", cause=cause, end_step=7)] * 3)

    assert look(known) == []
    for job_id in jobs:
        tried_on(known, job_id, "b", Outcome(kind="failed", cause=cause, end_step=7))

    assert look(known) == []
    assert (reputation(known, "a"), reputation(known, "b")) == (1.0, 1.0)


def test_a_node_on_which_the_job_got_further_itself_is_cleared(known: Database) -> None:
    ended, paused, _ = fail_alone(known, LOST, LOST, LOST)
    tried_on(known, ended, "a")
    tried_on(known, paused, "a", Outcome(kind="requeued", end_step=9))
    tried_on(known, paused, "b")

    assert look(known) == []
    assert (reputation(known, "a"), reputation(known, "b")) == (1.0, 1.0)
    with known.read() as session:
        assert session.query(NodeFault).count() == 1, "nothing is known of the third"


def test_a_job_that_got_further_elsewhere_is_proof_once_whatever_became_of_it(known: Database) -> None:
    no_further, further = fail_alone(known, LOST, LOST)
    tried_on(known, no_further, "b", Outcome(kind="failed", cause="SCRIPT_ERROR", end_step=7))
    tried_on(known, further, "b", Outcome(kind="failed", cause="SCRIPT_ERROR", end_step=8))

    assert look(known, QuarantineRule(faults=1, window_seconds=3600)) == ["a"]
    look(known)

    assert "attempts of 1 jobs were ended by the node" in state(known)[1]
    assert reputation(known, "a") == 0.9


def test_a_job_that_could_not_begin_there_need_only_begin_elsewhere(known: Database) -> None:
    with known.write() as session:
        job_id = make_job(session).id
    tried_on(known, job_id, "a", BROKEN, trained=False)
    tried_on(known, job_id, "b", Outcome(kind="failed", cause="SCRIPT_ERROR"))

    assert look(known, QuarantineRule(faults=1, window_seconds=3600)) == ["a"]


def test_broken_devices_need_no_other_node(known: Database) -> None:
    fail_alone(known, *[Outcome(kind="failed", cause="DEVICE_FAULT")] * 3)

    assert look(known) == ["a"]
    assert reputation(known, "a") == 0.729


def test_late_proof_lowers_the_reputation_and_quarantines_nothing(known: Database) -> None:
    jobs = fail_alone(known, LOST, LOST, LOST)
    with known.write() as session:
        for fault, hours in zip(session.query(NodeFault).order_by(NodeFault.job_id), (2, 2, 25), strict=True):
            fault.at = utc_now() - timedelta(hours=hours)
    quarantine.drop_old(known, RULE)
    for job_id in jobs:
        tried_on(known, job_id, "b")

    assert look(known) == []
    assert reputation(known, "a") == 0.81, "one was too long ago"


def test_jobs_on_a_quarantined_node_continue(known: Database) -> None:
    with known.write() as session:
        job = make_job(session, state=JobState.TRAINING)
        make_attempt(session, job, session.get_one(Node, "a"))
    fail(known, BROKEN, BROKEN, BROKEN)

    look(known)

    with known.read() as session:
        running = session.get_one(Job, job.id)
        assert (running.state, running.requested) == (JobState.TRAINING, None)
        assert session.query(Lease).where(Lease.job_id == job.id, Lease.released_at.is_(None)).count() == 1


def test_neither_a_heartbeat_nor_a_restart_nor_silence_ends_a_quarantine(known: Database) -> None:
    fail(known, BROKEN, BROKEN, BROKEN)
    look(known)

    assert registry.heartbeat(known, "a") == "quarantined"
    beat = next(each for each in registry.heartbeats(known) if each.node == "a")
    registry.mark_lost(known, "a", heartbeat_seen=beat.counter)

    assert (state(known)[0], beat.is_ready) == ("quarantined", False)


def test_enabling_a_node_restarts_its_count(known: Database) -> None:
    fail(known, BROKEN, BROKEN, BROKEN)
    look(known)

    maintenance.enable(known, ADMINISTRATOR, "a")

    assert state(known) == ("ready", "")
    fail(known, BROKEN, BROKEN)
    assert look(known) == []
    fail(known, BROKEN)
    assert look(known) == ["a"]


def test_a_quarantined_node_can_be_drained(known: Database) -> None:
    fail(known, BROKEN, BROKEN, BROKEN)
    look(known)

    assert maintenance.drain(known, ADMINISTRATOR, "a").node.state == "draining"
    assert registry.heartbeat(known, "a") == "drained"
    assert look(known) == [], "not twice"
    assert maintenance.enable(known, ADMINISTRATOR, "a").node.state == "ready"


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


def test_quarantine_can_be_turned_off(known: Database) -> None:
    fail(known, BROKEN, BROKEN, BROKEN)

    assert look(known, QuarantineRule(faults=0, window_seconds=3600)) == []
    assert state(known)[0] == "ready"


@pytest.mark.long
def test_quarantine_is_shown_to_users(db: Database) -> None:
    with db.write() as session:
        make_node(session, "a", state="quarantined", quarantine_reason="attempts of 3 jobs were ended by the node")

    listed, shown = run_local("nodes", "list").stdout, run_local("nodes", "show", "a").stdout

    assert "a was quarantined: attempts of 3 jobs were ended by the node" in listed
    assert "quarantine_reason" in shown
