"""What a node does with an image that the job's project allowed when it was submitted, and does not any more."""

import pytest

from app.database.engine import Database
from app.domain.spec.image import Image
from app.domain.spec.model import JobDocument, ResourceConfig
from app.models import Project
from workers.attempt_failed import AttemptFailed
from workers.prepare.job_image import refuse_foreign_images


@pytest.mark.both_databases
def test_image_that_the_project_no_longer_allows_fails_the_attempt(database: Database) -> None:
    document = JobDocument(resource_config=ResourceConfig(image=Image(reference="registry.example/team/tool:v1")))
    with database.write() as session:
        session.add(Project(name="nlp", image_sources=["registry.example/team"]))
    with database.read() as session:
        refuse_foreign_images(session, "nlp", document)

    with database.write() as session:
        session.get_one(Project, "nlp").image_digests = "required"
    with database.read() as session, pytest.raises(AttemptFailed) as failed:
        refuse_foreign_images(session, "nlp", document)

    assert failed.value.error_type == "INVALID_CONFIG"
    assert failed.value.message.startswith("resource_config.image.reference: the project nlp names images with")
