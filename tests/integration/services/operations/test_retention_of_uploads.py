"""Retention of uploaded files: old ones that nothing stored names are deleted with their content, and no others."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, update

from app.database.engine import Database
from app.domain.batches.states import BatchState
from app.domain.errors import BadSpec, StillNeeded
from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.domain.sweeps.states import SweepState
from app.models import AuditEntry, File, RegisteredModel
from app.models.base import utc_now
from app.security.permissions import Caller, Role
from app.services.files import deletion, references
from app.services.model_registry import registered
from app.services.operations.retention import uploads
from app.services.operations.retention.context import Pruned, RetentionContext
from app.services.requests.control_plane import ControlPlane
from config.settings import load_settings
from tests.builders.batches import make_batch
from tests.builders.factories import make_document, make_job, make_project
from tests.builders.files import RECORDS, USER, make_plane, put_file
from tests.builders.serving import make_service, replica_document
from tests.builders.sweeps import make_sweep, make_sweep_document

pytestmark = pytest.mark.both_databases

ADMIN = Caller(key_id="cli", role=Role.SUPER_ADMIN, project=None)
NOW = utc_now()
OLD, YOUNG = NOW - timedelta(days=40), NOW - timedelta(days=2)

Prune = Callable[..., Pruned]


@pytest.fixture
def plane(database: Database, tmp_path: Path) -> ControlPlane:
    with database.write() as session:
        make_project(session)
    return make_plane(database, tmp_path)


@pytest.fixture
def prune(plane: ControlPlane) -> Prune:
    settings = load_settings({"TRAINYARD_RETENTION_FILES_DAYS": "30"}).retention

    def pruned(*, dry_run: bool = False) -> Pruned:
        return uploads.files(RetentionContext(plane=plane, settings=settings, now=NOW, dry_run=dry_run))

    return pruned


def put(plane: ControlPlane, at: datetime = OLD, **changes: object) -> str:
    file = put_file(plane)
    with plane.db.write() as session:
        session.execute(update(File).where(File.id == file.id).values(created_at=at, **changes))
    return file.id


def left(plane: ControlPlane) -> set[str]:
    """The files that are there, each with its content."""
    with plane.db.read() as session:
        ids = set(session.scalars(select(File.id)))
    assert set(plane.storage.names("user-files/default")) == ids
    return ids


def reading(file_id: str) -> dict[str, object]:
    return make_document(data_config={"sources": [{"path": file_id, "format": "jsonl"}]})


def test_old_files_that_nothing_names_are_deleted_with_their_content(plane: ControlPlane, prune: Prune) -> None:
    put(plane), put(plane)
    young = put(plane, at=YOUNG)
    assert prune(dry_run=True) == Pruned(count=2, bytes=2 * len(RECORDS))
    assert len(left(plane)) == 3

    assert prune() == Pruned(count=2, bytes=2 * len(RECORDS))

    assert left(plane) == {young}
    with plane.db.read() as session:
        query = select(AuditEntry.actor).where(AuditEntry.action == "file.delete")
        assert session.scalars(query).all() == ["retention"] * 2


def test_files_with_an_expiry_of_their_own_and_results_of_jobs_are_left_to_that(
    plane: ControlPlane, prune: Prune
) -> None:
    with plane.db.write() as session:
        job = make_job(session, state=JobState.COMPLETED)
    kept = {put(plane, expires_at=NOW + timedelta(days=1)), put(plane, job_id=job.id)}

    assert prune() == Pruned()
    assert left(plane) == kept


def test_what_jobs_sweeps_services_batches_and_models_name_stays_also_after_their_end(
    plane: ControlPlane, prune: Prune
) -> None:
    named = [put(plane) for _ in range(8)]
    waiting, ended, base, spec, service, taken, output, model = named
    weights = replica_document("old")
    weights["training_config"]["base_model"]["model_id"] = service
    with plane.db.write() as session:
        make_job(session, state=JobState.PAUSED, document=reading(waiting))
        make_job(session, state=JobState.COMPLETED, finished_at=OLD, document=reading(ended))
        sweep = make_sweep(session, status=SweepState.COMPLETED, document=make_sweep_document(job=reading(base)))
        sweep.spec = {**sweep.spec, "note": spec}
        make_service(session, "old", ended_at=OLD, base=weights)
        make_batch(session, status=BatchState.COMPLETED, input_file_id=taken, output_file_id=output)
        session.add(RegisteredModel(name="base", kind="base", location=model, created_by=""))

    assert prune() == Pruned(kept=8)
    assert left(plane) == set(named)


def test_file_that_a_job_names_after_the_search_is_not_deleted(plane: ControlPlane) -> None:
    file_id, other = put(plane), put(plane)
    with plane.db.write() as session:
        make_job(session, state=JobState.CANCELLED, finished_at=NOW, document=reading(file_id))

    with plane.db.read() as session:
        found = [references.is_named_since(session, session.get_one(File, each), NOW) for each in (file_id, other)]
        late = references.is_named_since(session, session.get_one(File, file_id), NOW + timedelta(hours=2))

    assert (found, late) == ([True, False], False)
    registered.register(plane.db, ADMIN, "base", other)
    with plane.db.read() as session:
        assert references.is_named_since(session, session.get_one(File, other), NOW)
    with pytest.raises(BadSpec, match="there is no file"):
        registered.register(plane.db, ADMIN, "none", new_id("file"))


def test_file_that_a_live_service_serves_is_not_deleted_by_hand(plane: ControlPlane) -> None:
    file_id = put(plane)
    weights = replica_document()
    weights["training_config"]["base_model"]["model_id"] = file_id
    with plane.db.write() as session:
        service = make_service(session, base=weights)

    with pytest.raises(StillNeeded, match=f"service {service.id} has not ended .* delete the service, then"):
        deletion.delete(plane, USER, file_id)

    with plane.db.write() as session:
        session.merge(service).ended_at = NOW
    deletion.delete(plane, USER, file_id)
    assert left(plane) == set()
