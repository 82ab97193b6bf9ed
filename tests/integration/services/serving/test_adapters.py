"""Which adapters a replica may load: of its project, and trained on the model that it serves."""

import pytest
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import Conflict, NotFound
from app.domain.lifecycle.states import JobState
from app.domain.spec.inference import ModelReference
from app.domain.spec.model import JobDocument
from app.models import Job
from app.services.serving import adapters
from tests.builders.inference_requests import make_trained
from tests.builders.serving import replica_document

BASE = "/srv/models/tiny"


def found(session: Session, job: Job | str, document: JobDocument | None = None, **where: str) -> ModelReference:
    document = document or JobDocument.from_json(replica_document())
    job_id = job if isinstance(job, str) else job.id
    asked = {"project": "default", **where}
    return adapters.find(session, asked["project"], document, job_id=job_id, checkpoint_id=asked.get("checkpoint_id"))


def lora(session: Session, **parts: object) -> Job:
    return make_trained(session, adapter=True, training_type="LORA", **parts)  # type: ignore[arg-type]


def test_adapter_of_the_served_model_is_found(database: Database) -> None:
    with database.write() as session:
        job = lora(session)

        assert found(session, job) == ModelReference().changed(job_id=job.id, checkpoint_id=None, adapter=True)
        assert found(session, job, checkpoint_id="ckpt-1").checkpoint_id == "ckpt-1"


def test_adapter_of_a_running_job_is_that_of_a_checkpoint_alone(database: Database) -> None:
    with database.write() as session:
        job = make_trained(session, adapter=True, state=JobState.TRAINING, training_type="LORA")

        assert found(session, job, checkpoint_id="ckpt-1").job_id == job.id
        with pytest.raises(Conflict, match="has no result; wait until it is COMPLETED"):
            found(session, job)


def test_adapter_for_the_result_of_a_job_fits_a_service_of_that_result(database: Database) -> None:
    with database.write() as session:
        whole = make_trained(session)
        job = lora(session, base_model={"model_id": "none", "job_id": whole.id})
        document = replica_document(job_id=whole.id)
        document["training_config"]["base_model"] = {"model_id": "none"}

        assert found(session, job, JobDocument.from_json(document)).job_id == job.id
        with pytest.raises(Conflict, match=f"trained on {whole.id}, and this service has {BASE}"):
            found(session, job)


def test_what_is_no_adapter_of_the_model_is_refused_with_both_models(database: Database) -> None:
    with database.write() as session:
        with pytest.raises(Conflict, match=f"trained on /srv/models/other, and this service has {BASE}"):
            found(session, lora(session, base_model={"model_id": "/srv/models/other"}))
        with pytest.raises(Conflict, match="made a whole model, not an adapter"):
            found(session, make_trained(session))
        with pytest.raises(Conflict, match="made a whole model, not an adapter"):
            found(session, make_trained(session), checkpoint_id="ckpt-1")
        with pytest.raises(Conflict, match="weights that it drew by itself"):
            found(session, lora(session, base_model={"model_id": BASE, "from_config": True}))


def test_divided_checkpoint_is_served_by_a_service_of_its_own(database: Database) -> None:
    with database.write() as session:
        job = lora(session, framework={"type": "FSDP"})

        assert found(session, job).job_id == job.id
        with pytest.raises(Conflict, match=f"make a service of it \\(trainyard serve {job.id}@ckpt-1\\)"):
            found(session, job, checkpoint_id="ckpt-1")


def test_jobs_of_other_projects_do_not_exist(database: Database) -> None:
    with database.write() as session:
        job = lora(session)

        for asked in (job.id, "job-none"):
            with pytest.raises(NotFound, match=f"the project other has no training job {asked}"):
                found(session, asked, project="other")
