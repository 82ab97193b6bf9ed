"""Jobs that use another one's weights: while they have not ended, neither the job nor the checkpoint is deleted."""

from typing import Any

import pytest

from app.domain.errors import BadSpec, StillNeeded
from app.domain.lifecycle.states import JobState
from app.domain.spec.job_spec import JobSpec
from app.domain.spec.model import JobDocument
from app.models import Checkpoint, Job
from app.services.access.api_keys import ADMINISTRATOR
from app.services.attempts import checkpoints
from app.services.jobs import deletion, start_points
from tests.builders.factories import make_checkpoint, make_document, make_job
from tests.builders.shards import batch_document
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases


def using(session: Any, job_id: str, checkpoint_id: str | None = None, **columns: Any) -> Job:
    """A batch with the weights of this job."""
    model = {"job_id": job_id, "checkpoint_id": checkpoint_id}
    return make_job(
        session, document=batch_document(inference={"model": model}), resume_checkpoint_id=checkpoint_id, **columns
    )


def delete(api: Api, job_id: str) -> None:
    deletion.remove(api.app.extensions["trainyard"].plane, ADMINISTRATOR, job_id, artifacts=True)


def end(api: Api, job_id: str) -> None:
    with api.db.write() as session:
        session.get_one(Job, job_id).status = JobState.COMPLETED


@pytest.mark.parametrize("by_checkpoint", [False, True], ids=["result", "checkpoint"])
def test_job_is_deleted_only_when_no_unfinished_job_uses_its_weights(api: Api, *, by_checkpoint: bool) -> None:
    with api.db.write() as session:
        trained = make_job(session, state=JobState.COMPLETED)
        saved = make_checkpoint(session, trained)
        reader = using(session, trained.id, saved.id if by_checkpoint else None, state=JobState.PAUSED).id

    with pytest.raises(StillNeeded, match=f"job {reader} has not ended and reads from {trained.id}"):
        delete(api, trained.id)

    end(api, reader)
    delete(api, trained.id)
    with api.db.read() as session:
        assert session.get(Job, trained.id) is None


def test_job_is_deleted_only_when_no_unfinished_job_is_judged_by_its_model(api: Api) -> None:
    with api.db.write() as session:
        trained = make_job(session, state=JobState.COMPLETED)
        values = {"algorithm": "grpo", "reward_model_id": trained.id}
        document = make_document(training_config={"training_type": "RLHF", "hyperparameters": values})
        reader = make_job(session, state=JobState.PAUSED, document=document).id

    with pytest.raises(StillNeeded, match=f"job {reader} has not ended and reads from {trained.id}"):
        delete(api, trained.id)


def test_checkpoint_is_retired_only_when_no_unfinished_job_uses_it(api: Api) -> None:
    with api.db.write() as session:
        trained = make_job(session, state=JobState.COMPLETED)
        saved = make_checkpoint(session, trained).id
        reader = using(session, trained.id, saved).id

        assert checkpoints.retire_unneeded(session, trained, [saved]) == {}

    end(api, reader)
    with api.db.write() as session:
        assert checkpoints.retire_unneeded(session, session.get_one(Job, trained.id), [saved]) == {saved: 1024}


def test_submission_pins_the_checkpoint_or_finds_that_it_has_gone(api: Api) -> None:
    with api.db.write() as session:
        trained = make_job(session)
        saved = make_checkpoint(session, trained)
        model = {"job_id": trained.id, "checkpoint_id": saved.id}
        spec = JobSpec(document=JobDocument.from_json(batch_document(inference={"model": model})), secrets={})

        pinned = start_points.start_point(session, "default", spec)
        assert pinned is saved
        with pytest.raises(BadSpec, match="submit again with another"):
            start_points.start_point(session, "others", spec)
        session.get_one(Checkpoint, saved.id).deleted_at = saved.created_at
        session.flush()
        with pytest.raises(BadSpec, match="has no checkpoint"):
            start_points.start_point(session, "default", spec)
