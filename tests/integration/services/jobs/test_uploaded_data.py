"""Jobs that name uploaded files: whose they may name, and which."""

from datetime import timedelta
from typing import Any

import pytest

from app.domain.ids import new_id
from app.models import File
from app.models.base import utc_now
from app.security.permissions import Role
from tests.builders.factories import make_document
from tests.systems.apps import Api
from workers.prepare.inputs.uploaded_data import uploads_of

PATH = "data_config.sources.0.path"


def stored_file(api: Api, **columns: Any) -> str:
    """The id of a file of the default project."""
    values = {
        "id": new_id("file"),
        "project": "default",
        "created_by": "key-1",
        "filename": "train.jsonl",
        "purpose": "fine-tune",
        "size_bytes": 3,
        "sha256": "0" * 64,
        "status": "processed",
        **columns,
    }
    with api.db.write() as session:
        session.add(File(**values))
    return str(values["id"])


def submitted(api: Api, path: str, **call: Any) -> Any:
    document = make_document(data_config={"sources": [{"path": path}]})
    document["training_config"]["base_model"]["model_id"] = str(api.inputs)
    return api.post("/v1/jobs", document, **call)


def test_job_reads_a_file_of_its_project(sqlite_api: Api) -> None:
    file_id = stored_file(sqlite_api, status="uploaded")

    job = sqlite_api.data(submitted(sqlite_api, file_id), 201)

    find = uploads_of(sqlite_api.db, "memory://uploads", "default")
    found = find(file_id)
    assert job["job_id"]
    assert found is not None
    assert (found.filename, found.key) == ("train.jsonl", f"user-files/default/{file_id}")
    assert uploads_of(sqlite_api.db, "memory://uploads", "other")(file_id) is None
    assert find(new_id("file")) is None


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"purpose": "batch"}, "was uploaded for batch"),
        ({"status": "error", "status_details": "line 3: no JSON\nline 4: x"}, "line 3: no JSON (and 1 more); upload"),
        ({"expires_at": utc_now() - timedelta(seconds=1)}, "has no file"),
    ],
)
def test_file_that_is_no_data_is_refused(sqlite_api: Api, columns: dict[str, Any], message: str) -> None:
    problem = sqlite_api.problem(submitted(sqlite_api, stored_file(sqlite_api, **columns)), 400)

    assert (problem["details"][0]["field"], message in problem["message"]) == (PATH, True)


def test_file_of_another_project_is_unknown_by_id_and_unreadable_by_path(sqlite_api: Api) -> None:
    file_id = stored_file(sqlite_api)
    key = sqlite_api.make_key(Role.ADMIN, "other")
    content = f"{sqlite_api.folder}/data/files/user-files/default/{file_id}"

    foreign = sqlite_api.problem(submitted(sqlite_api, file_id, key=key), 400)
    by_path = [sqlite_api.problem(submitted(sqlite_api, content, key=each), 400) for each in (key, None)]
    unknown = sqlite_api.problem(submitted(sqlite_api, other := new_id("file"), key=key), 400)

    assert foreign["message"] == unknown["message"].replace(other, file_id)
    assert "the project other has no file" in foreign["message"]
    assert all("which jobs may not read" in each["message"] for each in by_path)
