"""Code in private repositories and their like: logins and other secrets, sealed, never shown, not led elsewhere."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.domain.sweeps.parameters import Value
from app.models import Job, Sweep
from app.security.permissions import Role
from app.services.access.secret_files import GIT_LOGINS
from app.services.sweeps import trials
from app.services.sweeps.trials import NewTrial
from tests.builders.factories import make_document
from tests.builders.sweeps import make_sweep_document
from tests.integration.api.test_retrying import ended_job, refused, retry
from tests.integration.compat.test_runai import BODY, TRAININGS
from tests.systems.apps import Api

AT = "training_config.framework.custom_code_credentials"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "t0ken-canary"


def training(host: str = "git.example.org", **more: Any) -> dict[str, Any]:
    framework = {"type": "CUSTOM", "custom_script_path": "train.py", **more}
    framework["custom_code_dir"] = f"git+https://{host}/team/code.git@{COMMIT}"
    return {"framework": framework}


def store(api: Api, file: str = "git.example.org", text: str = TOKEN, project: str = "default") -> None:
    folder = api.folder / "data" / "secrets" / project / GIT_LOGINS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(f"{text}\n")


def opened(api: Api, kind: type[Job] | type[Sweep], row_id: str) -> Any:
    with api.db.read() as session:
        sealed = session.scalar(select(kind.sealed_secrets).where(kind.id == row_id))
    assert sealed is not None
    assert TOKEN not in sealed
    return api.app.extensions["trainyard"].plane.box.open(sealed)


def test_login_of_a_document_is_sealed_and_kept_by_retries(sqlite_api: Api) -> None:
    login = {"username": "me", "password": TOKEN}
    job_id = sqlite_api.submit(training_config=training(custom_code_credentials=login))
    sqlite_api.post(f"/v1/jobs/{job_id}/cancel", {})
    retried = sqlite_api.data(sqlite_api.post(f"/v1/jobs/{job_id}/retry", {}), 201)["job_id"]

    for each in (job_id, retried):
        answer = sqlite_api.call("GET", f"/v1/jobs/{each}")
        shown = answer.get_json()["data"]["training_config"]["framework"]
        assert shown["custom_code_credentials"] == {"username": "***", "password": "***"}
        assert TOKEN not in answer.text
        assert opened(sqlite_api, Job, each) == {f"{AT}.{name}": value for name, value in login.items()}


@pytest.mark.parametrize(
    ("host", "file", "text", "login"),
    [
        ("git.example.org", "git.example.org", TOKEN, {"token": TOKEN}),
        ("Git.example.org:443", "git.example.org", f"me:{TOKEN}", {"username": "me", "password": TOKEN}),
        ("git.example.org:8443", "git.example.org_8443", TOKEN, {"token": TOKEN}),
    ],
)
def test_code_is_opened_by_what_the_operator_stores_for_its_host(
    sqlite_api: Api, host: str, file: str, text: str, login: dict[str, str]
) -> None:
    store(sqlite_api, file, text)

    job_id = sqlite_api.submit(training_config=training(host))

    named = {**login, "host": host.lower().removesuffix(":443")}
    assert opened(sqlite_api, Job, job_id) == {f"{AT}.{name}": value for name, value in named.items()}
    assert TOKEN not in sqlite_api.call("GET", f"/v1/jobs/{job_id}").text


@pytest.mark.parametrize(
    ("host", "project", "more"),
    [
        ("git.example.org_8443", "default", {}),
        ("other.example.org", "default", {}),
        ("git.example.org:8443", "default", {}),
        ("git.example.org", "other", {}),
        ("git.example.org", "default", {"custom_code_credentials": {"token": "own"}}),
    ],
)
def test_stored_login_is_for_one_host_and_project(sqlite_api: Api, host: str, project: str, more: Any) -> None:
    store(sqlite_api, project=project)
    store(sqlite_api, "git.example.org_8443" if host.endswith("_8443") else "unused", project=project)

    job_id = sqlite_api.submit(training_config=training(host, **more))

    assert TOKEN not in str(opened(sqlite_api, Job, job_id))


@pytest.mark.parametrize("first", [0, 1])
def test_trials_of_a_sweep_have_the_stored_login_of_their_own_host(sqlite_api: Api, first: int) -> None:
    store(sqlite_api)
    hosts = [f"git+https://{host}/team/code.git@{COMMIT}" for host in ("git.example.org", "other.example.org")]
    varied = {"training_config.framework.custom_code_dir": {"type": "categorical", "values": hosts[:: 1 - 2 * first]}}
    job = make_document(training_config=training())
    del job["name"]

    answer = sqlite_api.post("/v1/sweeps", make_sweep_document(job=job, parameters=varied))

    sweep_id = sqlite_api.data(answer, 201)["sweep_id"]
    plane = sqlite_api.app.extensions["trainyard"].plane
    with sqlite_api.db.read() as session:
        sweep = session.get_one(Sweep, sweep_id)
    assert "custom_code_credentials" not in sweep.spec["job"]["training_config"]["framework"]
    for location, login in zip(hosts, ({"token": TOKEN, "host": "git.example.org"}, {}), strict=True):
        values: dict[str, Value] = {next(iter(varied)): location}
        new = NewTrial(number=1, values=values, source="method", seen_seq=0)
        found = trials.check(plane, sweep, new).spec.secrets
        assert found == {f"{AT}.{name}": value for name, value in login.items()}


def test_trials_over_images_have_the_logins_that_their_own_image_needs(database: Database, tmp_path: Path) -> None:
    api = Api(database, tmp_path, TRAINYARD_IMAGES_SOURCES="one.example,two.example")
    hosts = ("one.example", "two.example")
    varied = {"resource_config.image.reference": {"type": "categorical", "values": [f"{each}/a:v1" for each in hosts]}}
    logins = [{"registry": each, "username": "me", "password": f"{TOKEN}-{each}"} for each in (*hosts, "no.example")]
    custom = {"framework": {"type": "CUSTOM", "custom_command": ["true"]}, "base_model": {"model_id": "none"}}
    resources: dict[str, Any] = {"gpu_count": 1, "image": {"reference": "one.example/a:v1"}, "registry_logins": logins}
    job = make_document(training_config=custom, resource_config=resources)
    del job["name"]

    unneeded = api.problem(api.post("/v1/sweeps", make_sweep_document(job=job, parameters=varied)), 400)
    job["resource_config"]["registry_logins"] = logins[:2]
    sweep_id = api.data(api.post("/v1/sweeps", make_sweep_document(job=job, parameters=varied)), 201)["sweep_id"]

    assert "no image of the job is read with the login of no.example" in unneeded["message"]
    with api.db.read() as session:
        sweep = session.get_one(Sweep, sweep_id)
    for host in hosts:
        new = NewTrial(number=1, values={next(iter(varied)): f"{host}/a:v1"}, source="method", seen_seq=0)
        spec = trials.check(api.app.extensions["trainyard"].plane, sweep, new).spec
        assert [each.registry for each in spec.document.resource_config.registry_logins] == [host]
        assert spec.secrets == {"resource_config.registry_logins.0.password": f"{TOKEN}-{host}"}
    api.close()


@pytest.mark.parametrize("text", ["", "a b", "me:"])
def test_stored_login_that_can_not_be_used_names_the_operators_file(sqlite_api: Api, text: str) -> None:
    store(sqlite_api, text=text)

    problem = sqlite_api.problem(sqlite_api.post("/v1/jobs", make_document(training_config=training())), 400)

    assert problem["details"][0]["field"].startswith(AT)
    assert f"default/{GIT_LOGINS}/git.example.org below TRAINYARD_SECURITY_SECRETS_DIR" in problem["message"]


@pytest.mark.parametrize(
    "changes",
    [{"network": "gate"}, {"image": {"reference": "registry.example.org/bob/tool:v1"}}, {"mounts": []}],
    ids=lambda changes: next(iter(changes)),
)
def test_secrets_of_another_key_stay_with_the_programs_they_were_given_to(sqlite_api: Api, changes: dict[str, Any]):
    api, bob = sqlite_api, sqlite_api.make_key(Role.USER)
    mount = {"path": "/own", "type": "files", "files": [{"name": "a", "content": "opensesame"}], "required": False}
    custom = {"framework": {"type": "CUSTOM", "custom_command": ["true"]}, "base_model": {"model_id": "none"}}
    parent = ended_job(api, training_config=custom, resource_config={"gpu_count": 1, "mounts": [mount]})
    body = {"modify_resources": True, "new_resource_config": changes}

    problem = refused(api, parent, body, status=409, key=bob)

    assert f"new_resource_config.{next(iter(changes))} changes" in problem["message"]
    assert "submit a new job with your own secrets" in problem["message"]
    same = {"modify_resources": True, "new_resource_config": {"network": "none", "ram_min_mb": 64}}
    child = retry(api, parent, same, key=bob)["job_id"]
    with api.db.write() as session:
        session.get_one(Job, child).status = JobState.FAILED
    refused(api, child, body, status=409, key=bob)
    with api.db.write() as session:  # as the deletion of the parent leaves it
        session.get_one(Job, child).parent_job_id = None
        session.flush()
        session.execute(delete(Job).where(Job.id == parent))
    refused(api, child, body, status=409, key=bob)


def by_runai(api: Api, **spec: Any) -> Any:
    return api.post(TRAININGS, {**BODY, "spec": {"command": "python train.py", **spec}})


def test_git_volume_of_runai_has_its_secret(sqlite_api: Api) -> None:
    folder = sqlite_api.folder / "data" / "secrets" / "default" / "deploy"
    folder.mkdir(parents=True)
    (folder / "user").write_text("me\n")
    (folder / "password").write_text(f"{TOKEN}\n")
    secret = {"name": "deploy", "authenticationMethod": "password", "secretKeyOfUser": "user"}
    volume = {"repository": "https://git.example.org/team/code.git", "revision": COMMIT, "path": "/src"}

    answer = by_runai(sqlite_api, storage={"git": [{**volume, "name": "v", "secretRef": secret}]})

    assert answer.status_code == 202, answer.text
    with sqlite_api.db.read() as session:
        (job,) = session.query(Job).all()
    assert opened(sqlite_api, Job, job.id) == {f"{AT}.username": "me", f"{AT}.password": TOKEN}
    assert TOKEN not in answer.text + sqlite_api.call("GET", f"/v1/jobs/{job.id}").text
    private = {**volume, "repository": "https://127.0.0.1/code.git"}
    refused = by_runai(sqlite_api, storage={"git": [private]})
    assert (refused.status_code, "spec.storage.git" in refused.text) == (400, True)


def test_login_of_the_operator_is_no_secret_of_a_job(sqlite_api: Api) -> None:
    store(sqlite_api)
    named = {"name": GIT_LOGINS, "key": "git.example.org"}
    volume = {"name": "v", "secret": GIT_LOGINS, "mountPath": "/secrets"}
    git = {"repository": "https://thief.example.org/a.git", "revision": COMMIT, "path": "/src"}
    asked = {"name": GIT_LOGINS, "secretKeyOfUser": "git.example.org", "secretKeyOfPassword": "git.example.org"}

    answers = [
        by_runai(sqlite_api, environmentVariables=[{"name": "A", "secret": named}]),
        by_runai(sqlite_api, storage={"git": [{**git, "secretRef": asked}]}),
        by_runai(sqlite_api, storage={"secretVolume": [volume]}),
    ]

    assert [answer.status_code for answer in answers] == [400, 400, 202]
    assert "no job gets it" in answers[0].text
    with sqlite_api.db.read() as session:
        (job,) = session.query(Job).all()
    assert TOKEN not in str(sqlite_api.app.extensions["trainyard"].plane.box.open(job.sealed_secrets))
