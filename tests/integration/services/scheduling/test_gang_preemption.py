"""A job on several nodes takes the devices of less urgent ones on all of them; on both databases."""

from typing import Any

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.models import Job
from app.services.attempts import work_orders
from app.services.scheduling import planner
from tests.builders import factories
from tests.builders.walks import NO_WAIT, job_of, make_job, make_node, start_attempt

pytestmark = pytest.mark.both_databases


def document(**resources: Any) -> dict[str, Any]:
    wanted = {"gpu_count": 2, "device_type": "cpu", **resources}
    return factories.make_document(resource_config=wanted, scheduling_config={"preemptible": True})


def asked(db: Database) -> set[str]:
    with db.read() as session:
        return set(session.scalars(select(Job.id).where(Job.requested == "preempt")))


def test_both_nodes_are_cleared_for_it_and_stay_so_until_the_last_one_has_gone(database: Database) -> None:
    works = []
    for name in ("n1", "n2"):
        make_node(database, name, devices=2)
        job_id = make_job(database, JobState.QUEUED, document=document(), priority=2)
        works.append(start_attempt(database, job_id, node=name))
    gang = make_job(database, JobState.QUEUED, document=document(node_count=2), priority=8)
    nudged: list[tuple[str, str]] = []

    assert planner.plan_once(database, nudge=lambda *nudge: nudged.append(nudge)) == []

    assert asked(database) == {work.job_id for work in works}
    assert sorted(nudged) == sorted((work.job_id, work.node) for work in works)
    waiting = job_of(database, gang)
    assert (waiting.awaits_node, waiting.awaits_others) == ("n1", ["n2"])
    assert waiting.pending_reason.endswith("; n1, n2 are being cleared for it")

    first, second = works
    work_orders.finish(database, first, Outcome(kind="preempted"), NO_WAIT)
    make_job(database, JobState.QUEUED, document=document(gpu_count=1), priority=9)
    assert planner.plan_once(database) == [], "what has become free is the gang's"
    assert job_of(database, gang).pending_reason.endswith("; n1, n2 are being cleared for it")
    work_orders.finish(database, second, Outcome(kind="preempted"), NO_WAIT)
    assert {(each.job_id, each.node) for each in planner.plan_once(database)} == {(gang, "n1"), (gang, "n2")}
    assert job_of(database, gang).awaits_node == ""
