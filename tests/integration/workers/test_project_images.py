"""What a node does with an image that the job's project allowed when it was submitted, and does not any more."""

import pytest

from app.database.engine import Database
from app.domain.spec.image import Image
from app.domain.spec.model import JobDocument, ResourceConfig
from app.models import Project
from config.settings import load_settings
from workers.attempt_failed import AttemptFailed
from workers.prepare.job_image import refuse_foreign_images
from workers.prepare.preflight import ask_registries


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
    assert failed.value.message.startswith("resource_config.image.reference: project nlp requires a digest")


def test_no_registry_is_asked_for_an_image_that_the_project_does_not_allow(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = JobDocument(resource_config=ResourceConfig(image=Image(reference="registry.example/team/tool:v1")))
    settings, asked = load_settings({}), list[str]()

    def inspect(settings: object, project: str, *rest: object) -> dict[str, object]:
        asked.append(project)
        return {}

    monkeypatch.setattr("workers.prepare.preflight.inspect_image", inspect)
    with database.write() as session:
        session.add_all([Project(name="nlp", image_sources=["other.example"]), Project(name="cv")])

    (error,) = ask_registries(settings, database, "nlp", document, {}, 1.0)["errors"]
    assert ask_registries(settings, database, "cv", document, {}, 1.0) == {}

    assert error["error_type"] == "INVALID_CONFIG"
    assert "project nlp may only use images from other.example" in error["message"]
    assert asked == ["cv"]
