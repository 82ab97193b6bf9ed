"""Creating, listing and cancelling batches, and what is not deleted while they live."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.domain.errors import (
    Conflict,
    IllegalTransition,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    StillNeeded,
    UnknownQueue,
)
from app.models import Batch, BatchJob, File
from app.models.base import utc_now
from app.security.permissions import Caller, Role
from app.services.access import projects
from app.services.batches import commands, creation, listing
from app.services.batches.creation import NewBatch
from app.services.files import deletion as files
from app.services.files import expiry
from app.services.jobs import deletion as jobs
from app.services.operations.retention import rows
from app.services.operations.retention.context import RetentionContext
from app.services.requests.pagination import PageRequest
from config.retention import RetentionSettings
from tests.builders.batch_runs import CALLER, CHAT, MODEL, BatchRun, answer, request
from tests.builders.factories import make_project
from tests.builders.files import put_file
from tests.systems.apps import Api

STRANGER = Caller(key_id="key-stranger", role=Role.ADMIN, project="other")
ROOT = Caller(key_id="key-root", role=Role.SUPER_ADMIN, project=None)

pytestmark = pytest.mark.both_databases


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"endpoint": "/v1/moderations"}, "endpoint"),
        ({"window_seconds": 60}, "completion_window"),
        ({"output_expires_seconds": 1}, "output_expires_after"),
        ({"parts": {"data_config": {}}}, "data_config"),
        ({"parts": {"scheduling_config": {"queue": "none-such"}}}, "scheduling_config.queue"),
    ],
)
def test_what_no_batch_may_have(sqlite_api: Api, changes: dict[str, Any], field: str) -> None:
    with pytest.raises((InvalidRequest, UnknownQueue)) as caught:
        BatchRun(sqlite_api, [request("a")], **changes)
    assert caught.value.field == field


def test_files_of_others_and_other_purposes(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request("a")])
    with run.db.write() as session:
        make_project(session, "other")
    new = NewBatch(input_file_id=run.file_id, endpoint=CHAT, window_seconds=3600)
    with pytest.raises(NotFound) as missing:
        creation.create(run.plane, STRANGER, new)
    assert missing.value.field == "input_file_id"
    data = put_file(run.plane)
    with pytest.raises(InvalidRequest, match="was uploaded for fine-tune"):
        creation.create(run.plane, CALLER, NewBatch(input_file_id=data.id, endpoint=CHAT, window_seconds=3600))


def test_lists_are_of_the_caller_and_newest_first(api: Api) -> None:
    with api.db.write() as session:
        make_project(session, "other")
    made = [BatchRun(api, [request("a")]).id for _ in range(3)]
    with api.db.read() as session:
        first = listing.page(session, CALLER, {}, PageRequest(size=2, order=listing.NEWEST_FIRST))
        assert [batch.id for batch in first.items] == [made[2], made[1]]
        rest = listing.page(
            session, CALLER, {}, PageRequest(size=2, order=listing.NEWEST_FIRST, after=first.next_after)
        )
        assert ([batch.id for batch in rest.items], rest.next_after) == ([made[0]], None)
        assert listing.page(session, STRANGER, {}, PageRequest(size=2, order="created_at")).items == []
        cancelled = {"status": ["cancelled"]}
        assert listing.page(session, CALLER, cancelled, PageRequest(size=2, order="created_at")).items == []
        with pytest.raises(NotFound):
            listing.find(session, STRANGER, made[0])
        with pytest.raises(NotFound):
            listing.find(session, CALLER, "batch_abc")
        with pytest.raises(InvalidRequest):
            listing.page(session, CALLER, {}, PageRequest(size=2, order="created_at", after=("x",)))


def test_what_has_ended_is_not_cancelled(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request("a")])
    commands.cancel(run.plane, CALLER, run.id)
    run.step()
    with pytest.raises(IllegalTransition, match="is cancelled"):
        commands.cancel(run.plane, CALLER, run.id)
    with pytest.raises(NotFound):
        commands.cancel(run.plane, STRANGER, run.id)


def test_what_a_live_batch_needs_is_not_deleted(api: Api) -> None:
    run = BatchRun(api, [request("a")])
    with pytest.raises(StillNeeded, match=f"batch {run.id}"):
        files.delete(run.plane, CALLER, run.file_id)
    run.start()
    run.store([answer("a")])
    run.end()
    job = run.jobs()[MODEL]
    with pytest.raises(StillNeeded, match=f"answers requests of {run.id}"):
        jobs.remove(run.plane, CALLER, job.id, artifacts=True)
    with run.db.write() as session:
        session.get_one(File, run.file_id).expires_at = utc_now() - timedelta(seconds=1)
    assert expiry.drop_file(run.db, run.plane.storage, run.file_id) is False

    run.step()  # its content is still there
    assert [line["custom_id"] for line in run.answers()] == ["a"]

    jobs.remove(run.plane, CALLER, job.id, artifacts=True)
    assert expiry.drop_file(run.db, run.plane.storage, run.file_id) is True
    with run.db.read() as session:
        assert session.get_one(BatchJob, (run.id, MODEL)).job_id == job.id


def test_a_file_that_expires_serves_its_batch_to_the_end(api: Api) -> None:
    run = BatchRun(api, [request("a")])
    with run.db.write() as session:
        session.get_one(File, run.file_id).expires_at = utc_now() - timedelta(seconds=1)
    run.start()
    assert set(run.jobs()) == {MODEL}, run.batch().problems
    with pytest.raises(NotFound):  # for others it is gone
        creation.create(run.plane, CALLER, NewBatch(input_file_id=run.file_id, endpoint=CHAT, window_seconds=3600))


def test_a_project_has_so_many_live_batches_and_no_more(api: Api) -> None:
    run = BatchRun(api, [request("a")])
    plane = replace(run.plane, files=replace(run.plane.files, max_live_batches=1))
    new = NewBatch(input_file_id=run.file_id, endpoint=CHAT, window_seconds=3600)
    with pytest.raises(LimitExceeded, match="create this one when one has ended"):
        creation.create(plane, CALLER, new)
    commands.cancel(run.plane, CALLER, run.id)
    run.step()
    creation.create(plane, CALLER, new)


def test_a_project_is_deleted_with_its_ended_batches_alone(api: Api) -> None:
    with api.db.write() as session:
        make_project(session, "other")
    run = BatchRun(api, [request("a")], caller=STRANGER)
    with pytest.raises(Conflict, match="still has 1 batches"):
        projects.delete(api.db, run.plane.storage, ROOT, "other")
    commands.cancel(run.plane, STRANGER, run.id)
    run.step()
    files.delete(run.plane, STRANGER, run.file_id)
    projects.delete(api.db, run.plane.storage, ROOT, "other")
    with api.db.read() as session:
        assert session.get(Batch, run.id) is None


def test_ended_batches_go_after_their_jobs(api: Api) -> None:
    run = BatchRun(api, [request("a")])
    run.start()
    run.store([answer("a")])
    run.end()
    run.step()
    live = BatchRun(api, [request("a")])
    context = RetentionContext(
        plane=run.plane, settings=RetentionSettings(jobs_days=1), now=utc_now() + timedelta(days=2), dry_run=False
    )
    assert rows.batches(context).count == 0
    jobs.remove(run.plane, CALLER, run.jobs()[MODEL].id, artifacts=True)
    assert rows.batches(context).count == 1
    with api.db.read() as session:
        assert (session.get(Batch, run.id), session.get(BatchJob, (run.id, MODEL))) == (None, None)
        assert session.get(Batch, live.id) is not None
