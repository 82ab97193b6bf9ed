"""Deleting jobs that have ended: rows, files, and what other jobs still need."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from app.domain.lifecycle.states import TERMINAL, JobState
from app.models import Artifact, AuditEntry, Checkpoint, Job, JobEvent, Metric
from app.models.base import Base, utc_now
from app.services.jobs import deletion
from app.services.lifecycle import labels
from app.storage.storage import Storage
from tests.builders.factories import make_attempt, make_checkpoint, make_document, make_job, make_node
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases


def storage(api: Api) -> Storage:
    found: Storage = api.app.extensions["trainyard"].plane.storage
    return found


def ended_job(api: Api, state: JobState = JobState.COMPLETED, **columns: Any) -> str:
    """With a checkpoint, a model, a log, labels and metrics."""
    with api.db.write() as session:
        job = make_job(session, state=state, labels={"a": "b"}, **columns)
        session.add_all(labels.rows(job))
        session.add(Artifact(job_id=job.id, path="model.safetensors", size_bytes=1, sha256="5" * 64))
        job.latest_checkpoint_id = make_checkpoint(session, job).id
        job.metric_seq = 25
        for seq in range(1, 26):
            point = {"name": "loss", "step": seq, "at": utc_now(), "value": 1.0, "attempt": 1, "seq": seq}
            session.add(Metric(job_id=job.id, **point))
        job_id, checkpoint_id = job.id, job.latest_checkpoint_id
    for path in (
        "artifacts/model.safetensors",
        f"checkpoints/{checkpoint_id}/w",
        "attempts/1/logs/rank-0-000001.jsonl",
    ):
        storage(api).write(f"jobs/{job_id}/{path}", b"x")
    return str(job_id)


def files(api: Api, job_id: str) -> int:
    return len(storage(api).list(f"jobs/{job_id}"))


def rows_of(api: Api, job_id: str) -> dict[str, int]:
    """Table → rows, for all that hang on a job."""
    with api.db.read() as session:
        tables = [table for table in Base.metadata.sorted_tables if "job_id" in table.c]
        counts = {
            table.name: session.scalar(select(func.count()).select_from(table).where(table.c.job_id == job_id)) or 0
            for table in tables
        }
        return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_job_goes_with_all_its_rows(api: Api, state: JobState):
    job_id, other = ended_job(api, state), ended_job(api)

    answer = api.call("DELETE", f"/v1/jobs/{job_id}")

    assert (answer.status_code, answer.get_data()) == (204, b"")
    assert api.call("GET", f"/v1/jobs/{job_id}").status_code == 404
    assert [job["job_id"] for job in api.get("/v1/jobs")["jobs"]] == [other]
    assert rows_of(api, job_id) == {}
    assert rows_of(api, other)
    assert api.call("DELETE", f"/v1/jobs/{job_id}").status_code == 404


def test_files_stay_unless_they_are_to_go(api: Api):
    kept, removed = ended_job(api), ended_job(api)

    api.call("DELETE", f"/v1/jobs/{kept}")
    api.call("DELETE", f"/v1/jobs/{removed}?artifacts=true")

    assert (files(api, kept), files(api, removed)) == (3, 0)


def test_deletion_is_in_the_audit_trail(api: Api):
    job_id = ended_job(api)

    api.call("DELETE", f"/v1/jobs/{job_id}?artifacts=true")

    with api.db.read() as session:
        entry = session.scalars(select(AuditEntry).where(AuditEntry.action == "job.delete")).one()
        assert (entry.target, entry.project, entry.outcome) == (job_id, "default", "done")
        assert entry.data == {"name": "tiny-sft", "status": "COMPLETED", "artifacts": True}


@pytest.mark.parametrize("state", sorted(set(JobState) - TERMINAL))
def test_job_that_has_not_ended_stays(sqlite_api: Api, state: JobState):
    job_id = ended_job(sqlite_api, state)

    problem = sqlite_api.problem(sqlite_api.call("DELETE", f"/v1/jobs/{job_id}?artifacts=true"), 409)

    assert problem["code"] == "INVALID_STATE"
    assert "cancel it first" in problem["message"]
    assert files(sqlite_api, job_id) == 3


@pytest.mark.parametrize("query", ["", "?artifacts=true"])
def test_checkpoint_that_a_living_job_starts_from_is_not_taken_away(api: Api, query: str):
    parent = ended_job(api)
    child = api.submit(training_config={"resume_from_checkpoint": parent})

    problem = api.problem(api.call("DELETE", f"/v1/jobs/{parent}{query}"), 409)

    assert problem["code"] == "STILL_NEEDED"
    assert child in problem["message"]
    assert files(api, parent) == 3
    assert len(api.get(f"/v1/jobs/{parent}/checkpoints")["checkpoints"]) == 1
    api.call("POST", f"/v1/jobs/{child}/cancel")
    assert api.call("DELETE", f"/v1/jobs/{parent}{query}").status_code == 204


@pytest.mark.parametrize("way", ["{path}", "file://{path}", "file://{coded}"])
def test_result_that_a_living_job_reads_is_not_taken_away(api: Api, way: str):
    parent = ended_job(api)
    path = f"{api.folder}/data/files/jobs/{parent}/artifacts"
    model = way.format(path=path, coded=path.replace("-", "%2D"))
    child = api.submit(training_config={"base_model": {"model_id": model}})

    problem = api.problem(api.call("DELETE", f"/v1/jobs/{parent}?artifacts=true"), 409)

    assert child in problem["message"]
    api.call("POST", f"/v1/jobs/{child}/cancel")
    assert api.call("DELETE", f"/v1/jobs/{parent}?artifacts=true").status_code == 204


def test_a_label_with_a_jobs_id_keeps_nothing(api: Api):
    parent = ended_job(api)
    api.submit(labels={"after": parent})

    assert api.call("DELETE", f"/v1/jobs/{parent}?artifacts=true").status_code == 204


def test_children_lose_their_parent_and_parents_their_child(api: Api):
    parent = ended_job(api)
    child = ended_job(api, parent_job_id=parent)
    grandchild = ended_job(api, parent_job_id=child)

    api.call("DELETE", f"/v1/jobs/{child}")

    assert api.get(f"/v1/jobs/{parent}")["child_job_ids"] == []
    assert api.get(f"/v1/jobs/{grandchild}")["parent_job_id"] is None


def test_interrupted_deletion_is_completed_by_the_next(api: Api):
    job_id = ended_job(api)
    storage(api).delete_tree(f"jobs/{job_id}")
    with api.db.write() as session:
        checkpoint = session.scalars(select(Checkpoint).where(Checkpoint.job_id == job_id)).one()
        checkpoint.deleted_at = utc_now() - timedelta(seconds=1)

    assert api.call("DELETE", f"/v1/jobs/{job_id}?artifacts=true").status_code == 204
    assert rows_of(api, job_id) == {}


def test_metrics_go_in_portions(api: Api, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deletion, "METRICS_AT_ONCE", 10)
    job_id = ended_job(api)

    api.call("DELETE", f"/v1/jobs/{job_id}")

    assert rows_of(api, job_id) == {}


def test_job_that_ran_goes_with_attempts_leases_and_events(api: Api):
    with api.db.write() as session:
        job = make_job(session, document=make_document())
        make_attempt(session, job, make_node(session))
        job_id = job.id
    api.call("POST", f"/v1/jobs/{job_id}/cancel")
    with api.db.write() as session:
        job = session.get_one(Job, job_id)
        job.status = JobState.CANCELLED
        assert session.scalar(select(func.count()).select_from(JobEvent).where(JobEvent.job_id == job_id))

    assert api.call("DELETE", f"/v1/jobs/{job_id}").status_code == 204

    assert rows_of(api, job_id) == {}


@pytest.mark.parametrize("query", ["?artifacts=yes", "?artifacts=", "?force=true"])
def test_unknown_parameters_of_a_deletion_are_refused(sqlite_api: Api, query: str):
    job_id = ended_job(sqlite_api)

    assert sqlite_api.call("DELETE", f"/v1/jobs/{job_id}{query}").status_code == 422
    assert sqlite_api.call("GET", f"/v1/jobs/{job_id}").status_code == 200


def at_once(*calls: Callable[[], int]) -> list[int]:
    """The statuses of requests that are made at the same moment."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], int]) -> int:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(run, call) for call in calls]]


@pytest.mark.parametrize("_", range(4))
def test_start_from_a_job_that_is_being_deleted_wins_or_loses_as_a_whole(api: Api, _: int):
    parent = ended_job(api)
    document = make_document(training_config={"resume_from_checkpoint": parent})

    deleted, submitted = at_once(
        lambda: api.app.test_client().delete(f"/v1/jobs/{parent}?artifacts=true", headers=bearer(api)).status_code,
        lambda: api.app.test_client().post("/v1/jobs", json=document, headers=bearer(api)).status_code,
    )

    assert (deleted, submitted) in {(204, 400), (409, 201)}
    assert files(api, parent) == (0 if deleted == 204 else 3)


def test_parallel_deletions_are_one(api: Api):
    job_id = ended_job(api)
    path, client = f"/v1/jobs/{job_id}?artifacts=true", api.app.test_client

    statuses = at_once(*[lambda: client().delete(path, headers=bearer(api)).status_code] * 4)

    assert 204 in statuses
    assert set(statuses) <= {204, 404}
    with api.db.read() as session:
        found = session.scalars(select(AuditEntry).where(AuditEntry.action == "job.delete")).all()
        assert [entry.target for entry in found] == [job_id]


def bearer(api: Api) -> dict[str, str]:
    return {"Authorization": f"Bearer {api.key}"}
