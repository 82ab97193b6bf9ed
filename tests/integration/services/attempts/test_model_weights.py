"""Weights that a job takes from another one: found by rows, verified by digests, of its own project only."""

from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from app.domain.errors import LeaseLost
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.domain.spec.model import JobDocument
from app.models import Artifact, Checkpoint, Job, JobEvent
from app.services.attempts import work_orders
from app.services.attempts.checkpoints import ResumeCandidate
from app.services.attempts.model_weights import damage_of, retire_damaged
from app.services.lifecycle import transitions
from app.storage.storage import Storage
from tests.builders.factories import make_attempt, make_checkpoint, make_document, make_job, make_node
from tests.builders.shards import batch_document, make_shard
from trainyard.protocol import checkpoint_manifest as _manifest
from trainyard.protocol.messages import MAX_MESSAGE
from workers.attempt_failed import AttemptFailed
from workers.prepare.inputs.input_library import JobInputs
from workers.prepare.inputs.model_weights import find_weights, with_result_here, with_results
from workers.run_dir.layout import RunDirectory
from workers.supervisor.recording.model_export import Output, store_model
from workers.supervisor.recording.upload import Patience

PATIENCE = Patience(rest=lambda _: False, waits=lambda _: False)


@pytest.fixture
def storage(tmp_path):
    return Storage(f"file://{tmp_path / 'files'}")


@pytest.fixture
def trained(database, storage, tmp_path):
    """A job with a result and a checkpoint: their ids."""
    with database.write() as session:
        job = make_job(session, state=JobState.COMPLETED)
        export, draft, final = (tmp_path / name for name in ("export", "draft", "final"))
        for directory in (export, draft):
            (directory / "deep").mkdir(parents=True)
            (directory / "model.safetensors").write_bytes(b"weights")
            (directory / "deep" / "config.json").write_text("{}")
        files = {path.relative_to(export).as_posix(): str(path.relative_to(export)) for path in files_in(export)}
        stored = store_model(storage, job.id, Output(export, files), None, patience=PATIENCE)
        for each in stored.artifacts:
            session.add(Artifact(job_id=job.id, path=each.path, size_bytes=each.size_bytes, sha256=each.sha256))
        manifest = _manifest.commit(draft, final, _manifest.Manifest(job_id=job.id, attempt=1, step=3))
        storage.put_tree(final, f"jobs/{job.id}/checkpoints/c")
        saved = make_checkpoint(
            session, job, sha256=_manifest.digest(manifest), uri=storage.uri(f"jobs/{job.id}/checkpoints/c")
        )
        return job.id, saved.id


def files_in(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def work_of(database, job_id=None, checkpoint_id=None, project="default"):
    """The work order of a batch with this model, on a node of its own."""
    with database.write() as session:
        model = {"job_id": job_id, "checkpoint_id": checkpoint_id}
        job = make_job(session, document=batch_document(inference={"model": model}), project=project)
        make_attempt(session, job, make_node(session, f"n{job.id[-12:]}"))
    return work_orders.load_work(database, job.id, 1)


def find(database, storage, work, tmp_path):
    return find_weights(database, storage, work, tmp_path / "scratch")


def test_job_with_a_base_model_alone_takes_no_weights(database, storage, tmp_path):
    assert find(database, storage, work_of(database), tmp_path) is None


def test_result_and_checkpoint_of_a_job_are_found_where_they_are_stored(database, storage, trained, tmp_path):
    job_id, checkpoint_id = trained

    result = find(database, storage, work_of(database, job_id), tmp_path)

    assert result == storage.local_path(f"jobs/{job_id}/artifacts")
    with database.write() as session:
        session.query(Artifact).delete()
    work = work_of(database, job_id, checkpoint_id)
    assert find(database, storage, work, tmp_path) == storage.local_path(f"jobs/{job_id}/checkpoints/c")


def taken(database, storage, tmp_path, document):
    """The sources and weights of a job with this document, whose own sources are none."""
    with database.write() as session:
        job = make_job(session, document=document)
        make_attempt(session, job, make_node(session, f"n{job.id[-12:]}"))
    none = JobInputs(model=None, tokenizer=None, data=(), script=None)
    work = work_orders.load_work(database, job.id, 1)
    return with_results(database, storage, work, none, RunDirectory(tmp_path / "scratch"))[1:]


def test_base_model_that_a_job_has_made_takes_the_place_of_a_model(database, storage, trained, tmp_path):
    job_id, checkpoint_id = trained
    result, base = storage.local_path(f"jobs/{job_id}/artifacts"), {"model_id": "none", "job_id": job_id}

    training, nothing = taken(database, storage, tmp_path, make_document(training_config={"base_model": base}))
    adapter = {"model": {"job_id": job_id, "checkpoint_id": checkpoint_id, "adapter": True}}
    batch = batch_document(inference=adapter, training_config={"base_model": base})
    asked, weights = taken(database, storage, tmp_path, batch)

    assert (training.model.path, training.readable, training.tokenizer, nothing) == (result, (result,), None, None)
    assert (asked.model.path, weights) == (result, storage.local_path(f"jobs/{job_id}/checkpoints/c"))


def test_reward_model_that_a_job_has_made_is_what_judges(database, storage, trained, tmp_path):
    job_id, _ = trained
    values = {"algorithm": "grpo", "reward_model_id": job_id}
    document = make_document(training_config={"training_type": "RLHF", "hyperparameters": values})

    sources, _ = taken(database, storage, tmp_path, document)

    result = storage.local_path(f"jobs/{job_id}/artifacts")
    assert (sources.reward_model.path, sources.readable) == (result, (result,))


def test_training_that_continues_an_adapter_has_its_tokenizer(database, storage, trained, tmp_path):
    job_id, _ = trained
    base = {"model_id": "demo/model", "job_id": job_id}

    sources, weights = taken(database, storage, tmp_path, make_document(training_config={"base_model": base}))

    assert (sources.model, sources.tokenizer.path, weights) == (
        None,
        weights,
        storage.local_path(f"jobs/{job_id}/artifacts"),
    )


def test_preview_finds_a_result_where_the_storage_is_a_directory(storage, trained):
    document, none = make_document(), JobInputs(model=None, tokenizer=None, data=(), script=None)
    document["training_config"]["base_model"] = {"model_id": "none", "job_id": trained[0]}

    there = with_result_here(storage, JobDocument.from_json(document), none)
    document["training_config"]["base_model"]["job_id"] = "job-1"

    assert there.model is not None
    assert there.model.path == storage.local_path(f"jobs/{trained[0]}/artifacts")
    assert with_result_here(storage, JobDocument.from_json(document), none) == none


@pytest.mark.parametrize("what", ["result", "checkpoint"])
def test_changed_weights_are_refused(database, storage, trained, tmp_path, what):
    job_id, checkpoint_id = trained
    folder = storage.local_path(f"jobs/{job_id}/{'artifacts' if what == 'result' else 'checkpoints/c'}")
    (folder / "model.safetensors").write_bytes(b"weighty")

    with pytest.raises(AttemptFailed, match=r"model\.safetensors") as failed:
        find(database, storage, work_of(database, job_id, checkpoint_id if what == "checkpoint" else None), tmp_path)

    assert failed.value.error_type == "MODEL_NOT_FOUND"


def test_damaged_checkpoint_is_retired_and_the_one_before_is_the_newest(database, storage, trained, tmp_path):
    job_id, damaged = trained
    with database.write() as session:
        job = session.get_one(Job, job_id)
        older = make_checkpoint(session, job, step=1).id
        job.latest_checkpoint_id = job.best_checkpoint_id = damaged
    (storage.local_path(f"jobs/{job_id}/checkpoints/c") / "model.safetensors").write_bytes(b"weighty")

    first, second = work_of(database, job_id, damaged), work_of(database, job_id, damaged)
    for work in (first, second):  # two that are queued: the second finds what the first has found
        with pytest.raises(AttemptFailed) as failed:
            find(database, storage, work, tmp_path)
        assert failed.value.error_type == "MODEL_NOT_FOUND"
        for said in ("model.safetensors: content differs", "retired", "submit again with another model.checkpoint"):
            assert said in failed.value.message

    with database.read() as session:
        job = session.get_one(Job, job_id)
        events = session.scalars(select(JobEvent).where(JobEvent.job_id == job_id)).all()
        assert (job.latest_checkpoint_id, job.best_checkpoint_id) == (older, None)
        noted = {"checkpoint_id": damaged, "found_by": first.job_id, "retired": True}
        assert [(each.type, each.actor, each.data) for each in events] == [("job.resume_fallback", first.actor, noted)]
        assert "model.safetensors" in str(damage_of(session, session.get_one(Checkpoint, damaged)))
        assert damage_of(session, session.get_one(Checkpoint, older)) is None


@pytest.fixture
def damaged(database, storage, trained, tmp_path):
    """The ids of a job, its damaged newest checkpoint, which is its best, too, and one before it that is good."""
    job_id, newest = trained
    key = f"jobs/{job_id}/checkpoints/older"
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "model.safetensors").write_bytes(b"older weights")
    older = _manifest.commit(
        tmp_path / "older", tmp_path / "kept", _manifest.Manifest(job_id=job_id, attempt=1, step=1)
    )
    storage.put_tree(tmp_path / "kept", key)
    with database.write() as session:
        job = session.get_one(Job, job_id)
        kept = make_checkpoint(session, job, step=1, sha256=_manifest.digest(older), uri=storage.uri(key)).id
        job.latest_checkpoint_id = job.best_checkpoint_id = newest
    (storage.local_path(f"jobs/{job_id}/checkpoints/c") / "model.safetensors").write_bytes(b"weighty")
    return job_id, newest, kept


def asked_for(database, job_id, checkpoint_id, chosen_as, *, shards=0, service=None, **columns):
    """The work order of an evaluation of this checkpoint, on a node of its own."""
    model = {"job_id": job_id, "checkpoint_id": checkpoint_id, "chosen_as": chosen_as, "service": service}
    with database.write() as session:
        job = make_job(session, document=batch_document(inference={"model": model}, benchmarks=2), **columns)
        job.resume_checkpoint_id, job.evaluated_step = checkpoint_id, 3
        make_attempt(session, job, make_node(session, f"n{job.id[-12:]}"))
        for number in range(shards):
            make_shard(session, job, number)
    return work_orders.load_work(database, job.id, 1)


def prepared(database, storage, work, tmp_path):
    none = JobInputs(model=None, tokenizer=None, data=(), script=None)
    return with_results(database, storage, work, none, RunDirectory(tmp_path / work.job_id))


@pytest.mark.parametrize("retired_before", [False, True])
def test_newest_checkpoint_that_is_damaged_is_replaced_by_the_one_before(
    database, storage, damaged, tmp_path, retired_before
):
    job_id, newest, older = damaged
    work = asked_for(database, job_id, newest, "latest")
    if retired_before:  # by a job that was submitted together with this one
        with pytest.raises(AttemptFailed):
            find(database, storage, work_of(database, job_id, newest), tmp_path)

    changed, _, weights = prepared(database, storage, work, tmp_path)

    assert (weights / "model.safetensors").read_bytes() == b"older weights"
    assert changed.document.inference.model.checkpoint_id == older
    with database.read() as session:
        job = session.get_one(Job, work.job_id)
        assert (job.document, job.resume_checkpoint_id, job.evaluated_step) == (changed.document, older, 1)
        (event,) = session.scalars(select(JobEvent).where(JobEvent.job_id == work.job_id))
    assert (event.type, event.data) == ("job.resume_fallback", {"checkpoint_id": newest, "resumed_from": older})
    assert "model.safetensors: content differs" in event.message
    assert event.message.endswith(f"latest is now {older} at step 1, which is used")
    assert prepared(database, storage, work_orders.load_work(database, work.job_id, 1), tmp_path)[0] == changed


@pytest.mark.parametrize(
    ("chosen_as", "shards", "said"),
    [
        ("", 0, "submit again with another model.checkpoint"),
        (
            "best",
            0,
            "retired; job .* has no other checkpoint that is its best: say latest",
        ),  # the older one was not evaluated
        ("latest", 1, "1 benchmark is finished with it, which another model must not continue"),
    ],
)
def test_no_other_model_takes_the_place_of_a_named_one_or_one_with_results(
    database, storage, damaged, tmp_path, chosen_as, shards, said
):
    job_id, newest, _ = damaged
    work = asked_for(database, job_id, newest, chosen_as, shards=shards)

    with pytest.raises(AttemptFailed, match=said) as failed:
        prepared(database, storage, work, tmp_path)

    assert failed.value.error_type == "MODEL_NOT_FOUND"
    with database.read() as session:
        assert session.get_one(Job, work.job_id).document == work.document


def test_job_that_asks_a_service_keeps_the_checkpoint_that_it_answers_with(database, storage, damaged, tmp_path):
    work = asked_for(database, damaged[0], damaged[1], "latest", service="chat")

    with pytest.raises(AttemptFailed) as failed:
        prepared(database, storage, work, tmp_path)

    assert failed.value.error_type == "MODEL_NOT_FOUND"


def test_damage_that_could_not_be_recorded_is_left_to_another_attempt(
    database, storage, damaged, tmp_path, monkeypatch
):
    def locked(*_args, **_options):
        raise OperationalError("", {}, Exception("database is locked"))

    monkeypatch.setattr("app.services.attempts.model_weights.retire_damaged", locked)

    with pytest.raises(AttemptFailed, match="could not be retired") as failed:
        prepared(database, storage, asked_for(database, damaged[0], damaged[1], "latest"), tmp_path)

    assert failed.value.error_type == "STORAGE_ERROR"


def test_attempt_that_lost_the_job_takes_no_other_model(database, storage, damaged, tmp_path):
    job_id, newest, _ = damaged
    work = asked_for(database, job_id, newest, "latest")
    with database.write() as session:
        session.get_one(Job, work.job_id).fence += 1

    with pytest.raises(LeaseLost):
        prepared(database, storage, work, tmp_path)

    with database.read() as session:
        assert session.get_one(Job, work.job_id).resume_checkpoint_id == newest


def test_checkpoint_that_could_not_be_reached_and_was_pruned_later_is_not_called_damaged(database, trained):
    job_id, saved = trained
    with database.write() as session:
        checkpoint = session.get_one(Checkpoint, saved)
        checkpoint.deleted_at = checkpoint.created_at
        data = {"checkpoint_id": saved, "resumed_from": None}
        transitions.record_event(session, job_id, EventType.RESUME_FALLBACK, actor="n1", message="away", data=data)

    with database.read() as session:
        assert damage_of(session, session.get_one(Checkpoint, saved)) is None


def test_any_names_of_damaged_files_can_be_recorded(database, trained):
    job_id, damaged = trained
    stored = ResumeCandidate(checkpoint_id=damaged, job_id=job_id, uri="", sha256="", step=3, world_size=1)
    reason = "a\0b\udcff https://me:hunter2@host/ " + "x" * 100_000

    assert retire_damaged(database, stored, reason, actor="n1", found_by="job-1")
    assert not retire_damaged(database, stored, reason, actor="n1", found_by="job-2"), "it is retired already"

    with database.read() as session:
        (event,) = session.scalars(select(JobEvent).where(JobEvent.job_id == job_id))
        assert (len(event.message), event.data["found_by"]) == (MAX_MESSAGE, "job-1")
        assert "as job-1 has found: a\ufffdb? " in event.message
        assert "hunter2" not in event.message


@pytest.mark.parametrize("fails_once", [True, False])
def test_copy_that_this_machine_has_damaged_is_fetched_again(database, storage, trained, tmp_path, fails_once):
    job_id, checkpoint_id = trained
    remote = RemoteStorage(storage, damages=1 if fails_once else 2)
    work = work_of(database, job_id, checkpoint_id)

    if fails_once:
        found = find(database, remote, work, tmp_path)
        assert (found / "model.safetensors").read_bytes() == b"weights"
    else:
        with pytest.raises(AttemptFailed, match="damaged and retired"):
            find(database, remote, work, tmp_path)

    assert remote.damages == 0
    with database.read() as session:
        assert (session.get_one(Checkpoint, checkpoint_id).deleted_at is None) == fails_once


class RemoteStorage:
    """A storage that is no directory of this machine, whose first copies arrive damaged."""

    def __init__(self, storage, *, damages):
        self._storage, self.damages = storage, damages

    def key_of(self, uri):
        return self._storage.key_of(uri)

    def local_path(self, key):
        return None

    def fetch_tree(self, key, target):
        assert not target.exists(), "a fresh directory"
        self._storage.fetch_tree(key, target)
        if self.damages:
            self.damages -= 1
            (target / "model.safetensors").write_bytes(b"weighty")


@pytest.mark.parametrize("what", ["artifacts", "checkpoints/c"])
def test_recorded_weights_that_the_storage_has_not_are_waited_for(database, storage, trained, tmp_path, what):
    """A volume that is not mounted looks like an empty storage."""
    job_id, checkpoint_id = trained
    storage.delete_tree(f"jobs/{job_id}/{what}")

    with pytest.raises(AttemptFailed) as failed:
        find(database, storage, work_of(database, job_id, None if what == "artifacts" else checkpoint_id), tmp_path)

    assert failed.value.error_type == "STORAGE_ERROR"


def test_deleted_checkpoint_and_result_of_another_project_are_not_found(database, storage, trained, tmp_path):
    job_id, checkpoint_id = trained
    with database.write() as session:
        checkpoint = session.get_one(Checkpoint, checkpoint_id)
        checkpoint.deleted_at = checkpoint.created_at

    with pytest.raises(AttemptFailed, match="has no checkpoint"):
        find(database, storage, work_of(database, job_id, checkpoint_id), tmp_path)
    with pytest.raises(AttemptFailed, match="others has no job"):
        find(database, storage, work_of(database, job_id, project="others"), tmp_path)
