"""Files: whole or not there, within limits and quotas, listed by pages, deleted when nothing needs them."""

import hashlib
from datetime import timedelta

import pytest
from sqlalchemy import select

from app.domain.errors import Conflict, InvalidRequest, NotFound, StillNeeded, StorageQuotaExceeded, TooLarge
from app.domain.ids import first_id
from app.domain.lifecycle.states import JobState
from app.models import AuditEntry, File, Inspection, Job, Project
from app.models.base import utc_now
from app.security.permissions import Caller, Role
from app.services.access import projects
from app.services.files import content, creation, deletion, expiry, listing
from app.services.files.creation import NewFile
from app.services.operations.orphan_cleanup import OrphanSweep
from app.services.queues import project_quotas
from app.services.requests.idempotency import AlreadyAnswered
from app.services.requests.pagination import PageRequest
from app.storage.object_keys import TEMPORARY
from tests.builders.factories import make_document, make_job, make_project
from tests.builders.files import RECORDS, USER, put_file

ADMIN = Caller(key_id="key-admin", role=Role.SUPER_ADMIN, project=None)


def rows(plane, model=File):
    with plane.db.read() as session:
        return session.scalars(select(model)).all()


def set_quota(plane, **quota):
    with plane.db.write() as session:
        session.get_one(Project, "default").quota = quota


def set_expired(plane, file_id):
    with plane.db.write() as session:
        session.get_one(File, file_id).expires_at = utc_now() - timedelta(seconds=1)


def add_job(plane, path, state=JobState.QUEUED):
    with plane.db.write() as session:
        document = make_document(data_config={"sources": [{"path": path, "format": "jsonl"}]})
        return make_job(session, document=document, state=state).id


def ids(plane, order="-created_at", after=None, caller=USER, **filters):
    request = PageRequest(size=2, order=order, after=after)
    with plane.db.read() as session:
        return [file.id for file in listing.page(session, caller, filters, request).items]


def test_file_has_size_hash_and_records_of_its_content(plane):
    file = put_file(plane)

    assert (file.size_bytes, file.records) == (len(RECORDS), 3)
    assert file.sha256 == hashlib.sha256(RECORDS).hexdigest()
    with content.opened(plane, file, 5) as stream:
        assert stream.read() == RECORDS[5:]


@pytest.mark.parametrize(
    ("purpose", "status"),
    [("fine-tune", "uploaded"), ("batch", "uploaded"), ("user_data", "processed"), ("evals", "processed")],
)
def test_files_of_records_that_must_fit_wait_for_their_inspection(plane, purpose, status):
    file = put_file(plane, purpose=purpose)

    assert file.status == status
    assert [each.file_id for each in rows(plane, Inspection)] == ([file.id] if status == "uploaded" else [])


def test_body_that_breaks_off_leaves_nothing(plane, stored):
    def cut_off():
        with creation.receive(plane, USER, "default", max_bytes=100) as incoming:
            incoming.write(b"half")
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        cut_off()

    assert stored() == []
    assert rows(plane) == []


def test_content_without_row_is_deleted(plane, stored):
    with creation.receive(plane, USER, "default", max_bytes=100) as incoming:
        incoming.write(b"whole")
        incoming.finish()
        assert len(stored()) == 1

    assert stored() == []
    assert rows(plane) == []


def test_request_that_was_answered_meanwhile_leaves_nothing(plane, stored):
    def answered(_session, _file):
        raise AlreadyAnswered("key")

    with pytest.raises(AlreadyAnswered):
        put_file(plane, on_written=answered)

    assert stored() == []
    assert rows(plane) == []
    assert rows(plane, Inspection) == []


def test_content_is_durable_before_its_row_is_written(plane, stored):
    seen = []

    file = put_file(plane, on_written=lambda _session, _file: seen.extend(stored()))

    assert seen == [f"user-files/default/{file.id}"]


def test_content_above_the_limit_is_refused_while_it_arrives(plane, stored):
    with pytest.raises(TooLarge, match="100 bytes"):
        put_file(plane, b"x" * 101, max_bytes=100)

    assert stored() == []
    put_file(plane, b"x" * 100, max_bytes=100)


def test_quota_of_the_project_counts_its_files(plane, stored):
    set_quota(plane, storage_gb=300 / 1e9)
    put_file(plane, b"x" * 200)

    with pytest.raises(StorageQuotaExceeded, match=r"may store 100 more bytes"):
        put_file(plane, b"x" * 101)

    assert len(stored()) == 1
    with plane.db.read() as session:
        assert project_quotas.usage(session, "default").storage_bytes == 200


def test_two_files_that_arrive_at_once_do_not_exceed_the_quota_together(plane, stored):
    set_quota(plane, storage_gb=300 / 1e9)

    with pytest.raises(StorageQuotaExceeded):
        _two_at_once(plane, b"x" * 200)

    assert len(rows(plane)) == len(stored()) == 1


def _two_at_once(plane, data):
    new = NewFile(filename="a", purpose="evals")
    with creation.receive(plane, USER, "default", max_bytes=1000) as one:
        one.write(data)
        put_file(plane, data)
        creation.create(plane, USER, new, one.finish(), project="default")


@pytest.mark.parametrize(
    ("new", "field"),
    [
        ({"purpose": "vision"}, "purpose"),
        ({"purpose": "batch_output"}, "purpose"),
        ({"filename": ""}, "filename"),
        ({"filename": "x" * 256}, "filename"),
        ({"filename": "a\0b"}, "filename"),
        ({"expires_seconds": 3599}, "expires_after"),
        ({"expires_seconds": 30 * 86400 + 1}, "expires_after"),
    ],
)
def test_bad_values_are_refused_with_their_field(new, field):
    with pytest.raises(InvalidRequest) as refused:
        creation.check(NewFile(**{"filename": "train.jsonl", "purpose": "fine-tune", **new}))

    assert refused.value.field == field


def test_file_without_a_valid_purpose_leaves_nothing(plane, stored):
    with pytest.raises(InvalidRequest):
        put_file(plane, purpose="vision")

    assert stored() == []


def test_files_of_another_project_are_not_there(plane):
    file = put_file(plane)
    other = Caller(key_id="key-other", role=Role.USER, project="other")

    with plane.db.read() as session, pytest.raises(NotFound):
        listing.find(session, other, file.id)
    with pytest.raises(NotFound):
        deletion.delete(plane, other, file.id)
    with pytest.raises(NotFound):
        creation.receive(plane, other, "default", max_bytes=1)
    assert ids(plane, caller=other) == []


@pytest.mark.parametrize("asked", ["file-\0", first_id("file", utc_now())], ids=["unstorable", "unused"])
def test_unknown_ids_are_not_found(plane, asked):
    with plane.db.read() as session, pytest.raises(NotFound):
        listing.find(session, USER, asked)


def test_pages_follow_one_another_in_both_orders(plane):
    one, two, three = (put_file(plane).id for _ in range(3))

    assert ids(plane) == [three, two]
    assert ids(plane, after=(two,)) == [one]
    assert ids(plane, order="created_at") == [one, two]
    assert ids(plane, order="created_at", after=(two,)) == [three]


def test_page_begins_after_a_file_that_is_gone(plane):
    one, two, three = (put_file(plane).id for _ in range(3))

    deletion.delete(plane, USER, two)

    assert ids(plane, after=(two,)) == [one]
    assert ids(plane) == [three, one]


def test_lists_have_one_purpose_and_no_expired_files(plane):
    first = put_file(plane, purpose="evals").id
    late = put_file(plane, purpose="evals").id
    put_file(plane)

    set_expired(plane, late)

    assert ids(plane, purpose="evals") == [first]


def test_page_after_what_is_no_file_is_refused(plane):
    with pytest.raises(InvalidRequest, match="not the id of a file"):
        ids(plane, after=("file-1",))


def test_file_is_kept_while_a_job_that_has_not_ended_names_it(plane, stored):
    file = put_file(plane)
    job_id = add_job(plane, file.id)

    with pytest.raises(StillNeeded, match=job_id):
        deletion.delete(plane, USER, file.id)

    with plane.db.write() as session:
        session.get_one(Job, job_id).status = JobState.FAILED
    deletion.delete(plane, USER, file.id)
    assert stored() == []
    assert rows(plane) == rows(plane, Inspection) == []
    assert [each.action for each in rows(plane, AuditEntry)][-2:] == ["file.create", "file.delete"]


def test_file_whose_id_is_part_of_another_text_is_not_needed(plane):
    file = put_file(plane)
    add_job(plane, f"/srv/{file.id}")

    deletion.delete(plane, USER, file.id)

    assert rows(plane) == []


def test_deleted_file_is_gone_before_its_content_can_be_deleted(plane, tmp_path, stored):
    file = put_file(plane)
    folder = tmp_path / "data" / "files" / "user-files"
    folder.rename(tmp_path / "away")
    folder.symlink_to("/")  # the storage refuses what leads out of it

    deletion.delete(plane, USER, file.id)

    with plane.db.read() as session, pytest.raises(NotFound):
        listing.find(session, USER, file.id)
    folder.unlink()
    (tmp_path / "away").rename(folder)
    assert expiry.drop_expired(plane.db, plane.storage) == 1
    assert stored() == []
    assert rows(plane) == []


def test_expired_files_go_once_no_job_needs_them(plane, stored, tmp_path):
    needed, other = put_file(plane), put_file(plane, expires_seconds=3600)
    job_id = add_job(plane, needed.id)
    set_expired(plane, needed.id)
    set_expired(plane, other.id)
    sweep = OrphanSweep(plane.db, f"file://{tmp_path / 'data' / 'files'}")

    assert sweep.run_round() == 1
    assert [file.id for file in rows(plane)] == [needed.id]

    with plane.db.write() as session:
        session.get_one(Job, job_id).status = JobState.COMPLETED
    assert sweep.run_round() == 1
    assert stored() == []


def test_what_a_dead_process_was_receiving_is_swept_when_it_is_old(plane, tmp_path, stored):
    put_file(plane)
    (tmp_path / "data" / "files" / "user-files" / "default" / f"{TEMPORARY}00000000-file-x").touch()
    url = f"file://{tmp_path / 'data' / 'files'}"

    assert OrphanSweep(plane.db, url).run_round() == 0
    assert OrphanSweep(plane.db, url, age_limit=timedelta(seconds=-1)).run_round() == 1

    assert len(stored()) == 1


def test_held_files_are_those_of_the_project_that_have_not_expired(plane):
    with plane.db.write() as session:
        make_project(session, "other")
    mine, late = put_file(plane), put_file(plane)
    other = put_file(plane, caller=ADMIN, project="other")
    set_expired(plane, late.id)

    with plane.db.write() as session:
        found = listing.held(session, "default", [mine.id, late.id, other.id])

    assert [file.id for file in found] == [mine.id]


def test_project_with_files_is_not_deleted(plane):
    with plane.db.write() as session:
        make_project(session, "other")
    file = put_file(plane, caller=ADMIN, project="other")

    with pytest.raises(Conflict, match="1 files"):
        projects.delete(plane.db, plane.storage, ADMIN, "other")

    deletion.delete(plane, ADMIN, file.id)
    projects.delete(plane.db, plane.storage, ADMIN, "other")
