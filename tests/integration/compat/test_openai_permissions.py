"""Permissions of checkpoints by OpenAI's own client."""

from typing import Any

import openai
import pytest

from app.models import ModelPermission
from app.security.permissions import Role
from app.services.model_registry import fine_tunes
from tests.builders.factories import make_project
from tests.builders.inference_requests import make_trained
from tests.integration.compat.openai_client import client_of
from tests.systems.apps import Api


def fine_tuned(api: Api) -> str:
    with api.db.write() as session:
        for name in ("red", "blue"):
            make_project(session, name)
        return fine_tunes.planned(session, make_trained(session), "tiny", "docs").name


def test_permissions_are_granted_listed_and_taken_back(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = client_of(sqlite_api, monkeypatch)
    name, permissions = fine_tuned(sqlite_api), client.fine_tuning.checkpoints.permissions

    made = list(permissions.create(name, project_ids=["red", "blue"]))
    listed = [each.project_id for each in permissions.list(name, limit=1)]  # of all pages
    oldest = [each.project_id for each in permissions.list(name, order="ascending")]
    of_one = list(permissions.list(name, project_id="red"))
    deleted = permissions.delete(made[0].id, fine_tuned_model_checkpoint=name)

    assert [(each.object, each.project_id) for each in made] == [
        ("checkpoint.permission", "red"),
        ("checkpoint.permission", "blue"),
    ]
    assert (listed, oldest) == (["blue", "red"], ["red", "blue"])
    assert [each.id for each in of_one] == [made[0].id]
    assert (deleted.id, deleted.object, deleted.deleted) == (made[0].id, "checkpoint.permission", True)
    assert [each.project_id for each in permissions.list(name)] == ["blue"]


def test_a_repeated_request_grants_once(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    client, connection = client_of(sqlite_api, monkeypatch)
    name = fine_tuned(sqlite_api)

    connection.losing = 1
    made = list(client.fine_tuning.checkpoints.permissions.create(name, project_ids=["red"]))

    with sqlite_api.db.read() as session:
        assert [row.id for row in session.query(ModelPermission)] == [made[0].id]


@pytest.mark.parametrize(
    ("model", "asked", "status", "param"),
    [
        ("", [], 400, "project_ids"),
        ("", ["Red"], 400, "project_ids"),
        ("", ["default"], 400, "project_ids"),
        ("", ["nowhere"], 404, "project_ids"),
        ("ft:tiny:default:docs:00000000", ["red"], 404, "model"),
        ("tiny", ["red"], 404, "model"),
    ],
)
def test_errors_name_the_field(
    sqlite_api: Api, monkeypatch: pytest.MonkeyPatch, model: str, asked: list[str], status: int, param: str
) -> None:
    client, _ = client_of(sqlite_api, monkeypatch)
    name = fine_tuned(sqlite_api)

    with pytest.raises(openai.APIStatusError) as refused:
        client.fine_tuning.checkpoints.permissions.create(model or name, project_ids=asked)

    body: Any = refused.value.body
    assert refused.value.status_code == status, body
    assert str(body["param"]).startswith(param)


def test_the_other_project_sees_the_model_and_nothing_more(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    admin, _ = client_of(sqlite_api, monkeypatch)
    name = fine_tuned(sqlite_api)
    client, _ = client_of(sqlite_api, monkeypatch, api_key=sqlite_api.make_key(Role.ADMIN, "red"))
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve(name)
    with pytest.raises(openai.PermissionDeniedError):
        client.fine_tuning.checkpoints.permissions.create(name, project_ids=["blue"])

    admin.fine_tuning.checkpoints.permissions.create(name, project_ids=["red"])

    assert [each.id for each in client.models.list()] == [name]
    assert client.models.retrieve(name).owned_by == "default"
    for act in (client.models.delete, lambda model: _tuned(client, model)):
        with pytest.raises(openai.NotFoundError):
            act(name)
    job_id = f"ftjob-{_job_of(sqlite_api, name)}"
    with pytest.raises(openai.NotFoundError):
        client.fine_tuning.jobs.retrieve(job_id)


def _tuned(client: openai.OpenAI, model: str) -> None:
    client.fine_tuning.jobs.create(model=model, training_file="file-x")


def _job_of(api: Api, name: str) -> str:
    jobs = api.get("/v1/jobs")["jobs"]
    return next(str(each["job_id"]).removeprefix("job-") for each in jobs if each["job_id"].endswith(name[-8:]))
