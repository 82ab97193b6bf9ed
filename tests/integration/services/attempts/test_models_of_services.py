"""What a job that asks a service takes of its model from another job: all but the weights, and that verified."""

import hashlib
from pathlib import Path

import pytest

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.models import Artifact
from app.services.attempts import work_orders
from app.services.attempts.work_orders import WorkOrder
from app.storage.object_keys import artifacts_key
from app.storage.storage import Storage
from tests.builders.factories import make_attempt, make_job, make_node
from tests.builders.shards import batch_document
from workers.attempt_failed import AttemptFailed
from workers.prepare.inputs.model_weights import find_weights

FILES = {"config.json": b"{}", "tokenizer.json": b"{1}", "model.safetensors": b"weights", "deep/chat.jinja": b"{{ m }}"}


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(f"file://{tmp_path / 'files'}")


def work_of(database: Database, storage: Storage) -> WorkOrder:
    """Of a batch that asks a service of a trained model."""
    with database.write() as session:
        trained = make_job(session, state=JobState.COMPLETED)
        for path, data in FILES.items():
            storage.write(f"{artifacts_key(trained.id)}/{path}", data)
            digest = hashlib.sha256(data).hexdigest()
            session.add(Artifact(job_id=trained.id, path=path, size_bytes=len(data), sha256=digest))
        model = {"job_id": trained.id, "service": "support"}
        job = make_job(session, document=batch_document(inference={"model": model}))
        make_attempt(session, job, make_node(session, f"n{job.id[-12:]}"))
    return work_orders.load_work(database, job.id, 1)


def test_everything_but_the_weights_is_copied(database: Database, storage: Storage, tmp_path: Path) -> None:
    work = work_of(database, storage)

    found = find_weights(database, storage, work, tmp_path / "scratch")

    assert found == tmp_path / "scratch"
    copied = {path.relative_to(found).as_posix(): path.read_bytes() for path in found.rglob("*") if path.is_file()}
    assert copied == {path: data for path, data in FILES.items() if path != "model.safetensors"}


def test_changed_and_missing_files_are_found(database: Database, storage: Storage, tmp_path: Path) -> None:
    work = work_of(database, storage)
    inference = work.document.inference
    assert inference is not None
    key = f"{artifacts_key(str(inference.model.job_id))}/tokenizer.json"

    storage.write(key, b"{2}")
    with pytest.raises(AttemptFailed, match=r"tokenizer.json: content differs") as changed:
        find_weights(database, storage, work, tmp_path / "scratch")
    storage.delete_tree(key)
    with pytest.raises(AttemptFailed) as missing:
        find_weights(database, storage, work, tmp_path / "scratch")

    assert (changed.value.error_type, missing.value.error_type) == ("MODEL_NOT_FOUND", "STORAGE_ERROR")
