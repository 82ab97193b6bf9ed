"""The reasons that requests get while no replica of a service answers."""

import re
from datetime import timedelta

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Attempt, Job, Replica
from app.models.base import utc_now
from app.services.serving import endpoints, listing
from tests.builders.factories import make_attempt, make_node
from tests.builders.service_runs import CALLER, ServiceRun
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases


def test_why_there_is_no_endpoint_is_said_in_the_words_of_the_planner(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 1})
    run.step()
    with run.db.read() as session:
        assert endpoints.why_none(session, run.id) == "a replica is starting"
    with run.db.write() as session:
        session.get_one(type(run.job(0)), run.job(0).id).pending_reason = "waits for 1 h100; free: 0"
    with run.db.read() as session:
        assert endpoints.why_none(session, run.id) == "waits for 1 h100; free: 0"
        assert listing.one(session, CALLER, run.id).pending_reason == "waits for 1 h100; free: 0"
    run.answer(0)
    with run.db.read() as session:
        assert listing.one(session, CALLER, run.id).pending_reason == ""


def test_who_waits_is_told_how_far_a_replica_has_loaded(api: Api) -> None:
    run = ServiceRun(api, replicas={"min": 1, "max": 1})
    run.step()
    with run.db.write() as session:
        first = session.get_one(Job, run.job(0).id)
        make_attempt(session, first, make_node(session, "n1"))
        session.get_one(Attempt, (first.id, 1)).started_at = utc_now() - timedelta(seconds=50)
    with run.db.read() as session:
        assert re.fullmatch(r"a replica is starting, since 5\d s", endpoints.why_none(session, run.id))
    run.answer(0)
    with run.db.write() as session:
        answered, row = utc_now(), session.get_one(Replica, first.id)
        row.attempt, row.answers_since = 1, answered
        session.get_one(Attempt, (first.id, 1)).started_at = answered - timedelta(seconds=80)
    run.end(0, JobState.CANCELLED)
    run.step()
    with run.db.write() as session:
        second = session.get_one(Job, run.job(1).id)
        make_attempt(session, second, make_node(session, "n2"))
        session.get_one(Attempt, (second.id, 1)).started_at = utc_now() - timedelta(seconds=50)
    with run.db.read() as session:
        assert re.fullmatch(r"loading 6\d %: 5\d s, and the last .* 80 s", endpoints.why_none(session, run.id))
    with run.db.write() as session:  # by the clock of another machine
        session.get_one(Attempt, (second.id, 1)).started_at = utc_now() + timedelta(seconds=50)
    with run.db.read() as session:
        assert endpoints.why_none(session, run.id) == "loading 0 %: 0 s, and the last replica took 80 s"
    with run.db.write() as session:
        session.get_one(Replica, second.id).revision = 2
    with run.db.read() as session:
        assert endpoints.why_none(session, run.id) == "a replica is starting, since 0 s"
