"""Recordings of sessions: pieces in the storage, counted and deleted with their job."""

from pathlib import Path

import pytest

from app.domain.errors import NotFound
from app.domain.lifecycle.states import JobState
from app.models import InteractiveSession
from app.services.files import storage_quota
from app.services.interactive import attending, recordings
from app.storage.storage import Storage
from tests.builders.factories import make_job
from tests.builders.interactive import make_session
from tests.systems.apps import Api

JOB, SESSION = "job-1", "isession-1"


def test_pieces_are_read_in_their_order(tmp_path: Path):
    storage = Storage(f"file://{tmp_path}")
    with pytest.raises(NotFound):
        recordings.read(storage, JOB, SESSION)

    for number in (10, 2, 0):
        recordings.write_piece(storage, JOB, SESSION, number=number, data=f"{number}\n".encode() * 30_000)
    recordings.write_piece(storage, JOB, SESSION, number=2, data=b"again\n")

    content = b"".join(recordings.read(storage, JOB, SESSION))
    assert content == b"0\n" * 30_000 + b"again\n" + b"10\n" * 30_000


def test_recordings_count_for_the_quota_and_go_with_their_job(api: Api):
    storage: Storage = api.app.extensions["trainyard"].plane.storage
    with api.db.write() as session:
        job_id = make_job(session, state=JobState.COMPLETED).id
        session_id = make_session(session, job_id, recorded=True).id
    recordings.write_piece(storage, job_id, session_id, number=0, data=b"12345")
    attending.recorded_more(api.db, session_id, 5)
    attending.recorded_more(api.db, session_id, 2)

    with api.db.read() as session:
        assert storage_quota.stored_bytes(session, ["default"]) == {"default": 7}
    api.call("DELETE", f"/v1/jobs/{job_id}?artifacts=true")

    assert storage.names(f"jobs/{job_id}/sessions") == ()
    with api.db.read() as session:
        assert session.get(InteractiveSession, session_id) is None
