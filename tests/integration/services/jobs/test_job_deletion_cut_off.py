"""Interrupted deletions: they are recorded, no job starts from their files, and a coordinator completes them."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select
from werkzeug.test import TestResponse

from app.domain.errors import TransientStorageError
from app.domain.lifecycle.states import JobState
from app.factory import create_app
from app.models import AuditEntry, Job
from app.security.permissions import Role
from app.services.access.api_keys import ADMINISTRATOR
from app.services.jobs import deletion
from app.services.operations.orphan_cleanup import OrphanSweep
from app.storage.storage import Storage
from config.settings import load_settings
from tests.builders.factories import make_checkpoint, make_document, make_job
from tests.systems.apps import SECRET_KEY, Api

pytestmark = pytest.mark.both_databases


def delete_and_die(environment: dict[str, str], path: str, key: str, moment: str) -> None:
    """What an API process does that is killed as it is about to delete the files, or has just done so."""
    app = create_app(load_settings(environment))
    storage = app.extensions["trainyard"].plane.storage
    delete_tree = storage.delete_tree

    def die(tree: str) -> None:
        if moment == "after":
            delete_tree(tree)
        os.kill(os.getpid(), signal.SIGKILL)

    storage.delete_tree = die
    app.test_client().delete(path, headers={"Authorization": f"Bearer {key}"})


def storage(api: Api) -> Storage:
    found: Storage = api.app.extensions["trainyard"].plane.storage
    return found


def ended_job(api: Api) -> str:
    with api.db.write() as session:
        job = make_job(session, state=JobState.COMPLETED)
        job.latest_checkpoint_id = make_checkpoint(session, job).id
        job_id = str(job.id)
    storage(api).write(f"jobs/{job_id}/artifacts/config.json", b"x")
    return job_id


def starts(api: Api, job_id: str) -> list[dict[str, Any]]:
    """Documents that start from the job."""
    path = f"{api.folder}/data/files/jobs/{job_id}/artifacts"
    return [
        make_document(training_config={"resume_from_checkpoint": job_id}),
        make_document(training_config={"base_model": {"model_id": path}}),
        make_document(data_config={"sources": [{"path": f"file://{path}/config.json", "format": "jsonl"}]}),
    ]


def audited(api: Api) -> list[tuple[str, str, Any]]:
    with api.db.read() as session:
        found = session.scalars(select(AuditEntry).where(AuditEntry.action == "job.delete").order_by(AuditEntry.id))
        return [(entry.actor, entry.target, entry.data["artifacts"]) for entry in found]


def swept(api: Api) -> int:
    return OrphanSweep(api.db, f"file://{api.folder}/data/files").run_round()


def while_files_go(api: Api, monkeypatch: pytest.MonkeyPatch, call: Callable[[], None]) -> None:
    """The next deletion of files is preceded by the call, once."""
    real, calls = storage(api).delete_tree, [call]

    def delete_tree(key: str) -> None:
        if calls:
            calls.pop()()
        real(key)

    monkeypatch.setattr(storage(api), "delete_tree", delete_tree)


def while_rows_go(monkeypatch: pytest.MonkeyPatch, call: Callable[[], None]) -> None:
    """The same for what hangs on a job."""
    real, calls = deletion._drop_metrics, [call]

    def drop_metrics(*arguments: Any) -> None:
        if calls:
            calls.pop()()
        real(*arguments)

    monkeypatch.setattr(deletion, "_drop_metrics", drop_metrics)


def begin_with_files(api: Api, job_id: str) -> None:
    """What a request leaves behind that dies at once."""
    with api.db.write() as session:
        deletion._begin(session, session.get_one(Job, job_id), ADMINISTRATOR, artifacts=True)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_deletion_by_a_killed_process_is_audited_and_completed(api: Api, moment: str):
    job_id, key = ended_job(api), api.make_key(Role.ADMIN)
    environment = {
        "TRAINYARD_SECURITY_SECRET_KEY": SECRET_KEY,
        "TRAINYARD_DATA_DIR": f"{api.folder}/data",
        "TRAINYARD_DATABASE_URL": api.db.engine.url.render_as_string(hide_password=False),
    }

    child = os.fork()  # of a process that has imported everything
    if child == 0:
        try:
            delete_and_die(environment, f"/v1/jobs/{job_id}?artifacts=true", key, moment)
        finally:
            os._exit(1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    owner = next(each["key_id"] for each in api.get("/v1/keys")["keys"] if each["role"] == "admin")
    assert audited(api) == [(owner, job_id, True)]
    assert [api.post("/v1/jobs", document).status_code for document in starts(api, job_id)] == [400] * 3
    assert swept(api) == 1
    assert api.call("GET", f"/v1/jobs/{job_id}").status_code == 404
    assert not storage(api).list(f"jobs/{job_id}")
    assert (audited(api), swept(api)) == ([(owner, job_id, True)], 0)


def test_no_job_starts_from_one_whose_files_are_being_deleted(api: Api, monkeypatch: pytest.MonkeyPatch):
    job_id = ended_job(api)
    answers: list[TestResponse] = []

    def submit() -> None:
        answers.extend(api.post("/v1/jobs", document) for document in starts(api, job_id))

    while_files_go(api, monkeypatch, submit)

    assert api.call("DELETE", f"/v1/jobs/{job_id}?artifacts=true").status_code == 204
    problems = [api.problem(answer, 400) for answer in answers]
    assert ["no checkpoint to resume from" in problems[0]["message"]] == [True]
    assert ["has no job with such results" in problem["message"] for problem in problems[1:]] == [True, True]


def test_files_go_if_that_is_asked_for_while_the_rest_is_going(api: Api, monkeypatch: pytest.MonkeyPatch):
    job_id = ended_job(api)
    while_rows_go(monkeypatch, lambda: begin_with_files(api, job_id))

    assert api.call("DELETE", f"/v1/jobs/{job_id}").status_code == 204

    assert api.call("GET", f"/v1/jobs/{job_id}").status_code == 404
    assert not storage(api).list(f"jobs/{job_id}")
    assert [artifacts for *_, artifacts in audited(api)] == [False, True]


def test_storage_that_fails_is_asked_again(api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    job_id, other = ended_job(api), ended_job(api)

    def fail() -> None:
        raise TransientStorageError("the storage is away")

    while_files_go(api, monkeypatch, fail)
    assert api.call("DELETE", f"/v1/jobs/{job_id}?artifacts=true").status_code == 503
    while_files_go(api, monkeypatch, fail)
    assert deletion.finish_begun(api.db, storage(api)) == 0
    assert f"the deletion of {job_id} could not be finished yet" in caplog.text
    assert deletion.finish_begun(api.db, storage(api)) == 1

    assert api.call("GET", f"/v1/jobs/{job_id}").status_code == 404
    assert [target for _, target, _ in audited(api)] == [job_id]
    assert api.call("GET", f"/v1/jobs/{other}").status_code == 200
