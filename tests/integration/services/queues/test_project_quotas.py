"""Quotas of projects on real databases: who may submit, who starts, and what is counted."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.database.engine import Database
from app.domain.errors import QuotaExceeded
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.resources import Request
from app.models import Artifact, Attempt, Checkpoint, Job, Project, ProjectUsage
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.attempts import work_orders
from app.services.queues import gpu_hours, project_quotas
from app.services.scheduling import planner as scheduling
from tests.builders import factories
from tests.builders.factories import make_document
from tests.builders.shards import batch_document
from tests.builders.statements import statements
from tests.builders.walks import NO_WAIT, job_of, make_job, make_node, start_attempt
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

GPU = Request(device_kind="cuda")


def set_quota(db: Database, project: str = "default", **quota: Any) -> None:
    with db.write() as session:
        factories.make_project(session, project).quota = quota


def started(db: Database, **more: Any) -> list[str]:
    return [dispatched.job_id for dispatched in scheduling.plan_once(db, **more)]


def reason(db: Database, job_id: str) -> str:
    return job_of(db, job_id).pending_reason


def test_no_more_devices_than_the_limit_whatever_is_free(database: Database) -> None:
    make_node(database, devices=8)
    set_quota(database, cpu_slots={"limit": 3})
    documents = (make_document(), batch_document(), batch_document(benchmarks=1), batch_document())  # all kinds count
    jobs = [make_job(database, state=JobState.QUEUED, document=each) for each in documents]

    assert started(database) == jobs[:3]
    assert started(database) == []
    assert reason(database, jobs[3]) == "the project default uses 3 of at most 3 CPU slots, and the job needs 1"
    set_quota(database)
    assert started(database) == jobs[3:]


def test_devices_come_back_with_the_end_of_the_attempt(database: Database) -> None:
    make_node(database, devices=2)
    set_quota(database, cpu_slots={"limit": 1})
    first = make_job(database, state=JobState.QUEUED)
    second = make_job(database, state=JobState.QUEUED)
    work = start_attempt(database, first)

    assert started(database) == []
    work_orders.finish(database, work, Outcome(kind="failed", cause="USER_CODE"), NO_WAIT)
    assert started(database) == [second]


def test_two_planners_at_once_do_not_exceed_it(database: Database) -> None:
    make_node(database, devices=8)
    set_quota(database, cpu_slots={"limit": 2}, max_running_jobs=2)
    for _ in range(8):
        make_job(database, state=JobState.QUEUED)
    begin = threading.Barrier(4)

    def planner() -> None:
        begin.wait()
        scheduling.plan_once(database)

    threads = [threading.Thread(target=planner) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with database.read() as session:
        assert session.query(Job).filter_by(status=JobState.SCHEDULING).count() == 2


def test_the_shares_of_projects_are_taken_from_the_database(database: Database) -> None:
    make_node(database, devices=4)
    ours = [make_job(database, state=JobState.QUEUED) for _ in range(4)]
    batch = batch_document()
    theirs = [make_job(database, state=JobState.QUEUED, project="other", document=batch) for _ in range(4)]
    set_quota(database, "other", cpu_slots={"deserved": 3})

    assert sorted(started(database)) == sorted([ours[0], *theirs[:3]])


def test_a_long_line_of_one_project_does_not_hide_another(database: Database) -> None:
    make_node(database, devices=2)
    big = [
        make_job(database, state=JobState.QUEUED, document=make_document(resource_config={"gpu_count": 9}))
        for _ in range(5)
    ]
    small = make_job(database, state=JobState.QUEUED)
    other = make_job(database, state=JobState.QUEUED, project="other")

    assert sorted(started(database, page_size=2)) == sorted([small, other])
    assert all(reason(database, job_id).startswith("needs 9 CPU slots") for job_id in big)


def test_an_older_job_passes_more_urgent_ones_that_came_much_later(database: Database) -> None:
    make_node(database, devices=1)
    make_job(database, state=JobState.QUEUED, priority=6)
    old = make_job(database, state=JobState.QUEUED, priority=4, queued_at=utc_now() - timedelta(hours=9))

    assert started(database) == [old]


def test_queues_with_weights_share_the_devices(database: Database) -> None:
    make_node(database, devices=4)
    for name, weight in (("day", 3.0), ("night", 1.0)):
        with database.write() as session:
            factories.make_queue(session, name).weight = weight
    night = [make_job(database, state=JobState.QUEUED, queue="night") for _ in range(4)]
    day = [make_job(database, state=JobState.QUEUED, queue="day") for _ in range(4)]

    assert sorted(started(database)) == sorted([night[0], *day[:3]])


def test_a_job_that_the_quota_never_lets_start_is_refused(api: Api) -> None:
    set_quota(api.db, cpu_slots={"limit": 2})

    problem = api.problem(api.post("/v1/jobs", make_document(resource_config={"gpu_count": 3})), 400)

    assert problem["code"] == "RESOURCES_UNAVAILABLE"
    assert "at most 2 CPU slots at a time, and the job needs 3" in problem["message"]
    assert problem["details"][0]["field"] == "resource_config.gpu_count"
    assert api.submit(resource_config={"gpu_count": 2})


@pytest.mark.parametrize("attempts_at_once", [24])
def test_of_many_submissions_at_once_as_many_get_in_as_may_wait(database: Database, attempts_at_once: int) -> None:
    set_quota(database, max_waiting_jobs=3)
    make_job(database, state=JobState.QUEUED)
    make_job(database, state=JobState.QUEUED)
    begin = threading.Barrier(attempts_at_once)
    outcomes: list[str] = []

    def submit() -> None:
        begin.wait()
        try:
            with database.write() as session:
                project_quotas.refuse_submission(session, "default", GPU, preemptible=False)
                factories.make_job(session)
            outcomes.append("in")
        except QuotaExceeded as refused:
            outcomes.append(str(refused).split(" (")[0])

    threads = [threading.Thread(target=submit) for _ in range(attempts_at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == ["in"] + ["the project default has 3 waiting jobs of at most 3"] * (attempts_at_once - 1)


def test_with_too_many_waiting_submitting_is_refused_until_one_starts(api: Api) -> None:
    with api.db.write() as session:
        factories.make_node(session)
    set_quota(api.db, max_waiting_jobs=1)
    api.submit()

    refused = api.post("/v1/jobs", make_document())

    assert api.problem(refused, 429)["code"] == "QUOTA_EXCEEDED"
    assert int(refused.headers["Retry-After"]) > 0
    with api.db.write() as session:
        session.query(Job).update({"status": JobState.QUEUED, "queued_at": utc_now()})
    assert len(started(api.db)) == 1
    assert api.submit()


def test_gpu_hours_are_counted_by_month_and_kept_when_jobs_go(database: Database, monkeypatch: Any) -> None:
    monkeypatch.setattr(gpu_hours, "utc_now", lambda: datetime(2026, 5, 1, 0, 0, 30, tzinfo=UTC))

    with database.write() as session:
        for _ in range(2):
            gpu_hours.count_gpu_seconds(session, "default", ran_seconds=90.0, devices=2)
        gpu_hours.count_gpu_seconds(session, "default", ran_seconds=50.0, devices=0)

    with database.read() as session:
        rows = {row.month: row.gpu_seconds for row in session.query(ProjectUsage)}
    assert rows == pytest.approx({"2026-05": 120.0, "2026-04": 240.0})


def test_an_ended_attempt_and_a_running_one_count(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    # Within the first half hour of a month a part of both would count in the month before.
    now = datetime(2026, 5, 15, 12, 0, tzinfo=UTC)
    monkeypatch.setattr(gpu_hours, "utc_now", lambda: now)
    make_node(database, devices=3, device_type="h100")
    first = start_attempt(database, make_job(database, state=JobState.QUEUED, document=gpu_document(2)))
    work_orders.enter_phase(database, first, JobState.TRAINING)
    work_orders.finish(database, first, Outcome(kind="completed", ran_seconds=1800.0), NO_WAIT)
    second = make_job(database, state=JobState.QUEUED, document=gpu_document(1))
    start_attempt(database, second)
    with database.write() as session:
        session.get_one(Attempt, (second, 1)).started_at = now - timedelta(minutes=1)

    with database.read() as session:
        hours = project_quotas.usage(session, "default").gpu_hours

    assert hours == pytest.approx(1.0 + 1 / 60, abs=0.01)


def test_with_the_months_hours_used_up_nothing_starts_or_is_submitted(api: Api) -> None:
    with api.db.write() as session:
        factories.make_node(session, devices=2)
        waiting = factories.make_job(session).id
        session.add(ProjectUsage(project="default", month=f"{utc_now():%Y-%m}", gpu_seconds=7300.0))
    set_quota(api.db, gpu_hours_per_month=2.0)

    assert started(api.db) == []
    said = api.get(f"/v1/jobs/{waiting}")["pending_reason"]
    assert said.startswith("the project default has used 2.0 of its 2 GPU-hours per month; the budget is renewed")
    refused = api.post("/v1/jobs", make_document())
    assert api.problem(refused, 429)["message"] == said
    assert int(refused.headers["Retry-After"]) <= 31 * 86_400
    set_quota(api.db, gpu_hours_per_month=3.0)
    assert started(api.db) == [waiting]


def test_with_too_much_kept_nothing_is_submitted_until_it_is_deleted(api: Api) -> None:
    set_quota(api.db, storage_gb=0.000_002)
    with api.db.write() as session:
        owner = factories.make_job(session, state=JobState.COMPLETED)
        session.flush()
        session.add(Artifact(job_id=owner.id, path="model/a", size_bytes=1500, sha256="0" * 64))
        kept = factories.make_checkpoint(session, owner, size_bytes=500).id

    assert "delete jobs with their artifacts" in api.problem(api.post("/v1/jobs", make_document()), 429)["message"]
    with api.db.write() as session:
        session.get_one(Checkpoint, kept).deleted_at = utc_now()
    assert api.submit()


def test_an_administrator_sets_a_quota_and_everybody_in_it_sees_its_use(api: Api) -> None:
    body = {"quota": {"cpu_slots": {"deserved": 1, "limit": 4}, "gpu_hours_per_month": 0.5}}

    changed = api.data(api.call("PATCH", "/v1/projects/default", json=body))
    shown = api.get("/v1/projects/default", key=api.make_key(Role.VIEWER))

    assert changed["quota"]["cpu_slots"] == {"deserved": 1, "limit": 4, "over_quota_weight": 1.0}
    assert "usage" not in changed
    assert shown["quota"] == changed["quota"]
    assert shown["usage"] == {
        "gpus": 0.0,
        "cpu_slots": 0.0,
        "running_jobs": 0,
        "waiting_jobs": 0,
        "gpu_hours": 0.0,
        "storage_bytes": 0,
    }
    admin = api.make_key(Role.ADMIN)
    assert api.call("PATCH", "/v1/projects/default", json={"quota": {}}, key=admin).status_code == 403


@pytest.mark.parametrize(
    ("quota", "field"),
    [
        ({"gpus": {"deserved": -1}}, "quota.gpus.deserved"),
        ({"gpus": {"limit": 1.5}}, "quota.gpus.limit"),
        ({"cpu_slots": {"over_quota_weight": -0.1}}, "quota.cpu_slots.over_quota_weight"),
        ({"cpu_slots": {"wieght": 1}}, "quota.cpu_slots.wieght"),
        ({"max_running_jobs": True}, "quota.max_running_jobs"),
        ({"storage_gb": "much"}, "quota.storage_gb"),
        ({"tpus": {}}, "quota.tpus"),
    ],
)
def test_a_bad_quota_names_the_field(sqlite_api: Api, quota: Any, field: str) -> None:
    for answer in (
        sqlite_api.call("PATCH", "/v1/projects/default", json={"quota": quota}),
        sqlite_api.post("/v1/projects", {"name": "new", "quota": quota}),
    ):
        assert [each["field"] for each in sqlite_api.problem(answer, 422)["details"]] == [field]


def test_a_project_is_made_with_a_quota_and_one_that_contradicts_itself_is_not(api: Api) -> None:
    made = api.data(api.post("/v1/projects", {"name": "new", "quota": {"max_running_jobs": 3}}), 201)
    wrong = api.post("/v1/projects", {"name": "other", "quota": {"gpus": {"deserved": 3, "limit": 2}}})

    assert made["quota"]["max_running_jobs"] == 3
    assert api.problem(wrong, 400)["details"][0]["field"] == "quota.gpus.deserved"
    with api.db.read() as session:
        assert session.get(Project, "other") is None


def gpu_document(count: int) -> dict[str, Any]:
    return make_document(resource_config={"gpu_count": count, "device_type": "cuda"})


def test_resuming_is_refused_as_submitting_is(api: Api) -> None:
    with api.db.write() as session:
        paused = factories.make_job(session, state=JobState.PAUSED).id
        factories.make_job(session, state=JobState.QUEUED)
    set_quota(api.db, max_waiting_jobs=1)

    refused = api.post(f"/v1/jobs/{paused}/resume")

    assert "has 1 waiting jobs of at most 1" in api.problem(refused, 429)["message"]
    assert job_of(api.db, paused).state is JobState.PAUSED
    set_quota(api.db, max_waiting_jobs=2)
    api.data(api.post(f"/v1/jobs/{paused}/resume"), 202)


def test_a_job_that_runs_on_what_is_borrowed_stays_preemptible(api: Api) -> None:
    with api.db.write() as session:
        node = factories.make_node(session, devices=2)
        document = make_document(scheduling_config={"preemptible": True})
        jobs = [factories.make_job(session, document=each) for each in (document, make_document())]
        for index, job in enumerate(jobs):
            factories.make_attempt(session, job, node, device_indices=(index,))
        job_id = jobs[0].id
    set_quota(api.db, cpu_slots={"deserved": 1})

    refused = api.call("PATCH", f"/v1/jobs/{job_id}", json={"preemptible": False})

    assert "deserves 1 cpu_slots, and its jobs that are not preemptible use 1" in api.problem(refused, 409)["message"]
    set_quota(api.db, cpu_slots={"deserved": 2})
    api.data(api.call("PATCH", f"/v1/jobs/{job_id}", json={"preemptible": False}))


def test_an_estimate_promises_nothing_that_the_quota_forbids(api: Api) -> None:
    with api.db.write() as session:
        factories.make_node(session)
    set_quota(api.db, max_running_jobs=0)

    answer = api.data(api.post("/v1/jobs", make_document()), 201)

    assert answer["estimated_wait_seconds"] is None


def test_a_pass_asks_as_few_questions_for_many_projects_with_limits_as_for_one(database: Database) -> None:
    def asked() -> int:
        with statements(database) as sent, database.read() as session:
            project_quotas.accounts(session, {})
        return len(sent)

    set_quota(database, "p0", gpu_hours_per_month=2.0, storage_gb=1.0, max_running_jobs=3)
    for_one = asked()
    for number in range(1, 20):
        set_quota(database, f"p{number}", gpu_hours_per_month=2.0, storage_gb=1.0, max_running_jobs=3)

    assert asked() == for_one


def test_each_of_many_projects_is_shown_its_own_limit(database: Database) -> None:
    month = f"{utc_now():%Y-%m}"
    for name in ("hours", "storage", "neither"):
        set_quota(database, name, gpu_hours_per_month=2.0, storage_gb=0.000_002)
    with database.write() as session:
        session.add(ProjectUsage(project="hours", month=month, gpu_seconds=2.5 * 3600))
        session.add(ProjectUsage(project="neither", month=month, gpu_seconds=1.5 * 3600))
        for name in ("storage", "neither"):
            job = factories.make_job(session, project=name)
            session.add(Artifact(job_id=job.id, path="m", size_bytes=3000 if name == "storage" else 1000, sha256=""))

    with database.read() as session:
        standings = project_quotas.accounts(session, {}).projects

    assert {name: standings[name].spent[:31] for name in ("hours", "storage", "neither")} == {
        "hours": "the project hours has used 2.5 ",
        "storage": "the project storage stores 0.0 ",
        "neither": "",
    }
