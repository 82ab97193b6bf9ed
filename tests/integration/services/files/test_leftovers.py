"""Content never outlives what leads to it: after a crash, a deletion of its job or project, and beside a submission."""

from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from app.domain.errors import Conflict, NotFound, Unavailable
from app.domain.lifecycle.states import JobState
from app.models import File, Job, Metric, Project, RegisteredModel
from app.models.base import utc_now
from app.security.permissions import Caller, Role
from app.services.access import projects
from app.services.files import content, creation, expiry, listing, result_files, uploads
from app.services.files.creation import NewFile
from app.services.files.uploads import NewUpload
from app.services.jobs import deletion
from app.services.requests.pagination import PageRequest
from app.storage.object_keys import upload_parts_key
from tests.builders.factories import make_document, make_job, make_project
from tests.builders.files import RECORDS, USER, put_file, put_part

ADMIN = Caller(key_id="key-admin", role=Role.SUPER_ADMIN, project=None)
STEPS = 2001  # more than are read at once


def rows(plane):
    with plane.db.read() as session:
        return session.scalars(select(File).order_by(File.id)).all()


def set_expired(plane, seconds=1):
    with plane.db.write() as session:
        session.execute(update(File).values(expires_at=utc_now() - timedelta(seconds=seconds)))


def add_maker(plane, state=JobState.COMPLETED, fence=3):
    """A job that makes a model with a name, and its losses."""
    with plane.db.write() as session:
        job = make_job(session, state=state)
        job.fence = fence
        job.metric_seq = STEPS
        model = RegisteredModel(name="ft:m", kind="fine_tune", job_id=job.id, created_by="")
        points = [
            Metric(job_id=job.id, name="loss", step=step, at=utc_now(), value=0.5, attempt=1, seq=step)
            for step in range(1, STEPS + 1)
        ]
        session.add_all([model, *points])
        return job.id


def be_cut_off(plane, project="default", caller=USER):
    """A process that dies once the content is complete: its block never ends."""
    incoming = creation.receive(plane, caller, project, max_bytes=100)
    incoming.__enter__()
    incoming.write(b"whole")
    return incoming.finish().file_id


def test_content_that_a_dead_process_left_is_hidden_and_expires(plane, stored):
    file_id = be_cut_off(plane)

    with plane.db.write() as session:
        request = PageRequest(size=2, order="-created_at", after=None)
        assert list(listing.page(session, USER, {}, request).items) == []
        assert listing.held(session, "default", [file_id]) == []
        with pytest.raises(NotFound):
            listing.find(session, USER, file_id)
    assert expiry.drop_expired(plane.db, plane.storage) == 0
    set_expired(plane)
    assert expiry.drop_expired(plane.db, plane.storage) == 1
    assert stored() == rows(plane) == []


def test_content_that_is_recorded_too_late_is_refused_and_deleted(plane, stored):
    new = NewFile(filename="a", purpose="user_data")

    with creation.receive(plane, USER, "default", max_bytes=9) as incoming:
        incoming.write(b"x")
        received = incoming.finish()
        set_expired(plane)
        with pytest.raises(Conflict, match="send it again"):
            creation.create(plane, USER, new, received, project="default")

    assert stored() == rows(plane) == []


def test_result_file_has_every_step_and_goes_with_its_job(plane, stored):
    job_id = add_maker(plane)
    result_files.write(plane.db, plane.storage, job_id)
    (file,) = rows(plane)
    with content.opened(plane, file) as stream:
        lines = stream.read().splitlines()
    assert (len(lines), lines[1], lines[-1]) == (STEPS + 1, b"1,0.5,,,", b"%d,0.5,,," % STEPS)

    deletion.remove(plane, ADMIN, job_id, artifacts=False)

    with plane.db.read() as session, pytest.raises(NotFound):
        listing.find(session, USER, file.id)
    assert expiry.drop_expired(plane.db, plane.storage) == 1
    assert stored() == rows(plane) == []


@pytest.mark.parametrize(("fence", "files"), [(2, 0), (3, 1)])
def test_attempt_that_has_lost_its_job_writes_no_result_file(plane, stored, fence, files):
    job_id = add_maker(plane, JobState.EVALUATING)

    result_files.write(plane.db, plane.storage, job_id, fence=fence)

    assert len(stored()) == len(rows(plane)) == files


def test_expired_files_that_are_still_named_do_not_keep_others(plane):
    named, other = put_file(plane), put_file(plane)
    set_expired(plane)
    with plane.db.write() as session:
        document = make_document(data_config={"sources": [{"path": named.id, "format": "jsonl"}]})
        make_job(session, document=document)
    cursor = expiry.Cursor(rows=1)

    assert [expiry.drop_expired(plane.db, plane.storage, cursor) for _ in range(3)] == [0, 1, 0]

    assert other.id not in [file.id for file in rows(plane)]
    assert cursor.after is None  # the next round begins anew


def test_file_that_expires_while_a_job_is_stored_stays(plane, stored):
    file = put_file(plane)
    set_expired(plane)

    with ThreadPoolExecutor(1) as threads:
        with plane.db.write() as session:
            document = make_document(data_config={"sources": [{"path": file.id, "format": "jsonl"}]})
            make_job(session, document=document)
            session.flush()
            dropped = threads.submit(expiry.drop_file, plane.db, plane.storage, file.id)
            wait([dropped], timeout=0.3)

        assert dropped.result(20) is False
    assert len(stored()) == len(rows(plane)) == 1


def test_project_whose_files_are_hidden_is_deleted_once_they_are_gone(plane, stored):
    with plane.db.write() as session:
        make_project(session, "other")
    put_file(plane, caller=ADMIN, project="other")
    set_expired(plane)
    be_cut_off(plane, "other", ADMIN)

    with pytest.raises(Conflict, match="content of 2 files"):
        projects.delete(plane.db, plane.storage, ADMIN, "other")

    set_expired(plane)
    expiry.drop_expired(plane.db, plane.storage)
    projects.delete(plane.db, plane.storage, ADMIN, "other")
    assert stored() == []


def test_project_is_deleted_only_once_the_parts_of_its_uploads_are(plane, stored, tmp_path):
    with plane.db.write() as session:
        make_project(session, "other")
    made = []
    new = NewUpload(
        file=NewFile(filename="a.jsonl", purpose="fine-tune"), mime_type="application/jsonl", size_bytes=len(RECORDS)
    )
    uploads.create(plane, ADMIN, new, project="other", on_written=lambda _session, details: made.append(details))
    upload_id = made[0].upload.id
    put_part(plane, upload_id, RECORDS, caller=ADMIN)
    folder = tmp_path / "data" / "files" / upload_parts_key("other", upload_id).partition("/")[0]
    folder.rename(tmp_path / "away")
    folder.symlink_to("/")  # the storage refuses what leads out of it
    uploads.cancel(plane, ADMIN, upload_id)

    with pytest.raises(Unavailable, match="parts of upload"):
        projects.delete(plane.db, plane.storage, ADMIN, "other")

    folder.unlink()
    (tmp_path / "away").rename(folder)
    projects.delete(plane.db, plane.storage, ADMIN, "other")
    assert stored() == []
    with plane.db.read() as session:
        assert session.get(Project, "other") is None
        assert session.scalars(select(Job)).all() == []
