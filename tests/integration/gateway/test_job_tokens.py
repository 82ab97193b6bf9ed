"""Jobs that ask models: with the token of an attempt that holds its lease, in their project, and for their key."""

from collections.abc import Callable

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from app.domain.errors import CredentialsInvalid
from app.models import Job, Lease
from app.models.base import utc_now
from app.security.job_tokens import JobToken, job_token
from app.security.permissions import Permission
from app.services.attempts import job_callers
from tests.builders.factories import make_attempt, make_job, make_node
from tests.systems.apps import SECRET_KEY
from tests.systems.gateways import GatewaySite
from tests.systems.system import wait_for


def running_job(site: GatewaySite, *, claimed: bool = True) -> Job:
    with site.db.write() as session:
        job = make_job(session, created_by="key-7")
        make_attempt(session, job, make_node(session, f"node-{job.id[-6:]}"), claimed=claimed)
        return job


def token_of(job: Job, **other: int) -> str:
    return job_token(SECRET_KEY, JobToken(job_id=job.id, **{"attempt": job.attempt, "fence": job.fence, **other}))


@pytest.mark.both_databases
def test_token_of_a_running_attempt_may_ask_and_nothing_else(site: GatewaySite) -> None:
    job = running_job(site)

    caller = job_callers.authenticate(site.db, SECRET_KEY, token_of(job))

    assert (caller.key_id, caller.project) == ("key-7", job.project)
    assert [each for each in Permission if caller.may(each)] == [Permission.INFER, Permission.LIST_MODELS]


def _fence_is_raised(session: Session, job: Job) -> None:
    session.execute(update(Job).where(Job.id == job.id).values(fence=Job.fence + 1))


def _lease_is_released(session: Session, job: Job) -> None:
    session.execute(update(Lease).where(Lease.job_id == job.id).values(released_at=utc_now()))


@pytest.mark.parametrize("lost", [_fence_is_raised, _lease_is_released])
def test_token_ends_with_its_lease(site: GatewaySite, lost: Callable[[Session, Job], None]) -> None:
    job = running_job(site)
    with site.db.write() as session:
        lost(session, job)

    with pytest.raises(CredentialsInvalid):
        job_callers.authenticate(site.db, SECRET_KEY, token_of(job))


def test_tokens_of_no_running_attempt_are_refused(site: GatewaySite) -> None:
    job, waiting = running_job(site), running_job(site, claimed=False)
    forged = job_token("another secret", JobToken(job_id=job.id, attempt=job.attempt, fence=job.fence))

    for text in (token_of(waiting), token_of(job, attempt=9), token_of(job, fence=9), forged, "tyjob.nonsense"):
        with pytest.raises(CredentialsInvalid):
            job_callers.authenticate(site.db, SECRET_KEY, text)


def test_gateway_answers_a_job_until_its_fence_is_lost(site: GatewaySite) -> None:
    engine, place = site.engine()
    site.replica(site.service(), place)
    site.service("theirs", project="other")
    job = running_job(site)
    body = {"model": "support", "messages": [{"role": "user", "content": "say yes"}]}

    def status(**more: object) -> int:
        return site.ask("POST", "/v1/chat/completions", {**body, **more}, key=token_of(job)).status

    assert status() == 200
    assert status(model="theirs") == 404
    with site.db.write() as session:
        _fence_is_raised(session, job)
    wait_for(lambda: status() == 401, seconds=10, what="the refusal")
    assert len(engine.requests) >= 1
