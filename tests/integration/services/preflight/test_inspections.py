"""Jobs that wait for the inspection of model and data, on both databases, without an inspecting process."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from app.database.engine import Database, make_engine
from app.domain.lifecycle.states import JobState
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument
from app.models import Inspection, Job, JobEvent
from app.models.base import utc_now
from app.services.jobs.control import requests as control_requests
from app.services.preflight import admission, inspections, queueing
from app.services.preflight.admission import InspectionSettings
from app.services.preflight.inspection_queue import ABANDONED_SECONDS, AbandonedInspections, InspectionQueue
from app.services.preflight.inspections import InspectionRequest
from app.services.requests.wakeups import Dispatcher
from config.settings import load_settings
from tasks.background.preflight import PreflightRunner
from tasks.celery_app import Runtime
from tests.builders.admitting import admit
from tests.builders.inspecting import INSPECTING, claim, document, preflight, reading_rules
from tests.builders.shards import batch_document
from tests.builders.walks import job_of, make_job
from tests.systems.system import wait_for

pytestmark = pytest.mark.both_databases

PASSED: dict[str, Any] = {"warnings": [], "sources": [{"index": 0, "records_read": 1}]}
BROKEN: dict[str, Any] = {"errors": [{"error_type": "DATA_INVALID", "message": "train.jsonl line 7 is not JSON"}]}


@pytest.fixture
def rules(tmp_path: Path) -> ReadingRules:
    return reading_rules(tmp_path)


@pytest.fixture
def line(database: Database) -> InspectionQueue:
    return InspectionQueue(database, "here:boot:1:1", is_dead=lambda _holder: False)


def submit(db: Database, rules: ReadingRules, inspection: InspectionSettings = INSPECTING, **changes: Any) -> str:
    job_id = make_job(db, document=document(rules, **changes))
    admit(db, job_id, rules, inspection=inspection)
    return job_id


def test_a_job_waits_for_its_inspection_and_is_queued_when_nothing_was_found(database, rules, line):
    job_id = submit(database, rules)
    waiting = job_of(database, job_id)
    assert (waiting.state, waiting.pending_reason) == (JobState.PENDING, admission.INSPECTING)

    work = claim(database, line)
    assert admission.conclude(database, work, PASSED, actor="c1")

    job, event = job_of(database, job_id), preflight(database, job_id)
    assert (job.state, job.pending_reason) == (JobState.QUEUED, "")
    assert (event.reason, event.actor, event.data["sources"]) == ("passed", "c1", PASSED["sources"])


def test_what_was_found_fails_the_job_with_its_cause(database, rules, line):
    job_id = submit(database, rules)

    admission.conclude(database, claim(database, line), BROKEN)

    job = job_of(database, job_id)
    assert (job.state, job.error_type, job.error_message) == (
        JobState.FAILED,
        "DATA_INVALID",
        "train.jsonl line 7 is not JSON",
    )
    assert preflight(database, job_id).reason == "failed"


@pytest.mark.parametrize("benchmarks", [0, 1])
def test_records_of_a_job_that_trains_nothing_are_inspected_for_what_it_asks_of_them(database, rules, line, benchmarks):
    def asking(job_id=None, **inference):
        trained = document(rules)
        base = {"base_model": trained["training_config"]["base_model"]}
        parts = {"data_config": trained["data_config"], "training_config": base, "benchmarks": benchmarks}
        inference |= {"benchmarks": [{"name": "f1", "dataset": 0, **inference}]} if benchmarks else {}
        made = batch_document(inference={"model": {"job_id": job_id}, **inference}, **parts)
        asked = make_job(database, document=made)
        admit(database, asked, rules, inspection=INSPECTING)
        return asked

    job_id, waits = asking(), admission.INSPECTING
    assert (job_of(database, job_id).state, job_of(database, job_id).pending_reason) == (JobState.PENDING, waits)
    admission.conclude(database, claim(database, line), BROKEN)

    assert (job_of(database, job_id).state, job_of(database, job_id).error_type) == (JobState.FAILED, "DATA_INVALID")
    assert job_of(database, asking("job-other")).state is JobState.FAILED, "of other weights the same is found"
    other = asking(**({"num_samples": 3} if benchmarks else {"task": {"type": "loglikelihood"}}))
    assert job_of(database, other).state is JobState.PENDING


def test_results_are_reused_and_a_changed_file_is_inspected_again(database, rules, line):
    submit(database, rules)
    admission.conclude(database, claim(database, line), PASSED)

    again = submit(database, rules)
    assert job_of(database, again).state is JobState.QUEUED
    assert preflight(database, again).data["remembered"] is True

    Path(rules.roots[1], "train.jsonl").write_text("[]\n")
    assert job_of(database, submit(database, rules)).state is JobState.PENDING
    assert job_of(database, submit(database, rules, batch_size=3)).state is JobState.PENDING


def test_incomplete_results_are_not_reused(database, rules, line):
    first = submit(database, rules)
    admission.conclude(database, claim(database, line), {"left_out": ["it took too long"]})

    assert job_of(database, first).state is JobState.QUEUED
    assert "left to the node: it took too long" in preflight(database, first).message
    assert job_of(database, submit(database, rules)).state is JobState.PENDING


def test_admitting_twice_asks_once(database, rules, line):
    job_id = submit(database, rules)

    assert not admit(database, job_id, rules, inspection=INSPECTING)
    assert admission.admit_waiting(database, rules, inspection=INSPECTING) == 0
    assert len(inspections.open_ones(database)) == 1


def test_a_job_that_cannot_be_inspected_keeps_no_other_waiting(database, rules):
    broken, other = make_job(database, document={**document(rules), "data_config": []}), make_job(database)

    with pytest.raises(TypeError, match="DataConfig"):
        admission.admit_waiting(database, rules)

    assert job_of(database, broken).state is JobState.PENDING
    assert job_of(database, other).state is JobState.QUEUED


def test_jobs_that_one_message_tells_of_are_admitted_each(database, rules, monkeypatch):
    monkeypatch.setattr(queueing, "GATHER_SECONDS", 60.0)  # however slow the machine is
    broken = make_job(database, document={**document(rules), "data_config": []})
    first, second = make_job(database), make_job(database)
    announced = [first, broken, "job-unknown", second, first]

    admitted = admission.admit_each(database, announced, rules)

    assert [next(admitted), next(admitted)] == [first, second]
    with pytest.raises(TypeError, match="DataConfig"):
        next(admitted)
    queued = [job_of(database, job_id) for job_id in (first, second)]
    assert [(job.state, job.status_reason) for job in queued] == [(JobState.QUEUED, "admitted")] * 2
    assert queued[0].queued_at == queued[1].queued_at, "in one transaction"
    assert job_of(database, broken).state is JobState.PENDING


def test_custom_jobs_and_what_this_machine_cannot_tell_do_not_wait(database, rules):
    custom = make_job(database, document=document(rules), framework="CUSTOM")
    unseen = make_job(database)  # below /srv, which is no root
    unable = make_job(database, document=document(rules))

    admit(database, custom, rules, inspection=INSPECTING)
    admit(database, unseen, rules, inspection=INSPECTING)
    admit(database, unable, rules, inspection=InspectionSettings(rows=1, waiting=1, unable="no torch here"))

    assert {job_of(database, each).state for each in (custom, unseen, unable)} == {JobState.QUEUED}
    assert "can't access the base model /srv/models/tiny" in preflight(database, unseen).message
    assert preflight(database, unable).message == "left to the node: no torch here"
    with database.read() as session:
        assert (
            session.scalar(select(JobEvent.id).where(JobEvent.job_id == custom, JobEvent.type == "job.preflight"))
            is None
        )


def test_a_long_line_of_inspections_is_not_made_longer(database, rules):
    jobs = [submit(database, rules, seed=seed) for seed in range(5)]
    same = submit(database, rules, seed=0)  # shares the inspection of an equal job

    assert [job_of(database, each).state for each in jobs] == [JobState.PENDING] * 3 + [JobState.QUEUED] * 2
    assert job_of(database, same).state is JobState.PENDING
    assert "3 other jobs wait" in preflight(database, jobs[4]).message


def test_equal_jobs_are_inspected_once(database, rules, line):
    first, second = submit(database, rules), submit(database, rules)

    work = claim(database, line)
    assert line.free([work.id], 0.1) == []
    admission.conclude(database, work, PASSED)
    known = claim(database, line)

    assert known.report is not None
    assert known.report["remembered"] is True
    admission.conclude(database, known, known.report)
    assert {job_of(database, each).state for each in (first, second)} == {JobState.QUEUED}


def test_only_one_coordinator_claims_an_inspection_and_only_its_holder_concludes(database, rules, line):
    job_id = submit(database, rules)
    (seen,) = line.free([], 0.0)

    mine = inspections.claim(database, seen, "here:boot:1:1")
    assert mine is not None
    assert inspections.claim(database, seen, "there:boot:2:2") is None
    (again,) = inspections.open_ones(database)
    theirs = inspections.claim(database, again, "there:boot:2:2")
    assert theirs is not None

    assert not inspections.renew(database, mine)
    assert not admission.conclude(database, mine, BROKEN)
    assert job_of(database, job_id).state is JobState.PENDING
    assert admission.conclude(database, theirs, PASSED)


def test_a_stalled_inspection_is_taken_over_and_an_active_one_is_not(database, rules, line):
    submit(database, rules)
    other = InspectionQueue(database, "there:boot:2:2", is_dead=lambda _holder: False)
    work = claim(database, line)

    for second in range(20):
        assert inspections.renew(database, work)
        assert other.free([], float(second)) == []
    taken_at = next(second for second in range(20, 60) if other.free([], float(second)))

    assert 29 <= taken_at <= 31


def test_inspections_of_dead_and_restarted_coordinators_are_taken_at_once(database, rules, line):
    submit(database, rules)
    work = claim(database, line)

    assert [each.id for each in InspectionQueue(database, "x", is_dead=lambda _: True).free([], 0.0)] == [work.id]
    assert [each.id for each in line.free([], 0.1)] == [work.id]  # not among those that this process works on
    assert line.free([work.id], 0.2) == []


def test_what_kills_its_inspector_is_left_to_the_node(database, rules, line):
    submit(database, rules)

    works = [claim(database, line) for _ in range(4)]

    assert [work.report is None for work in works] == [True, True, True, False]
    assert "aborted after 3 tries" in str(works[3].report)


def test_a_job_is_cancelled_at_once_and_its_inspection_ends(database, rules, line):
    running, waiting = submit(database, rules), submit(database, rules, seed=5)
    work = claim(database, line)

    with database.write() as session:
        for job_id in (running, waiting):
            control_requests.request_cancel(session, job_id, actor="another-user")

    assert not inspections.renew(database, work)
    assert admission.conclude(database, work, BROKEN)
    assert job_of(database, running).state is JobState.CANCELLED
    assert inspections.claim(database, line.free([], 0.0)[0], line.me) is None
    assert inspections.open_ones(database) == []


def test_old_results_are_forgotten(database, rules, line):
    submit(database, rules)
    admission.conclude(database, claim(database, line), PASSED)
    submit(database, rules, seed=1)
    admission.conclude(database, claim(database, line), BROKEN)

    def remaining(age: timedelta) -> int:
        with database.write() as session:
            for row in session.scalars(select(Inspection)):
                row.finished_at = utc_now() - age
        inspections.drop_old(database)
        with database.read() as session:
            return len(session.scalars(select(Inspection)).all())

    assert [remaining(age) for age in (timedelta(minutes=5), timedelta(hours=1), timedelta(days=8))] == [2, 1, 0]


def test_unclaimed_inspections_are_left_to_the_node_without_an_active_inspector(database, rules, line):
    submit(database, rules)
    submit(database, rules, seed=1)
    abandoned = AbandonedInspections(database, "unable:boot:3:3")
    work = claim(database, line)

    for second in range(0, 60, 2):  # one coordinator is busy
        assert inspections.renew(database, work)
        assert abandoned.left(float(second)) == []
    admission.conclude(database, work, PASSED)
    assert abandoned.left(60.0) == []
    after = [len(abandoned.left(60 + seconds)) for seconds in (ABANDONED_SECONDS - 1, ABANDONED_SECONDS)]

    assert after == [0, 1]


def test_jobs_are_queued_when_inspections_are_disabled(sqlite_url, rules, tmp_path, monkeypatch):
    monkeypatch.setattr("app.services.preflight.inspection_queue.ABANDONED_SECONDS", 0.2)
    settings = load_settings(
        {
            "TRAINYARD_DATA_DIR": str(tmp_path / "data"),
            "TRAINYARD_PREFLIGHT_ENABLED": "false",
            "TRAINYARD_SCHEDULER_POLL_SECONDS": "0.1",
        }
    )
    db = Database().bind(make_engine(sqlite_url))
    job_id = submit(db, rules)
    inspector = PreflightRunner(Runtime(settings, db, Dispatcher(settings)), "coordinator")

    inspector.start()
    try:
        wait_for(lambda: job_of(db, job_id).state is JobState.QUEUED, seconds=10, what="the job is queued")
    finally:
        inspector.stop()
        inspector.join()

    assert preflight(db, job_id).message == "left to the node: TRAINYARD_PREFLIGHT_ENABLED is off"
    db.close()


def test_an_unclaimed_validation_request_is_dropped_and_a_job_is_not(database, rules):
    job_id = submit(database, rules)
    asked = InspectionRequest(
        project="default", document=JobDocument(), sealed_secrets="sealed", request_hash="0" * 64, fingerprint=""
    )
    inspections.request(database, asked)

    with database.write() as session:
        for row in session.scalars(select(Inspection)):
            row.created_at = utc_now() - timedelta(hours=1)
    inspections.drop_old(database)

    with database.read() as session:
        assert session.scalars(select(Inspection.job_id)).all() == [job_id]


def test_a_deleted_job_takes_its_inspection_with_it(database, rules, line):
    job_id = submit(database, rules)
    work = claim(database, line)

    with database.write() as session:
        for event in session.scalars(select(JobEvent).where(JobEvent.job_id == job_id)):
            session.delete(event)
        session.delete(session.get_one(Job, job_id))

    assert not admission.conclude(database, work, PASSED)
    assert inspections.open_ones(database) == []
