"""Jobs whose code, model and data are uploaded directories, and code that a commit names."""

from typing import Any

import pytest

from app.domain.ids import new_id
from app.models import File, Job
from app.security.permissions import Role
from tests.builders.factories import make_document
from tests.systems.apps import Api

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CODE = "training_config.framework.custom_code_dir"
REPOSITORY = "git+https://example.org/team/code.git"


def stored_file(api: Api, purpose: str = "directory", **columns: Any) -> str:
    values = {
        "id": new_id("file"),
        "project": "default",
        "created_by": "key-1",
        "filename": "code.tar.zst",
        "purpose": purpose,
        "size_bytes": 3,
        "sha256": "0" * 64,
        "status": "processed",
        **columns,
    }
    with api.db.write() as session:
        session.add(File(**values))
    return str(values["id"])


def script_document(code: str | None, script: str | None = "train.py") -> dict[str, Any]:
    document = make_document(data_config={"sources": []})
    framework = {"type": "CUSTOM", "custom_code_dir": code, "custom_script_path": script}
    document["training_config"]["framework"] = {name: value for name, value in framework.items() if value}
    document["training_config"]["base_model"] = {"model_id": "none"}
    document["training_config"]["hyperparameters"] = {}
    return document


@pytest.mark.parametrize("scheme", ["", "upload://"])
def test_uploaded_code_is_stored_by_its_id(sqlite_api: Api, scheme: str) -> None:
    file_id = stored_file(sqlite_api)

    job = sqlite_api.data(sqlite_api.post("/v1/jobs", script_document(f"{scheme}{file_id}")), 201)

    with sqlite_api.db.read() as session:
        framework = session.get_one(Job, job["job_id"]).document.training_config.framework
    assert (framework.custom_code_dir, framework.custom_script_path) == (file_id, "train.py")
    kept = sqlite_api.call("DELETE", f"/v1/files/{file_id}")
    assert (kept.status_code, "has not ended" in kept.text) == (409, True)


def test_commit_is_accepted_as_it_is(sqlite_api: Api) -> None:
    location = f"{REPOSITORY}@{COMMIT}#subdirectory=src"

    answer = sqlite_api.post("/v1/jobs", script_document(location))

    assert sqlite_api.data(answer, 201)["job_id"]


@pytest.mark.parametrize(
    ("code", "script", "field", "message"),
    [
        (f"{REPOSITORY}@main", "train.py", CODE, "git ls-remote https://example.org/team/code.git main"),
        (f"git+https://127.0.0.1/a@{COMMIT}", "train.py", CODE, "TRAINYARD_FETCH_ALLOW"),
        (f"{REPOSITORY}@{COMMIT}", "/srv/train.py", "training_config.framework.custom_script_path", "by its path in"),
        ("upload://nothing", "train.py", CODE, "names no uploaded file"),
        ("file-00000000-0000-7000-8000-000000000001", "train.py", CODE, "has no file"),
        ("user_data", "train.py", CODE, "was uploaded for user_data, and code or a model is an archive"),
    ],
)
def test_code_that_can_not_run_is_refused(sqlite_api: Api, code: str, script: str, field: str, message: str) -> None:
    named = stored_file(sqlite_api, code) if code == "user_data" else code

    answer = sqlite_api.post("/v1/jobs", script_document(named, script))

    assert answer.status_code in (400, 422)
    assert field in str(answer.json)
    assert message in str(answer.json)


@pytest.mark.parametrize(("purpose", "status"), [("directory", 201), ("fine-tune", 400)])
def test_model_is_an_uploaded_directory(sqlite_api: Api, purpose: str, status: int) -> None:
    document = make_document()
    document["training_config"]["base_model"]["model_id"] = f"upload://{stored_file(sqlite_api, purpose)}"
    document["data_config"] = {"sources": [{"path": stored_file(sqlite_api)}]}

    answer = sqlite_api.post("/v1/jobs", document)

    assert answer.status_code == status, answer.text


def test_files_are_found_by_their_content(sqlite_api: Api) -> None:
    wanted = stored_file(sqlite_api, sha256="a" * 64)
    stored_file(sqlite_api)

    found = sqlite_api.call("GET", f"/v1/files?purpose=directory&sha256={'a' * 64}").json or {}
    refused = sqlite_api.call("GET", "/v1/files?sha256=x")

    assert [file["id"] for file in found["data"]] == [wanted]
    assert (refused.status_code, "SHA-256" in refused.text) == (400, True)


def test_other_systems_name_code_the_same_way(sqlite_api: Api) -> None:
    file_id, commit = stored_file(sqlite_api), f"{REPOSITORY}@{COMMIT}"
    found = {}
    for name, code in {"uploaded": f"upload://{file_id}", "commit": commit}.items():
        trainer = {"command": ["python", "train.py"], "codeUri": code}
        manifest = {
            "apiVersion": "ome.io/v1beta1",
            "kind": "TrainingJob",
            "metadata": {"name": name},
            "spec": {"runtimeRef": {"name": "pytorch-runtime"}, "trainer": trainer},
        }
        made = sqlite_api.post("/apis/ome.io/v1beta1/namespaces/default/trainingjobs", manifest)
        assert made.status_code == 201, made.text
        assert made.json is not None
        job = sqlite_api.get(f"/v1/jobs/job-{made.json['metadata']['uid']}")
        found[name] = job["training_config"]["framework"]["custom_code_dir"]

    assert found == {"uploaded": file_id, "commit": commit}


def test_content_is_searched_where_an_upload_would_go(sqlite_api: Api) -> None:
    sqlite_api.make_key(Role.USER, "team-a")
    theirs = stored_file(sqlite_api, project="team-a", sha256="a" * 64)
    search = f"/v1/files?purpose=directory&sha256={'a' * 64}"

    here = sqlite_api.call("GET", search).json or {}
    there = sqlite_api.call("GET", search, headers={"X-Project": "team-a"}).json or {}

    assert here["data"] == []
    assert [file["id"] for file in there["data"]] == [theirs]
