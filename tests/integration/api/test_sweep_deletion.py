"""Deleting a sweep together with the jobs of its trials: all or nothing, and a coordinator finishes what is left."""

from typing import Any

import pytest
from sqlalchemy import event, func, select

from app.domain.errors import TransientStorageError
from app.domain.lifecycle.states import JobState
from app.domain.sweeps.states import SweepState
from app.models import AuditEntry, Job, JobDeletion, Sweep, Trial
from app.services.operations.orphan_cleanup import OrphanSweep
from app.services.sweeps import commands
from app.storage.storage import Storage
from tests.builders.factories import make_checkpoint, make_job
from tests.builders.sweeps import make_sweep, make_trial
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases


def storage(api: Api) -> Storage:
    found: Storage = api.app.extensions["trainyard"].plane.storage
    return found


def ended_sweep(api: Api, *, trials: int = 3, state: JobState = JobState.COMPLETED) -> tuple[str, list[str]]:
    """A completed sweep and the jobs of its trials with a checkpoint and two files each; the last is in ``state``."""
    with api.db.write() as session:
        sweep = make_sweep(session, status=SweepState.COMPLETED)
        ids = []
        for i in range(trials):
            job = make_job(session, state=state if i == trials - 1 else JobState.COMPLETED, sweep_id=sweep.id)
            job.latest_checkpoint_id = make_checkpoint(session, job).id
            make_trial(session, sweep, job_id=job.id)
            ids.append(job.id)
        sweep_id = sweep.id
    for job_id in ids:
        for path in ("artifacts/model.safetensors", "attempts/1/logs/rank-0-000001.jsonl"):
            storage(api).write(f"jobs/{job_id}/{path}", b"x")
    return sweep_id, ids


def rows(api: Api, table: type[Any]) -> int:
    with api.db.read() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def files(api: Api, ids: list[str]) -> int:
    return sum(len(storage(api).list(f"jobs/{job_id}")) for job_id in ids)


def delete(api: Api, sweep_id: str, **request: Any) -> Any:
    return api.call("DELETE", f"/v1/sweeps/{sweep_id}?jobs=true", **request)


def test_jobs_go_with_the_sweep_and_those_of_others_stay(api: Api) -> None:
    sweep_id, ids = ended_sweep(api)
    other, kept = ended_sweep(api)

    answer = api.data(delete(api, sweep_id))

    assert answer == {"sweep_id": sweep_id, "jobs": 3, "jobs_left": 0}
    assert api.call("GET", f"/v1/sweeps/{sweep_id}").status_code == 404
    assert {each["job_id"] for each in api.get("/v1/jobs")["jobs"]} == set(kept)
    assert (files(api, ids), files(api, kept)) == (0, 6)
    assert len(api.get(f"/v1/sweeps/{other}/trials")["trials"]) == 3
    assert (rows(api, JobDeletion), rows(api, Trial)) == (0, 3)
    assert delete(api, sweep_id).status_code == 404


def test_the_audit_trail_has_the_sweep_and_each_job(api: Api) -> None:
    sweep_id, ids = ended_sweep(api)

    delete(api, sweep_id)

    with api.db.read() as session:
        entries = session.scalars(select(AuditEntry).where(AuditEntry.action.in_(["sweep.delete", "job.delete"]))).all()
    found = {entry.target: entry.data for entry in entries}
    assert set(found) == {sweep_id, *ids}
    assert found[sweep_id] == {"name": "search", "status": "COMPLETED", "jobs": 3}
    assert found[ids[0]]["artifacts"] is True


def test_a_job_that_has_not_ended_keeps_all(api: Api) -> None:
    sweep_id, ids = ended_sweep(api, state=JobState.TRAINING)

    problem = api.problem(delete(api, sweep_id), 409)

    assert (problem["code"], ids[-1] in problem["message"], "cancel it first" in problem["message"]) == (
        "INVALID_STATE",
        True,
        True,
    )
    assert (rows(api, Sweep), rows(api, JobDeletion), files(api, ids)) == (1, 0, 6)


@pytest.mark.parametrize("reads", ["checkpoint", "model"])
def test_a_job_that_another_one_reads_from_keeps_all(api: Api, reads: str) -> None:
    sweep_id, ids = ended_sweep(api)
    if reads == "checkpoint":
        reader = api.submit(training_config={"resume_from_checkpoint": ids[1]})
    else:
        reader = api.submit(
            training_config={"base_model": {"model_id": f"{api.folder}/data/files/jobs/{ids[1]}/artifacts"}}
        )

    problem = api.problem(delete(api, sweep_id), 409)

    assert problem["code"] == "STILL_NEEDED"
    assert f"job {reader} has not ended and reads from {ids[1]}" in problem["message"]
    assert (rows(api, Sweep), rows(api, JobDeletion), files(api, ids)) == (1, 0, 6)


def test_what_a_request_does_not_manage_is_left_to_a_coordinator(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep_id, ids = ended_sweep(api)
    monkeypatch.setattr(commands, "DELETING_SECONDS", 0.0)

    answer = api.data(delete(api, sweep_id))

    assert (answer["jobs"], answer["jobs_left"]) == (3, 3)
    assert api.call("GET", f"/v1/sweeps/{sweep_id}").status_code == 404
    assert OrphanSweep(api.db, f"file://{api.folder}/data/files").run_round() == 3
    assert (rows(api, Job), rows(api, JobDeletion), files(api, ids)) == (0, 0, 0)


def test_a_storage_that_fails_is_asked_again_by_a_coordinator(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep_id, ids = ended_sweep(api)
    real = storage(api).delete_tree

    def delete_tree(key: str) -> None:
        if ids[0] in key:
            raise TransientStorageError("the storage is away")
        real(key)

    monkeypatch.setattr(storage(api), "delete_tree", delete_tree)
    answer = api.data(delete(api, sweep_id))

    assert (answer["jobs"], answer["jobs_left"]) == (3, 1)
    assert OrphanSweep(api.db, f"file://{api.folder}/data/files").run_round() == 1
    assert (rows(api, Job), files(api, ids)) == (0, 0)


def test_the_number_of_statements_does_not_grow_with_the_jobs(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "DELETING_SECONDS", 0.0)
    counts = []
    for trials in (3, 30):
        sweep_id, _ = ended_sweep(api, trials=trials)
        statements: list[str] = []

        def count(_connection: Any, _cursor: Any, statement: str, *_: Any, found: list[str] = statements) -> None:
            found.append(statement)

        event.listen(api.db.engine, "before_cursor_execute", count)
        delete(api, sweep_id)
        event.remove(api.db.engine, "before_cursor_execute", count)
        counts.append(len(statements))

    assert counts[1] <= counts[0]  # the first request also reads the key
