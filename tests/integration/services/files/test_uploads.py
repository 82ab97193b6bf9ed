"""Uploads: parts in any order, one complete file or none."""

import hashlib
from datetime import timedelta

import pytest
from sqlalchemy import select

from app.domain.errors import (
    Conflict,
    IllegalTransition,
    InvalidRequest,
    NotFound,
    StorageQuotaExceeded,
    TooLarge,
    TransientStorageError,
)
from app.models import File, Inspection, Project, Upload, UploadPart
from app.models.base import utc_now
from app.security.permissions import Caller, Role
from app.services.files import content, expiry, storage_quota, uploads
from app.services.files.creation import NewFile
from app.services.files.uploads import NewUpload
from tests.builders.files import USER, make_plane, put_part

TEXT = b'{"prompt": "a", "completion": "b"}\n{"prompt": "c", "completion": "d"}\n'
SIZE = len(TEXT)
FIRST, SECOND = TEXT[:40], TEXT[40:]


def begin(plane, size_bytes=SIZE, caller=USER, **changes):
    made = []
    file = NewFile(**{"filename": "train.jsonl", "purpose": "fine-tune", **changes})
    new = NewUpload(file=file, mime_type="application/jsonl", size_bytes=size_bytes)
    uploads.create(plane, caller, new, project="default", on_written=lambda _session, each: made.append(each))
    return made[0].upload.id


def complete(plane, upload_id, part_ids, **more):
    made = []
    uploads.complete(plane, USER, upload_id, part_ids, on_written=lambda _session, each: made.append(each), **more)
    return made[0]


def status(plane, upload_id):
    with plane.db.read() as session:
        return uploads.find(session, USER, upload_id).status


def rows(plane, model):
    with plane.db.read() as session:
        return session.scalars(select(model)).all()


def set_late(plane, upload_id, by):
    with plane.db.write() as session:
        session.get_one(Upload, upload_id).expires_at = utc_now() - by


def set_claim(plane, upload_id, since):
    with plane.db.write() as session:
        session.get_one(Upload, upload_id).completing_since = since


def test_parts_are_put_together_in_the_order_that_is_asked_for(plane, stored):
    upload_id = begin(plane, expires_seconds=3600)
    second, first = put_part(plane, upload_id, SECOND), put_part(plane, upload_id, FIRST)

    done = complete(plane, upload_id, [first.id, second.id], md5=hashlib.md5(TEXT).hexdigest().upper())

    file = done.file
    assert (done.status, file.filename, file.status, file.records) == ("completed", "train.jsonl", "uploaded", 2)
    assert file.sha256 == hashlib.sha256(TEXT).hexdigest()
    assert file.expires_at is not None
    with content.opened(plane, file) as stream:
        assert stream.read() == TEXT
    assert stored() == [f"user-files/default/{file.id}"]
    assert [each.file_id for each in rows(plane, Inspection)] == [file.id]
    assert rows(plane, UploadPart) == []
    with plane.db.read() as session:
        assert getattr(uploads.find(session, USER, upload_id).file, "id", None) == file.id


@pytest.mark.parametrize(
    ("chosen", "md5", "field"),
    [
        ([0], None, "part_ids"),
        ([], None, "part_ids"),
        ([0, 0], None, "part_ids.1"),
        ([0, "part-1"], None, "part_ids.1"),
        ([1, 0], hashlib.md5(TEXT).hexdigest(), "md5"),
        ([0, 1], "not hexadecimal", "md5"),
    ],
)
def test_wrong_parts_are_refused_and_the_upload_stays(plane, stored, chosen, md5, field):
    upload_id = begin(plane)
    parts = [put_part(plane, upload_id, FIRST).id, put_part(plane, upload_id, SECOND).id]

    with pytest.raises(InvalidRequest) as refused:
        complete(plane, upload_id, [parts[each] if isinstance(each, int) else each for each in chosen], md5=md5)

    assert refused.value.field == field
    assert rows(plane, File) == []
    assert len(stored()) == 2
    assert complete(plane, upload_id, parts).status == "completed"


def test_one_request_at_a_time_completes_an_upload(plane, stored, monkeypatch):
    upload_id = begin(plane)
    parts = [put_part(plane, upload_id, TEXT).id]
    storage, files = plane.storage, []

    def ask_meanwhile(key):
        monkeypatch.undo()
        with pytest.raises(IllegalTransition, match="being completed by another request"):
            complete(plane, upload_id, parts)
        files.append(stored())
        raise TransientStorageError("the storage is away")

    monkeypatch.setattr(storage, "open", ask_meanwhile)
    with pytest.raises(TransientStorageError):
        complete(plane, upload_id, parts)

    assert status(plane, upload_id) == "pending"
    assert complete(plane, upload_id, parts).status == "completed"
    assert sum(key.startswith("user-files/") for key in files[0]) == 1


def test_upload_whose_completing_request_was_lost_can_be_completed_later(plane):
    upload_id = begin(plane)
    parts = [put_part(plane, upload_id, TEXT).id]
    set_claim(plane, upload_id, utc_now() - uploads.COMPLETES_WITHIN + timedelta(minutes=1))

    with pytest.raises(IllegalTransition):
        complete(plane, upload_id, parts)
    set_claim(plane, upload_id, utc_now() - uploads.COMPLETES_WITHIN)

    assert complete(plane, upload_id, parts).status == "completed"


def test_part_of_another_upload_is_unknown(plane):
    upload_id, part = begin(plane), put_part(plane, begin(plane), TEXT)

    with pytest.raises(InvalidRequest, match="no part"):
        complete(plane, upload_id, [part.id])


def test_upload_that_has_ended_takes_nothing_more(plane, stored):
    cancelled, late = begin(plane), begin(plane)
    part = put_part(plane, late, TEXT)
    put_part(plane, cancelled, TEXT)
    uploads.cancel(plane, USER, cancelled)
    set_late(plane, late, timedelta(seconds=1))

    assert (status(plane, cancelled), status(plane, late)) == ("cancelled", "expired")
    for upload_id in (cancelled, late):
        with pytest.raises(IllegalTransition, match="begin another"):
            put_part(plane, upload_id, TEXT)
        with pytest.raises(IllegalTransition):
            complete(plane, upload_id, [part.id])
        with pytest.raises(IllegalTransition):
            uploads.cancel(plane, USER, upload_id)
    assert stored() == [f"upload-parts/default/{late}/{part.id}"]


def test_part_that_arrives_while_its_upload_is_cancelled_leaves_nothing(plane, stored):
    upload_id = begin(plane)

    with pytest.raises(Conflict, match="was deleted"):
        _cancel_while_it_arrives(plane, upload_id)

    assert stored() == []
    assert rows(plane, UploadPart) == []


def _cancel_while_it_arrives(plane, upload_id):
    with uploads.receive_part(plane, USER, upload_id) as incoming:
        incoming.write(TEXT)
        uploads.cancel(plane, USER, upload_id)
        uploads.add_part(plane, USER, upload_id, incoming.finish())


def test_expired_uploads_lose_their_parts_and_later_their_rows(plane, stored):
    upload_id = begin(plane)
    put_part(plane, upload_id, TEXT)
    set_late(plane, upload_id, timedelta(seconds=1))

    assert expiry.drop_expired(plane.db, plane.storage) == 1
    assert stored() == []
    assert rows(plane, UploadPart) == []
    assert status(plane, upload_id) == "expired"

    set_late(plane, upload_id, expiry.UPLOADS_KEPT + timedelta(seconds=1))
    plane.storage.write(f"upload-parts/default/{upload_id}/part-left-behind", b"x")
    assert expiry.drop_expired(plane.db, plane.storage) == 1
    assert stored() == []
    assert rows(plane, Upload) == []


def test_sizes_beyond_the_limits_are_refused(plane, tmp_path, stored):
    small = make_plane(plane.db, tmp_path, TRAINYARD_FILES_UPLOAD_MAX_BYTES="100", TRAINYARD_FILES_PART_MAX_BYTES="50")
    upload_id = begin(small, 100)

    with pytest.raises(InvalidRequest, match="100 bytes at most"):
        begin(small, 101)
    with pytest.raises(TooLarge, match="50 bytes"):
        put_part(small, upload_id, b"x" * 51)
    with pytest.raises(InvalidRequest, match="at least one byte"):
        put_part(small, upload_id, b"")
    for _ in range(4):
        put_part(small, upload_id, b"x" * 50)
    with pytest.raises(InvalidRequest, match="twice as many"):
        put_part(small, upload_id, b"x")

    assert len(stored()) == 4


def test_parts_count_to_the_quota_once(plane):
    with plane.db.write() as session:
        session.get_one(Project, "default").quota = {"storage_gb": SIZE / 1e9}
    upload_id = begin(plane)
    part = put_part(plane, upload_id, TEXT)

    with pytest.raises(StorageQuotaExceeded):
        begin(plane)
    with pytest.raises(StorageQuotaExceeded):
        put_part(plane, upload_id, b"x")
    complete(plane, upload_id, [part.id])

    with plane.db.read() as session:
        assert storage_quota.stored_bytes(session, ["default"]) == {"default": SIZE}


def test_uploads_of_another_project_are_not_there(plane):
    upload_id = begin(plane)
    other = Caller(key_id="key-other", role=Role.USER, project="other")

    with plane.db.read() as session, pytest.raises(NotFound):
        uploads.find(session, other, upload_id)
    with pytest.raises(NotFound):
        uploads.cancel(plane, other, upload_id)
    with pytest.raises(NotFound):
        uploads.receive_part(plane, other, upload_id)
