"""The doctor finds who does not work, whose clock is wrong, and what should have moved on long ago."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from app.domain.lifecycle.states import JobState
from app.models import Attempt, Inspection, Job, Lease, Webhook, WebhookDelivery
from app.models.base import utc_now
from app.services.nodes import quarantine
from app.services.operations.diagnosis.findings import Level
from app.services.operations.diagnosis.site import Site
from tests.builders.factories import make_attempt, make_job, make_node, make_project
from tests.systems.examining import Alive, said

pytestmark = pytest.mark.both_databases

LONG_AGO = timedelta(hours=1)

# ---- how attempts ended


def test_ends_that_could_not_be_written_fail(site: Site) -> None:
    assert said(site, "ends of attempts")[0].level is Level.OK
    with site.db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session, "n1"))
        attempt = session.get_one(Attempt, (job.id, 1))
        attempt.cause, attempt.ended_at = "OUTCOME_ERROR", utc_now()

    (finding,) = said(site, "ends of attempts")

    assert (finding.level, job.id in finding.message) == (Level.FAILED, True)


def test_a_node_with_many_faults_that_are_not_proven_is_named(site: Site) -> None:
    with site.db.write() as session:
        for node, number in (("n1", 3), ("n2", 2)):
            make_node(session, node)
            for job in range(number):
                quarantine.note(session, node, job_id=f"job-{job}", attempt=1, cause="INTERNAL", is_proven=False)

    (finding,) = said(site, "suspected nodes")

    assert finding.level is Level.WARNING
    assert finding.message.startswith("attempts of 3 jobs ended on n1 by its doing or by theirs (INTERNAL)")


# ---- who works


@pytest.mark.parametrize(
    ("sandbox", "capabilities", "level", "beginning"),
    [
        ("bubblewrap", ["sandbox:full", "sandbox:namespaces"], Level.OK, "full on n1: jobs run in a sandbox with"),
        ("bubblewrap", ["sandbox:namespaces"], Level.OK, "namespaces on n1: jobs run in a sandbox without limits"),
        ("process", [], Level.SKIPPED, "no node that is alive has a sandbox"),
        ("landlock", ["limits"], Level.OK, "landlock on n1: jobs reach their own files alone, and the network"),
        ("missing", ["sandbox:namespaces"], Level.SKIPPED, "no node that is alive has a sandbox"),
    ],
)
def test_isolation_of_nodes_is_named(
    site: Site, sandbox: str, capabilities: list[str], level: Level, beginning: str
) -> None:
    with site.db.write() as session:
        make_node(session, "n1", sandbox=sandbox, capabilities=capabilities)
        make_node(session, "silent", sandbox="bubblewrap", capabilities=["sandbox:full"])

    with Alive(site.db):
        (finding,) = said(replace(site), "isolation")

    assert (finding.level, finding.message.startswith(beginning)) == (level, True), finding.message


def test_a_deployment_without_live_processes_fails(site: Site) -> None:
    with site.db.write() as session:
        make_node(session, "n1")

    assert said(site, "coordinators")[0].level is Level.FAILED
    assert said(site, "nodes")[0].level is Level.FAILED


@pytest.mark.long
def test_silent_unconfined_and_drained_nodes_are_named(site: Site) -> None:
    with site.db.write() as session:
        make_node(session, "n1", sandbox="process", state="drained")
        make_node(session, "n2", state="lost")

    with Alive(site.db):
        findings = said(replace(site, patience_seconds=3.0), "nodes")

    assert [finding.level for finding in findings] == [Level.WARNING] * 3
    assert ["n2" in findings[0].message, "n1" in findings[1].message, "n1" in findings[2].message] == [True] * 3


@pytest.mark.long
def test_a_quarantined_node_is_named_with_a_remedy(site: Site) -> None:
    with site.db.write() as session:
        make_node(session, "n1", sandbox="bubblewrap", state="quarantined")

    with Alive(site.db):
        (finding,) = said(replace(site, patience_seconds=3.0), "nodes")

    assert finding.level is Level.WARNING
    assert finding.message.startswith("n1 accept no jobs: quarantined")
    assert "trainyard nodes enable NAME" in finding.fix


@pytest.mark.long
def test_a_wrong_clock_is_reported_with_its_offset(site: Site) -> None:
    with site.db.write() as session:
        make_node(session, "n1")

    with Alive(site.db, off=timedelta(seconds=90)):
        (finding,) = said(replace(site, patience_seconds=3.0), "clocks")

    assert finding.level is Level.WARNING
    assert "n1 by +" in finding.message


# ---- work that stands still


def stuck_pending(session: Any) -> None:
    make_job(session, state=JobState.PENDING, created_at=utc_now() - LONG_AGO)


def stuck_scheduling(session: Any) -> None:
    job, node = make_job(session), make_node(session)
    make_attempt(session, job, node, claimed=False)
    job.updated_at = utc_now() - LONG_AGO


def held_without_lease(session: Any) -> None:
    make_job(session, state=JobState.TRAINING, updated_at=utc_now() - LONG_AGO)


def unanswered_request(session: Any) -> None:
    job = make_job(session, requested="pause", pause_requested_at=utc_now() - LONG_AGO)
    make_attempt(session, job, make_node(session))


def lease_standing_still(session: Any) -> None:
    make_attempt(session, make_job(session), make_node(session)).renewed_at = utc_now() - LONG_AGO


def lease_of_an_ended_job(session: Any) -> None:
    job = make_job(session)
    make_attempt(session, job, make_node(session))
    session.flush()
    session.execute(update(Job).values({"status": JobState.FAILED, "finished_at": utc_now() - LONG_AGO}))


def reserved_for_ended_attempt(session: Any) -> None:
    make_attempt(session, make_job(session), make_node(session))
    session.flush()
    session.execute(update(Lease).values(released_at=utc_now()))


def delivery_overdue(session: Any, **webhook: Any) -> None:
    make_project(session)
    session.flush()
    values = {"url": "https://x.example", "event_types": [], "sealed_secret": "", **webhook}
    session.add(Webhook(id="hook-1", project="default", **values))
    session.flush()
    session.add(
        WebhookDelivery(
            id="job-delivery-1",
            webhook_id="hook-1",
            event_id="evt-1",
            event_type="job.status",
            payload={},
            created_at=utc_now() - LONG_AGO,
        )
    )


def stuck_inspection(session: Any) -> None:
    job = make_job(session, state=JobState.PENDING)
    session.add(Inspection(id="look-for-job-1", project=job.project, created_at=utc_now() - LONG_AGO))


@pytest.mark.parametrize(
    ("arrange", "check", "level", "words"),
    [
        (stuck_pending, "jobs", Level.WARNING, "wait for admission"),
        (stuck_scheduling, "jobs", Level.FAILED, "does not claim them"),
        (held_without_lease, "jobs", Level.FAILED, "hold no lease"),
        (unanswered_request, "jobs", Level.WARNING, "requested to stop long ago"),
        (lease_standing_still, "leases", Level.FAILED, "neither renewed"),
        (lease_of_an_ended_job, "leases", Level.FAILED, "jobs that have ended"),
        (delivery_overdue, "messages", Level.WARNING, "deliveries are overdue"),
        (stuck_inspection, "messages", Level.WARNING, "do not end"),
        (reserved_for_ended_attempt, "leases", Level.FAILED, "reserved for attempts that have ended"),
    ],
)
def test_work_that_stands_still_is_named(
    site: Site, arrange: Callable[[Any], None], check: str, level: Level, words: str
) -> None:
    with site.db.write() as session:
        arrange(session)

    findings = said(site, check)

    assert [(finding.level, words in finding.message) for finding in findings] == [(level, True)]
    assert "job-" in findings[0].message


@pytest.mark.parametrize(
    "webhook", [{"is_active": False}, {"rests_until": utc_now() + LONG_AGO}, {"turn_until": utc_now() + LONG_AGO}]
)
def test_a_delivery_that_waits_for_a_reason_is_not_named(site: Site, webhook: dict[str, Any]) -> None:
    with site.db.write() as session:
        delivery_overdue(session, **webhook)

    assert said(site, "messages")[0].level is Level.OK


def test_work_that_moves_is_not_named(site: Site) -> None:
    with site.db.write() as session:
        make_job(session, state=JobState.PENDING)
        make_attempt(session, make_job(session), make_node(session))

    assert [said(site, name)[0].level for name in ("jobs", "leases", "messages")] == [Level.OK] * 3
