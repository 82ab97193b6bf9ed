"""Transactions that want the same rows at the same moment, on a real PostgreSQL: one waits for the other, and none is
thrown out because of a deadlock. (SQLite lets one writer in at a time.)
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import pytest
from sqlalchemy import delete as sql_delete
from sqlalchemy import text

from app.database.engine import Database, make_engine
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.resources import Device, request_of
from app.models import ApiKey, Job, Project, Queue
from app.models.base import utc_now
from app.security.permissions import Role
from app.security.secrets import SecretBox
from app.services.access import api_keys, projects
from app.services.access.api_keys import ADMINISTRATOR
from app.services.attempts import checkpoints, leases, work_orders
from app.services.attempts.leases import NO_RETRY
from app.services.lifecycle import transitions
from app.services.nodes import maintenance
from app.services.preflight.queueing import Gathered
from app.services.queues import project_quotas
from app.services.scheduling import placement as placing
from app.services.telemetry import stored_metrics
from app.services.telemetry.stored_metrics import MetricValue, TelemetryReports
from tests.builders.factories import make_attempt, make_checkpoint, make_document, make_job, make_node
from tests.systems.apps import SECRET_KEY, Api

SECONDS = 20.0


@pytest.fixture
def api(postgres_url: str, tmp_path: Path) -> Iterator[Api]:
    bound = Database().bind(make_engine(postgres_url))
    yield Api(bound, tmp_path)
    bound.close()


class Waiting:
    """Calls in threads of their own, each started when the one before waits for a lock."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._pool = ThreadPoolExecutor(4)
        self._started: list[Future[Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def start(self, call: Callable[[], Any]) -> Future[Any]:
        self._started.append(self._pool.submit(call))
        deadline = time.monotonic() + SECONDS
        while self._blocked() < len(self._started):
            assert time.monotonic() < deadline, [future for future in self._started if future.done()]
            time.sleep(0.01)
        return self._started[-1]

    def _blocked(self) -> int:
        of_ours = "datname = current_database() AND wait_event_type = 'Lock'"
        with self._db.read() as session:
            return int(session.scalars(text(f"SELECT count(*) FROM pg_stat_activity WHERE {of_ours}")).one())


def placement(job_id: str) -> Placement:
    return Placement(job_id=job_id, node="n1", devices=(Device(index=0, type="cpu", memory_mb=0),))


def delete_project(api: Api) -> None:
    projects.delete(api.db, api.app.extensions["trainyard"].plane.storage, ADMINISTRATOR, "team")


def test_key_is_rotated_and_then_its_project_deleted(api: Api) -> None:
    with api.db.write() as session:
        session.add(Project(name="team"))
    made = api_keys.create(api.db, SecretBox(SECRET_KEY), role=Role.VIEWER, project="team")
    key_id = made.row.id

    with Waiting(api.db) as calls:
        with api.db.write() as session:
            session.get_one(ApiKey, key_id, with_for_update=True)
            box = SecretBox(SECRET_KEY)
            rotated = calls.start(lambda: api_keys.rotate(api.db, box, ADMINISTRATOR, key_id, grace_seconds=60))
            deleted = calls.start(lambda: delete_project(api))

        assert rotated.result(SECONDS).row.project == "team"
        assert deleted.result(SECONDS) is None
    with api.db.read() as session:
        assert session.get(Project, "team") is None
        assert session.get(ApiKey, rotated.result().row.id) is None


def test_key_of_a_project_that_is_being_deleted_is_not_rotated_any_more(api: Api) -> None:
    made = api.make_key(Role.VIEWER, "team")
    key_id = api_keys.authenticate(api.db, made).key_id

    with Waiting(api.db) as calls:
        with api.db.write() as session:
            session.get_one(ApiKey, key_id, with_for_update=True)
            deleted = calls.start(lambda: delete_project(api))
            rotated = calls.start(lambda: api.post(f"/v1/keys/{key_id}/rotate", {}).status_code)

        assert (deleted.result(SECONDS), rotated.result(SECONDS)) == (None, 404)


def ended_job(api: Api) -> str:
    with api.db.write() as session:
        return str(make_job(session, state=JobState.COMPLETED).id)


def submit_from(api: Api, job_id: str) -> Callable[[], int]:
    """A submission whose model lies among the results of a job."""
    model = {"model_id": f"{api.folder}/data/files/jobs/{job_id}/artifacts"}
    document = make_document(training_config={"base_model": model})
    headers = {"Authorization": f"Bearer {api.key}"}
    return lambda: api.app.test_client().post("/v1/jobs", json=document, headers=headers).status_code


def delete(api: Api, job_id: str) -> Callable[[], int]:
    headers = {"Authorization": f"Bearer {api.key}"}
    return lambda: api.app.test_client().delete(f"/v1/jobs/{job_id}?artifacts=true", headers=headers).status_code


def test_job_whose_results_were_named_first_is_not_deleted(api: Api) -> None:
    job_id = ended_job(api)

    with Waiting(api.db) as calls:
        with api.db.write() as session:
            transitions.load_for_change(session, job_id)
            submitted = calls.start(submit_from(api, job_id))
            deleted = calls.start(delete(api, job_id))

        assert (submitted.result(SECONDS), deleted.result(SECONDS)) == (201, 409)


def test_results_of_a_job_that_was_deleted_first_are_not_named(api: Api) -> None:
    job_id = ended_job(api)

    with Waiting(api.db) as calls:
        with api.db.write() as session:
            transitions.load_for_change(session, job_id)
            deleted = calls.start(delete(api, job_id))
            submitted = calls.start(submit_from(api, job_id))

        assert (submitted.result(SECONDS), deleted.result(SECONDS)) == (400, 204)


def test_results_of_a_job_are_named_while_it_is_placed_from_a_queue_with_limits(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, "n1")
        job_id = make_job(session).id
        queue = session.get_one(Queue, "default")
        queue.max_waiting_jobs, queue.max_running_jobs = 10, 10

    with Waiting(api.db) as calls:
        with api.db.write() as session:
            transitions.load_for_change(session, job_id)
            submitted = calls.start(submit_from(api, job_id))
            placed = calls.start(lambda: placing.place(api.db, [placement(job_id)], "planner"))

        assert submitted.result(SECONDS) == 201
        assert placed.result(SECONDS)[0].job_id == job_id


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("webhooks", {"url": "https://receiver.example/hook"}, 404),
        ("keys", {"role": "viewer"}, 409),
        ("jobs", make_document(), 409),
    ],
)
def test_nothing_is_made_in_a_project_that_is_being_deleted(
    api: Api, path: str, body: dict[str, Any], status: int
) -> None:
    headers = {"Authorization": f"Bearer {api.make_key(Role.ADMIN, 'team')}"}

    with Waiting(api.db) as calls:
        with api.db.write() as session:
            session.get_one(Project, "team", with_for_update=True)
            made = calls.start(
                lambda: api.app.test_client().post(f"/v1/{path}", json=body, headers=headers).status_code
            )
            session.execute(sql_delete(ApiKey).where(ApiKey.project == "team"))
            session.execute(sql_delete(Project).where(Project.name == "team"))

        assert made.result(SECONDS) == status


def test_job_is_placed_on_a_node_and_then_asked_back_by_its_draining(api: Api) -> None:
    with api.db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session, "n1"))
        job_id = job.id

    with Waiting(api.db) as calls:
        with api.db.write() as session:
            ending = transitions.load_for_change(session, job_id)
            placed = calls.start(lambda: placing.place(api.db, [placement(job_id)], "planner"))
            drained = calls.start(lambda: maintenance.drain(api.db, ADMINISTRATOR, "n1", requeue=True))
            work_orders.end_attempt(session, ending, 1, Outcome(kind="requeued"), NO_RETRY, actor="test")

        assert placed.result(SECONDS)[0].attempt == 2
        assert drained.result(SECONDS).requeued_jobs == 1
    with api.db.read() as session:
        job = session.get_one(Job, job_id)
        assert (job.state, job.requested) == (JobState.SCHEDULING, "requeue")


def test_attempt_is_not_restarted_in_place_against_a_demand_that_is_just_made(api: Api) -> None:
    with api.db.write() as session:
        job = make_job(session, state=JobState.TRAINING)
        make_attempt(session, job, make_node(session, "n1"))
        job_id, project = job.id, job.project
    work = work_orders.load_work(api.db, job_id, 1)
    killed = Outcome(kind="failed", cause="RANK_KILLED")

    with Waiting(api.db) as calls:
        with api.db.write() as session:
            row = session.get_one(Project, project, with_for_update=True)
            ended = calls.start(lambda: work_orders.finish(api.db, work, killed, NO_RETRY, may_restart=True))
            row.quota = {"required_capabilities": ["sandbox:full"]}

        assert ended.result(SECONDS).restart is None
    with api.db.read() as session:
        assert session.get_one(Job, job_id).state is JobState.QUEUED


def test_attempt_is_restarted_in_place_while_another_job_starts_from_its_checkpoint(api: Api) -> None:
    document = make_document(training_config={"on_divergence": {"action": "rollback"}})
    with api.db.write() as session:
        job = make_job(session, state=JobState.TRAINING, document=document)
        make_attempt(session, job, make_node(session, "n1"))
        saved = make_checkpoint(session, job, step=3, metrics={"loss": 1.0}).id
        session.get_one(Project, job.project).quota = {"max_waiting_jobs": 100}
        job_id, project, request = job.id, job.project, request_of(job.document, has_gpus=False)
    work = work_orders.load_work(api.db, job_id, 1)
    diverged = Outcome(kind="failed", cause="DIVERGED", end_step=9)

    with Waiting(api.db) as calls:
        with api.db.write() as session:
            assert checkpoints.lock(session, saved) is not None  # as a submission does
            ended = calls.start(lambda: work_orders.finish(api.db, work, diverged, NO_RETRY, may_restart=True))
            project_quotas.refuse_submission(session, project, request, preemptible=False)

        assert ended.result(SECONDS).restart == 2
    with api.db.read() as session:
        assert session.get_one(Job, job_id).chosen_checkpoint_id == saved


def test_a_job_is_deleted_while_others_lock_its_children_in_the_order_of_their_keys(api: Api) -> None:
    parent = ended_job(api)
    with api.db.write() as session:
        ids = sorted(str(make_job(session, state=JobState.COMPLETED).id) for _ in range(2))
    for job_id in reversed(ids):  # as they lie in the table, and in the index, from now on
        with api.db.write() as session:
            session.get_one(Job, job_id).parent_job_id = parent

    with Waiting(api.db) as calls:
        with api.db.write() as session:
            transitions.load_for_change(session, ids[0])
            deleted = calls.start(delete(api, parent))
            transitions.load_for_change(session, ids[1])

        assert deleted.result(SECONDS) == 204
    with api.db.read() as session:
        assert [session.get_one(Job, job_id).parent_job_id for job_id in ids] == [None, None]


def dispatched(api: Api) -> list[tuple[str, int]]:
    """Two attempts that wait for n1, in the order of their jobs' ids."""
    with api.db.write() as session:
        node = make_node(session, "n1", devices=2)
        jobs = [make_job(session) for _ in range(2)]
        for index, job in enumerate(jobs):
            make_attempt(session, job, node, device_indices=(index,), claimed=False)
        return sorted((job.id, 1) for job in jobs)


def test_claims_of_several_lock_their_jobs_in_the_order_of_their_keys(api: Api) -> None:
    first, second = dispatched(api)

    with Waiting(api.db) as calls:
        with api.db.write() as session:
            transitions.load_for_change(session, first[0])
            claimed = calls.start(lambda: leases.claim_together(api.db, [second, first], node="n1", boot_id="b"))
            transitions.load_for_change(session, second[0])

        claims, others = claimed.result(SECONDS)
    assert ([(each.job_id, each.attempt) for each in claims], others) == ([first, second], [])


def test_claims_of_several_that_a_deadlock_throws_out_are_left_to_claims_of_their_own(api: Api) -> None:
    first, second = dispatched(api)

    with Waiting(api.db) as calls:
        with api.db.write() as session:
            transitions.load_for_change(session, second[0])
            claimed = calls.start(lambda: leases.claim_together(api.db, [first, second], node="n1", boot_id="b"))
            transitions.load_for_change(session, first[0])  # the wrong way round: who waited first is thrown out

        assert claimed.result(SECONDS) == ([], [first, second])


def test_admissions_that_a_deadlock_throws_out_are_done_one_by_one(api: Api) -> None:
    failures: list[Any] = []
    with api.db.write() as session:
        first, second = sorted(make_job(session, state=JobState.PENDING).id for _ in range(2))
    gathered = Gathered(api.db, lambda *failure: failures.append(failure))
    gathered.add(second)
    gathered.add(first)

    with Waiting(api.db) as calls:
        with api.db.write() as session:
            transitions.load_for_change(session, second)
            queued = calls.start(gathered.queue)
            transitions.load_for_change(session, first)  # the wrong way round: who waited first is thrown out

        assert (sorted(queued.result(SECONDS)), failures) == ([first, second], [])


def test_placing_that_a_deadlock_throws_out_is_done_again(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, "n1")
        job_id = make_job(session).id

    with Waiting(api.db) as calls:
        with api.db.write() as session:
            session.get_one(Queue, "default", with_for_update=True)
            placed = calls.start(lambda: placing.place(api.db, [placement(job_id)], "planner"))
            transitions.load_for_change(session, job_id)  # the wrong way round: who waited first is thrown out

        assert [each.job_id for each in placed.result(SECONDS)] == [job_id]


def test_report_and_a_planned_evaluation_both_add_to_the_latest_metrics(api: Api) -> None:
    now = utc_now()
    with api.db.write() as session:
        job = make_job(session, state=JobState.TRAINING, latest_metrics={})
        make_attempt(session, job, make_node(session))
        job_id = job.id
    reports = TelemetryReports(points=[MetricValue(name="loss", step=2, at=now, value=3.0)])
    measured = [MetricValue(name="bench/f1/f1", step=2, at=now, value=0.5)]

    with Waiting(api.db) as waiting:
        with api.db.write() as session:
            stored_metrics.add_points(session, transitions.load_for_change(session, job_id), measured)
            stored = waiting.start(
                lambda: stored_metrics.store(api.db, job_id=job_id, attempt=1, fence=1, reports=reports)
            )
        stored.result(SECONDS)

    with api.db.read() as session:
        assert session.get_one(Job, job_id).latest_metrics == {"bench/f1/f1": 0.5, "loss": 3.0}
