"""Secrets that documents of other vocabularies name: files of the operator's, read when the job is submitted."""

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.models import Job, Sweep
from app.services.access.secret_files import LOGINS
from tests.integration.compat.test_ome import JOBS, manifest
from tests.integration.compat.test_ome_sweeps import TRAINER, tuned
from tests.integration.compat.test_runai import BODY, TRAININGS
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

# A value and a variable that do not look secret.
VALUE = "plain-looking"


def lay_down(api: Api, value: bytes = VALUE.encode() + b"\n", place: str = "default/db/url") -> Path:
    path = api.folder / "data/secrets" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(value)
    return path


def by_runai(api: Api, name: str = "db", key: str = "url") -> Any:
    variables = [{"name": "PLACE", "value": "unused", "secret": {"name": name, "key": key}}]
    spec = {"command": "python train.py", "environmentVariables": variables}
    return api.post(TRAININGS, {**BODY, "spec": spec})


def by_ome(api: Api, name: str = "db", key: str = "url") -> Any:
    variables = [{"name": "PLACE", "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}]
    return api.post(JOBS, manifest(trainer={"command": ["python", "train.py"], "env": variables}))


@pytest.mark.parametrize("ask", [by_runai, by_ome])
def test_job_gets_the_secret_and_no_answer_contains_it(api: Api, ask: Any) -> None:
    lay_down(api)

    answer = ask(api)

    assert answer.status_code in (201, 202), answer.text
    with api.db.read() as session:
        (job,) = session.query(Job).all()
        stored, sealed = job.spec["training_config"]["environment"], job.sealed_secrets
    secrets = api.app.extensions["trainyard"].plane.box.open(sealed)
    assert (stored["PLACE"], secrets["training_config.environment.PLACE"]) == ("***", VALUE)
    assert VALUE not in answer.text
    assert VALUE not in api.call("GET", f"/v1/jobs/{job.id}").text
    warned = [event for event in api.get(f"/v1/jobs/{job.id}/events")["events"] if event["reason"] == "NOT_ACTED_ON"]
    assert "PLACE" not in str(warned)


@pytest.mark.parametrize("ask", [by_runai, by_ome])
def test_secret_stays_one_when_its_job_is_retried(api: Api, ask: Any) -> None:
    lay_down(api)
    ask(api)
    with api.db.write() as session:
        (parent,) = session.query(Job).all()
        parent.status = JobState.FAILED

    child_id = api.data(api.post(f"/v1/jobs/{parent.id}/retry"), 201)["job_id"]

    with api.db.read() as session:
        child = session.get_one(Job, child_id)
    secrets = api.app.extensions["trainyard"].plane.box.open(child.sealed_secrets)
    assert secrets == {"training_config.environment.PLACE": VALUE}
    assert child.spec["training_config"]["environment"]["PLACE"] == "***"
    assert VALUE not in api.call("GET", f"/v1/jobs/{child_id}").text


def test_secret_of_a_search_stays_one_in_its_fork(api: Api) -> None:
    lay_down(api)
    variables = [{"name": "PLACE", "valueFrom": {"secretKeyRef": {"name": "db", "key": "url"}}}]
    first = tuned(api, trainer={**TRAINER, "env": variables})

    created = api.data(api.post(f"/v1/sweeps/sweep-{first['metadata']['uid']}/fork", {}), 201)

    with api.db.read() as session:
        fork = session.get_one(Sweep, created["sweep_id"])
    assert api.app.extensions["trainyard"].plane.box.open(fork.sealed_secrets) == {
        "training_config.environment.PLACE": VALUE
    }
    assert VALUE not in json.dumps([fork.base, fork.spec])
    assert VALUE not in api.call("GET", f"/v1/sweeps/{fork.id}").text


@pytest.mark.parametrize(
    ("ask", "field"),
    [(by_runai, "spec.environmentVariables.0.secret"), (by_ome, "spec.trainer.env.0.valueFrom.secretKeyRef")],
)
def test_missing_secret_is_named_with_a_remedy(api: Api, ask: Any, field: str) -> None:
    lay_down(api, place="other/db/url")

    answer = ask(api)

    assert answer.status_code == 400
    assert field in answer.text
    assert "default/db/url below TRAINYARD_SECURITY_SECRETS_DIR" in answer.text
    assert api.get("/v1/jobs")["total_count"] == 0


@pytest.mark.parametrize(
    ("name", "key"), [("..", "admin.key"), ("db", "../../../admin.key"), ("db", "."), ("a/b", "c")]
)
def test_secret_is_looked_for_nowhere_else(api: Api, name: str, key: str) -> None:
    lay_down(api)
    (api.folder / "data/secrets/admin.key").write_text("mine")

    answer = by_runai(api, name, key)

    assert (answer.status_code, "letters, digits" in answer.text, "mine" in answer.text) == (400, True, False)


@pytest.mark.parametrize("value", [b"\xff\xfe", b"a\0b", b"x" * 65_537])
def test_secret_that_is_no_text_is_refused(api: Api, value: bytes) -> None:
    lay_down(api, value)

    assert "is not a text of at most 65536 bytes" in by_runai(api).text


def volumes(api: Api, **kinds: Any) -> Any:
    spec = {"command": "python train.py", "storage": {kind: [volume] for kind, volume in kinds.items()}}
    return api.post(TRAININGS, {**BODY, "spec": spec})


def test_volumes_of_secrets_and_config_maps_are_files_of_the_job(api: Api) -> None:
    lay_down(api)
    lay_down(api, b"a: 1\n", "default/tuning/tuning.yaml")

    answer = volumes(
        api,
        secretVolume={"name": "v", "secret": "db", "mountPath": "/secrets/"},
        configMapVolume={"configMap": "tuning", "mountPath": "/app/own.yaml", "subPath": "tuning.yaml"},
    )

    assert answer.status_code == 202, answer.text
    assert "Warning" not in answer.headers
    with api.db.read() as session:
        (job,) = session.query(Job).all()
        mounts, sealed = job.spec["resource_config"]["mounts"], job.sealed_secrets
    hidden = {"type": "files", "required": False}
    assert mounts == [
        {"path": "/secrets", "files": [{"name": "url", "content": "***"}], **hidden},
        {
            "path": "/app/own.yaml",
            "files": [{"name": "tuning.yaml", "content": "***"}],
            "sub_path": "tuning.yaml",
            **hidden,
        },
    ]
    secrets = api.app.extensions["trainyard"].plane.box.open(sealed)
    assert secrets == {
        "resource_config.mounts.0.files.0.content": VALUE,
        "resource_config.mounts.1.files.0.content": "a: 1",
    }
    assert VALUE not in api.call("GET", f"/v1/jobs/{job.id}").text


@pytest.mark.parametrize(
    ("volume", "why"),
    [
        ({"secret": "db", "mountPath": "/etc/db"}, "/etc/db belongs to the system"),
        ({"secret": "missing", "mountPath": "/secrets"}, "the project default has no secret missing"),
    ],
)
def test_volume_that_can_not_be_mounted_has_a_warning(api: Api, volume: dict[str, Any], why: str) -> None:
    lay_down(api)

    answer = volumes(api, secretVolume={"name": "v", **volume})

    assert answer.status_code == 202, answer.text
    assert f"spec.storage.secretVolume.v: {why}" in answer.headers["Warning"]


def test_volume_without_a_secret_is_refused(api: Api) -> None:
    answer = volumes(api, secretVolume={"name": "v", "mountPath": "/secrets"})

    assert answer.status_code == 400
    assert "spec.storage.secretVolume.v: secret is required" in answer.text


def test_excluded_volume_is_none(api: Api) -> None:
    answer = volumes(api, secretVolume={"name": "v", "secret": "db", "mountPath": "/secrets", "exclude": True})

    assert answer.status_code == 202, answer.text
    assert "Warning" not in answer.headers


def pulling(api: Api, image: str, *secrets: dict[str, Any]) -> Any:
    spec = {"command": "true", "image": image, "imagePullSecrets": [*secrets]}
    return api.post(TRAININGS, {**BODY, "spec": spec})


def docker_logins(**passwords: str) -> bytes:
    """As `docker login` writes it; hosts with _ in place of dots."""
    users = {name.replace("_", "."): f"team:{password}".encode() for name, password in passwords.items()}
    return json.dumps({"auths": {name: {"auth": b64encode(pair).decode()} for name, pair in users.items()}}).encode()


@pytest.fixture
def in_images(database: Database, tmp_path: Path) -> Iterator[Api]:
    """An API whose operator has named registries."""
    made = Api(database, tmp_path, TRAINYARD_IMAGES_SOURCES="registry.example,docker.io")
    yield made
    made.close()


def test_pull_secrets_open_registries_of_images_and_reach_no_job(in_images: Api) -> None:
    api = in_images
    key = lay_down(api, docker_logins(registry_example="hunter-one", other_example="hunter-two"), "default/a/" + LOGINS)
    lay_down(api, docker_logins(registry_example="hunter-three"), "default/b/" + LOGINS)

    names: list[dict[str, Any]] = [*({"name": each} for each in "abc"), {"name": "d", "exclude": True}]
    answer = pulling(api, "registry.example/team/tool:v1", *names)

    assert answer.status_code == 202, answer.text
    b, c = (line for line in answer.headers.getlist("Warning") if "imagePullSecrets" in line)
    assert "spec.imagePullSecrets.b: it has no login that an image needs" in b
    assert "spec.imagePullSecrets.c: the project default has no secret c" in c
    with api.db.read() as session:
        (job,) = session.query(Job).all()
    login = {"registry": "registry.example", "username": "team", "password": "***"}
    assert job.spec["resource_config"]["registry_logins"] == [login]
    secrets = api.app.extensions["trainyard"].plane.box.open(job.sealed_secrets)
    assert secrets == {"resource_config.registry_logins.0.password": "hunter-one"}
    assert "hunter" not in api.call("GET", f"/v1/jobs/{job.id}").text
    for asked in (by_runai(api, "a", LOGINS), volumes(api, secretVolume={"secret": "a", "mountPath": "/secrets"})):
        assert "has logins of registries, which no job gets" in f"{asked.text} {asked.headers.get('Warning')}"
    for content, why in (
        (b'{"auths": {"registry.example": {"auth": "hunter"}}}', "registry.example, where registry.example/team/tool"),
        (b'{"auths": ["hunter"]}', "it has to be"),
    ):
        key.write_bytes(content)
        unreadable = pulling(api, "registry.example/team/tool:v1", {"name": "a"})
        assert unreadable.status_code == 400
        assert "spec.imagePullSecrets: the operator's file default/a/.dockerconfigjson" in unreadable.text
        assert why in unreadable.text
        assert "hunter" not in unreadable.text


def test_entries_without_a_password_do_not_keep_the_others_from_use(in_images: Api) -> None:
    api, team = in_images, b64encode(b"team:hunter").decode()
    entries = {"helped.example": {}, "token.example": {"auth": "", "identitytoken": "x"}, "odd.example": None}
    document = {"auths": {**entries, "registry.example": {"auth": team}, "registry.example/mine": {}}}
    lay_down(api, json.dumps(document).encode(), "default/a/" + LOGINS)

    assert pulling(api, "registry.example/team/tool:v1", {"name": "a"}).status_code == 202
    answer = pulling(api, "registry.example/mine/tool:v1", {"name": "a"})

    assert answer.status_code == 400
    assert "registry.example/mine, where registry.example/mine/tool:v1 lies, has no user and password" in answer.text


def test_logins_of_docker_hub_have_several_names(in_images: Api) -> None:
    api = in_images
    hub = b64encode(b"team:hunter").decode()
    lay_down(api, json.dumps({"auths": {"https://index.docker.io/v1/": {"auth": hub}}}).encode(), "default/a/" + LOGINS)

    answer = pulling(api, "team/tool:v1", {"name": "a"})

    assert answer.status_code == 202, answer.text
    with api.db.read() as session:
        (job,) = session.query(Job).all()
    assert job.spec["resource_config"]["registry_logins"][0]["registry"] == "docker.io"


def bucket(api: Api, **volume: Any) -> Any:
    return volumes(api, s3={"name": "v", "bucket": "corpora", "path": "/data", "accessKeySecret": "keys", **volume})


def test_bucket_of_a_workload_is_opened_by_the_projects_secret(api: Api) -> None:
    lay_down(api, b"AKIAEXAMPLE\n", "default/keys/AccessKeyId")
    lay_down(api, b"hunter-two\n", "default/keys/SecretKey")

    answer = bucket(api, url="https://s3.example.org")

    assert answer.status_code == 202, answer.text
    assert "Warning" not in answer.headers
    with api.db.read() as session:
        (job,) = session.query(Job).all()
    (source,) = job.spec["data_config"]["sources"]
    assert (source["path"], source["storage_options"]) == ("s3://corpora/.", {"endpoint_url": "https://s3.example.org"})
    assert source["credentials"] == {"access_key_id": "***", "secret_access_key": "***"}
    opened = api.app.extensions["trainyard"].plane.box.open(job.sealed_secrets)
    assert sorted(opened.values()) == ["AKIAEXAMPLE", "hunter-two"]
    assert "hunter" not in f"{answer.text}{api.call('GET', f'/v1/jobs/{job.id}').text}"


def test_bucket_without_its_secret_is_a_directory_of_the_operators_and_named(api: Api) -> None:
    lay_down(api, b"AKIAEXAMPLE", "default/keys/AccessKeyId")

    answer = bucket(api)

    assert answer.status_code == 202, answer.text
    assert "spec.storage.s3.v.accessKeySecret: the project default has no secret keys" in answer.headers["Warning"]
    with api.db.read() as session:
        (job,) = session.query(Job).all()
    assert [each["path"] for each in job.spec["data_config"]["sources"]] == ["s3/corpora"]


def test_service_that_jobs_may_not_reach_is_refused_at_the_volume(api: Api) -> None:
    lay_down(api, b"a", "default/keys/AccessKeyId")
    lay_down(api, b"b", "default/keys/SecretKey")

    answers = [
        bucket(api, url=url) for url in ("https://10.1.2.3", "http://s3.example.org", "https://s3.example.org/x")
    ]

    assert [answer.status_code for answer in answers] == [400, 400, 400]
    assert all("spec.storage" in answer.text for answer in answers)


def by_runtime(api: Api, *volumes: dict[str, Any], path: str = "/keys", **mount: Any) -> Any:
    """A job whose runtime mounts the volumes."""
    mounts = [
        {"name": each["name"], "mountPath": f"{path}{number or ''}", **mount} for number, each in enumerate(volumes)
    ]
    pod = {"containers": [{"name": "trainer", "volumeMounts": mounts}], "volumes": [*volumes]}
    template = {"spec": {"replicatedJobs": [{"template": {"spec": {"template": {"spec": pod}}}}]}}
    body = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "with-files"},
        "spec": {"template": template},
    }
    made = api.post("/apis/ome.io/v1beta1/namespaces/default/trainingruntimes", body)
    assert made.status_code == 201, made.text
    assert "volumes" not in made.headers.get("Warning", "")
    reference = {"name": "with-files", "kind": "TrainingRuntime"}
    return api.post(JOBS, manifest(trainer={"command": ["python", "train.py"]}, runtimeRef=reference))


def test_secrets_of_a_runtime_are_files_of_the_jobs_project(api: Api) -> None:
    lay_down(api)
    lay_down(api, b"echo", "default/run/go.sh")
    lay_down(api, b"left out", "default/run/other")
    items, wanted = [{"key": "go.sh", "path": "start"}], [{"key": "url", "path": "here"}]

    answer = by_runtime(
        api,
        {"name": "a", "secret": {"secretName": "db"}},
        {"name": "b", "configMap": {"name": "run", "defaultMode": 0o755, "items": items}},
        {"name": "c", "secret": {"secretName": "missing", "optional": True}},
        {
            "name": "d",
            "secret": {"secretName": "db", "optional": True, "items": [*wanted, {"key": "gone", "path": "x"}]},
        },
    )

    assert answer.status_code == 201, answer.text
    with api.db.read() as session:
        (job,) = session.query(Job).all()
    hidden = {"type": "files"}
    assert job.spec["resource_config"]["mounts"] == [
        {"path": "/keys", "files": [{"name": "url", "content": "***"}], **hidden},
        {"path": "/keys1", "files": [{"name": "start", "content": "***"}], "mode": "0755", **hidden},
        {"path": "/keys3", "files": [{"name": "here", "content": "***"}], **hidden},
    ]
    secrets = api.app.extensions["trainyard"].plane.box.open(job.sealed_secrets)
    assert set(secrets.values()) == {"echo", VALUE}
    assert VALUE not in api.call("GET", f"/v1/jobs/{job.id}").text


@pytest.mark.parametrize(
    ("volume", "mount", "why"),
    [
        ({"secretName": "missing"}, {}, "the project default has no secret missing"),
        ({"secretName": "missing", "optional": "false"}, {}, "the project default has no secret missing"),
        ({"secretName": "git-logins", "optional": True}, {}, "no job gets it"),
        ({"secretName": "db", "items": [{"key": "gone", "path": "x"}]}, {}, "names the key gone"),
        ({"secretName": "db"}, {"subPath": "gone"}, "names the key gone"),
    ],
)
def test_missing_secret_of_a_runtime_is_refused(api: Api, volume: dict[str, Any], mount: Any, why: str) -> None:
    lay_down(api)
    lay_down(api, place="default/git-logins/git.example.com")

    answer = by_runtime(api, {"name": "a", "secret": volume}, **mount)

    assert answer.status_code == 400
    assert "spec.runtimeRef" in answer.text
    assert why in answer.text
