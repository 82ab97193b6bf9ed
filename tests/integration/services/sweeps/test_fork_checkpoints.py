"""A checkpoint that a fork needs is never pruned, whatever else happens before the fork has ended."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.models import Checkpoint, Job, SweepEvent
from app.models.base import utc_now
from app.services.attempts import checkpoints
from app.services.attempts.checkpoints import NewCheckpoint
from app.services.jobs.control import requests as control_requests
from app.services.operations.retention import rules
from app.services.sweeps import kept_checkpoints
from config.settings import load_settings
from tests.builders.population_runs import PopulationRun, population_document
from tests.builders.sweep_runs import constant
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

Make = Callable[..., PopulationRun]
WINNER, LOSER, FORK = 1, 2, 4
VALUES = (0.3, 0.1, 0.4, 0.2)


@pytest.fixture
def forked(make_population: Make) -> PopulationRun:
    """A population of which trial 4 is a fork of trial 1, whose job keeps one checkpoint."""
    job = population_document()["job"]
    job["output_config"] = {"checkpoint": {"save_total_limit": 1}}
    run = make_population(job=job)
    halted(run)
    run.step()
    assert run.replaced() == {FORK: WINNER}
    return run


def halted(run: PopulationRun) -> None:
    run.step()
    for number, value in enumerate(VALUES):
        run.advance(number, constant(value))


def start_of_fork(run: PopulationRun) -> Checkpoint:
    with run.db.read() as session:
        return session.get_one(Checkpoint, run.trials()[FORK].fork_checkpoint_id)


def saved(run: PopulationRun, number: int, step: int) -> list[str]:
    """The job of a trial trains and saves; the ids of the checkpoints that are pruned by it."""
    run.become(number, JobState.TRAINING)
    job = run.job(number)
    new = NewCheckpoint(
        checkpoint_id=checkpoints.new_checkpoint_id(),
        step=step,
        epoch=1.0,
        world_size=1,
        threads_per_rank=None,
        size_bytes=1,
        sha256="0" * 64,
        uri=f"file:///srv/files/{step}",
    )
    found = checkpoints.record(run.db, job_id=job.id, attempt=1, fence=job.fence, actor="node", new=new)
    return [checkpoint_id for checkpoint_id, _ in found.prune]


@pytest.mark.long
def test_a_winner_that_goes_on_and_saves_more_keeps_it_until_the_fork_has_ended(forked: PopulationRun) -> None:
    start = start_of_fork(forked).id

    assert saved(forked, WINNER, 12) == []
    pruned = saved(forked, WINNER, 15)
    assert len(pruned) == 1
    assert start not in pruned  # the one after 12 steps goes
    assert start_of_fork(forked).deleted_at is None
    forked.end(FORK)
    assert start in saved(forked, WINNER, 18)


def test_a_fork_that_waits_for_devices_is_paused_or_starts_again_keeps_it(forked: PopulationRun) -> None:
    start = start_of_fork(forked).id
    for state in (JobState.QUEUED, JobState.PAUSED, JobState.TRAINING, JobState.QUEUED):
        forked.become(FORK, state, attempt=2)
        assert start not in saved(forked, WINNER, forked.job(WINNER).current_step + 12)
        with forked.db.read() as session:
            fork = session.get_one(Job, forked.job(FORK).id)
            first = checkpoints.resume_candidates(session, fork)[0]
        assert (first.checkpoint_id, first.step) == (start, 9)


def test_a_fork_paused_before_it_started_is_resumed_from_it(forked: PopulationRun) -> None:
    start = start_of_fork(forked).id
    with forked.db.write() as session:
        control_requests.request_pause(session, forked.job(FORK).id, actor="person")
    saved(forked, WINNER, 12)
    saved(forked, WINNER, 15)
    with forked.db.write() as session:
        job = control_requests.resume(session, forked.job(FORK).id, actor="person")
        assert checkpoints.start_step(session, job) == 9
    assert start_of_fork(forked).id == start


@pytest.mark.long
def test_retention_by_age_keeps_it(forked: PopulationRun, tmp_path: Path) -> None:
    forked.end(WINNER)
    with forked.db.write() as session:
        long_ago = utc_now() - timedelta(days=400)
        session.execute(update(Job).where(Job.id == forked.job(WINNER).id).values(finished_at=long_ago))
    settings = load_settings(
        {
            "TRAINYARD_DATABASE_URL": forked.db.engine.url.render_as_string(hide_password=False),
            "TRAINYARD_DATA_DIR": str(tmp_path),
            "TRAINYARD_SECURITY_SECRET_KEY": "x" * 43 + "=",
            "TRAINYARD_RETENTION_CHECKPOINTS_DAYS": "30",
            "TRAINYARD_RETENTION_JOBS_DAYS": "60",
            "TRAINYARD_RETENTION_CHECKPOINTS_MAX_BYTES": "1",
        }
    )
    found = {
        rule.what: (one.count, one.kept)
        for rule, one in rules.prune(forked.db, settings, actor="test", dry_run=False, now=utc_now())
    }

    assert found["jobs"] == (0, 0)  # trials are no older than the end of their sweep
    assert start_of_fork(forked).deleted_at is None


def test_the_winners_job_is_not_deleted_before_the_fork_has_ended(forked: PopulationRun, api: Api) -> None:
    winner = forked.job(WINNER).id
    forked.end(WINNER)

    refused = api.call("DELETE", f"/v1/jobs/{winner}?artifacts=true")
    assert refused.status_code == 409
    assert forked.job(FORK).id in refused.text
    assert start_of_fork(forked).deleted_at is None
    forked.end(FORK)
    assert api.call("DELETE", f"/v1/jobs/{winner}?artifacts=true").status_code < 300


def test_a_loss_that_diverges_later_keeps_it(forked: PopulationRun) -> None:
    with forked.db.write() as session:
        winner = session.get_one(Job, forked.job(WINNER).id)
        checkpoints.retire_since(session, winner, 5)

    assert start_of_fork(forked).deleted_at is None
    with forked.db.read() as session:
        fork = session.get_one(Job, forked.job(FORK).id)
        assert checkpoints.start_step(session, fork) == 9


@pytest.mark.long
def test_the_end_of_the_sweep_keeps_what_a_job_outside_of_it_starts_from(forked: PopulationRun, api: Api) -> None:
    start = start_of_fork(forked)
    document = forked.job(FORK).document.to_json()
    document["name"] = "outside"
    outside = api.data(api.post("/v1/jobs", document), 201)["job_id"]
    for number in (0, 1, 3, 4):
        forked.end(number, JobState.CANCELLED)
    with forked.db.write() as session:
        kept_checkpoints.retire_some(session, forked.sweep(), [])
    assert start_of_fork(forked).deleted_at is None

    with forked.db.write() as session:
        control_requests.request_cancel(session, outside, actor="person")
        kept_checkpoints.retire_some(session, forked.sweep(), [])
    with forked.db.read() as session:
        assert session.get_one(Checkpoint, start.id).deleted_at is not None


class _Meddling(Database):
    """Another process does something just before the second transaction."""

    def __init__(self, inner: Database, meddle: Callable[[Session], None]) -> None:
        super().__init__()
        self._inner, self._meddle, self._begun = inner, meddle, 0
        self.bind(inner.engine)

    @contextmanager
    def write(self) -> Iterator[Session]:
        self._begun += 1
        if self._begun == 2:
            with self._inner.write() as session:
                self._meddle(session)
        with self._inner.write() as session:
            yield session


def test_a_checkpoint_that_goes_before_the_decision_is_written_is_not_forked(make_population: Make) -> None:
    run = make_population()
    halted(run)

    def retire(session: Session) -> None:
        goes = Checkpoint.job_id == run.job(WINNER).id
        session.execute(update(Checkpoint).where(goes).values(deleted_at=utc_now()))

    alive = run.plane
    run.plane = replace(alive, db=_Meddling(run.db, retire))
    run.step()  # its first transaction records the reports, its second one would decide
    run.plane = alive
    assert (run.replaced(), [report.decided_seq for report in run.reports()]) == ({}, [None] * 4)

    run.step()
    assert run.replaced() == {}
    assert [run.job(number).status for number in range(4)] == ["QUEUED"] * 4


@pytest.mark.long
def test_a_fork_that_is_refused_lets_all_members_continue_and_an_event_says_why(make_population: Make) -> None:
    run = make_population()
    halted(run)
    with run.db.write() as session:  # the other job's data differs
        winner = session.get_one(Job, run.job(WINNER).id)
        winner.spec = {**winner.spec, "data_config": {**winner.spec["data_config"], "seed": 99}}
    run.step()

    assert run.replaced() == {}
    assert [run.job(number).status for number in range(4)] == ["QUEUED"] * 4
    with run.db.read() as session:
        warned = session.query(SweepEvent).filter_by(sweep_id=run.id, type="sweep.warning").one()
    assert warned.message.startswith("no member is replaced at 9 steps: checkpoint ckpt-")
