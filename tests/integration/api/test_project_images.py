"""Which images a project allows its jobs, by the API."""

from pathlib import Path
from typing import Any

import pytest

from app.database.engine import Database
from tests.builders.controlled import audited
from tests.builders.factories import make_document
from tests.systems.apps import Api


@pytest.mark.both_databases
def test_job_uses_images_that_its_project_allows(database: Database, tmp_path: Path) -> None:
    api = Api(database, tmp_path, TRAINYARD_IMAGES_SOURCES="registry.example,docker.io")
    digest = "sha256:" + "a" * 64

    def asked(reference: str) -> tuple[int, str]:
        training = {"framework": {"type": "CUSTOM", "custom_command": ["true"]}, "base_model": {"model_id": "none"}}
        resources = {"gpu_count": 1, "image": {"reference": reference}}
        answer = api.post("/v1/jobs", make_document(training_config=training, resource_config=resources))
        return answer.status_code, answer.text

    def change(**rules: Any) -> Any:
        return api.call("PATCH", "/v1/projects/default", json=rules)

    assert asked("docker.io/any/tool:v1")[0] == 201
    changed = api.data(change(image_sources=["registry.example/team"]))
    assert (changed["image_sources"], changed["image_digests"]) == (["registry.example/team"], "optional")
    for foreign in ("docker.io/any/tool:v1", "registry.example/teammate/tool:v1", "oci:images/tool"):
        status, text = asked(foreign)
        assert (status, "resource_config.image.reference" in text) == (400, True), foreign
        assert "trainyard projects change default --image-source" in text
    assert asked("registry.example/team/tool:v1")[0] == 201
    api.data(change(image_sources=["local", "docker.io/any"], image_digests="required"))
    assert asked("oci:images/tool")[0] == 201
    assert "write docker.io/any/tool@sha256:DIGEST" in asked("docker.io/any/tool:v1")[1]
    assert asked(f"docker.io/any/tool@{digest}")[0] == 201
    assert ("default", {"changes": {"image_sources": ["registry.example/team"]}}) in audited(api, "project.patch")
    for bad in ("registry", "https://registry.example", "registry.example/", "Local", "*.example"):
        assert api.problem(change(image_sources=[bad]), 422)["details"][0]["field"] == "image_sources.0", bad
    made = api.data(
        api.post("/v1/projects", {"name": "b", "image_sources": ["local"], "image_digests": "required"}), 201
    )
    assert (made["image_sources"], made["image_digests"]) == (["local"], "required")
    api.close()
