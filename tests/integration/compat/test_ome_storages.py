"""Secrets and parameters of OME's storages: what opens data, base model and output of a job, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Job
from tests.builders.factories import make_document
from tests.integration.compat.test_ome import JOBS, manifest, said
from tests.integration.compat.test_ome_models import MODELS, base_model, tuned
from tests.systems.apps import Api

KEYS = {"access_key_id": "AKIACANARY0000000001", "secret_access_key": "canary/of+the/secret/key"}
AWS = {"AWS_ACCESS_KEY_ID": KEYS["access_key_id"], "AWS_SECRET_ACCESS_KEY": KEYS["secret_access_key"]}
S3 = "s3://company/data/train.jsonl"
API_KEY = {
    "tenancy_ocid": "ocid1.tenancy.oc1..x",
    "user_ocid": "ocid1.user.oc1..x",
    "fingerprint": "1a:2b",
    "private_key": "-----BEGIN PRIVATE KEY-----",
}


def lay_down(api: Api, secret: str, values: dict[str, str], project: str = "default") -> None:
    directory = api.folder / "data/secrets" / project / secret
    directory.mkdir(parents=True)
    for name, value in values.items():
        (directory / name).write_text(f"{value}\n")


def job_on(api: Api, datasets: dict[str, Any], **spec: Any) -> Any:
    return api.post(JOBS, manifest(trainer={"command": ["true"]}, datasets=datasets, **spec))


def stored(api: Api, answer: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The document of the job that was made, and its secrets in the open."""
    uid = said(answer, 201)["metadata"]["uid"]
    with api.db.read() as session:
        job = session.get_one(Job, f"job-{uid}")
        return dict(job.spec), api.app.extensions["trainyard"].plane.box.open(job.sealed_secrets)


def warned(answer: Any) -> list[str]:
    return [line.split('"')[1].partition(":")[0] for line in answer.headers.getlist("Warning")]


SCHEMES = [
    (S3, KEYS, KEYS),
    (S3, AWS, KEYS),
    (S3, {**AWS, "AWS_SESSION_TOKEN": "canary-session"}, {**KEYS, "session_token": "canary-session"}),
    ("s3://company/d", {**KEYS, "region": "eu-west-1"}, {**KEYS, "region": "eu-west-1"}),
    (
        "oci://n/space/b/company/o/d",
        {**KEYS, "endpoint_url": "https://s3.example.com"},
        {**KEYS, "endpoint_url": "https://s3.example.com"},
    ),
    ("https://data.example.com/a.jsonl", {"token": "canary-token"}, {"token": "canary-token"}),
    (
        "https://data.example.com/a.jsonl",
        {"username": "canary-user", "password": "canary pass"},
        {"username": "canary-user", "password": "canary pass"},
    ),
    (
        "https://data.example.com/a.jsonl",
        {"https-host": "data.example.com", "headers": '{"X-Key": "canary-key"}'},
        {"headers": '{"X-Key": "canary-key"}'},
    ),
    ("hf://datasets/owner/data", {"token": "hf_canary"}, {"token": "hf_canary"}),
]


@pytest.mark.parametrize(("uri", "files", "credentials"), SCHEMES)
def test_secret_of_data_is_sealed_with_the_job(api: Api, uri: str, files: dict[str, str], credentials: Any) -> None:
    lay_down(api, "own", files)

    answer = job_on(api, {"storageUri": uri, "storageKey": "own"})

    document, secrets = stored(api, answer)
    assert secrets == {f"data_config.sources.0.credentials.{name}": value for name, value in credentials.items()}
    assert document["data_config"]["sources"][0]["credentials"] == dict.fromkeys(credentials, "***")
    assert warned(answer) == []


def test_each_place_of_a_job_has_its_own(api: Api) -> None:
    for name in ("of-data", "of-model", "of-output"):
        lay_down(api, name, {**KEYS, "access_key_id": f"AKIA-{name}"})
    storage = {"storageUri": "s3://models/tiny", "key": "of-model", "parameters": {"region": "eu-west-1"}}
    said(api.post(MODELS, base_model("ours", storage=storage)), 201)
    output = {
        "storageUri": "s3://results/x",
        "storageKey": "of-output",
        "parameters": {"region": "us-phoenix-1", "endpoint_url": "https://s3.example.com:9000"},
    }
    body = tuned("three", model="ours", datasets={"storageUri": S3, "storageKey": "of-data"})
    body["spec"]["modelConfig"]["outputModel"] = output

    document, secrets = stored(api, api.post(JOBS, body))

    assert {path: value for path, value in secrets.items() if path.endswith("access_key_id")} == {
        "data_config.sources.0.credentials.access_key_id": "AKIA-of-data",
        "training_config.base_model.credentials.access_key_id": "AKIA-of-model",
        "output_config.credentials.access_key_id": "AKIA-of-output",
    }
    assert document["training_config"]["base_model"]["storage_options"] == {"region": "eu-west-1"}
    assert document["output_config"]["storage_options"] == output["parameters"]
    assert "storage_options" not in document["data_config"]["sources"][0]


def test_namespace_and_region_of_oracle_name_the_service(api: Api) -> None:
    lay_down(api, "own", KEYS)
    data = {"storageUri": "oci://n/space/b/company/o/d", "storageKey": "own", "parameters": {"region": "us-phoenix-1"}}

    source = stored(api, job_on(api, data))[0]["data_config"]["sources"][0]

    assert source["path"] == "oci://company/d"
    assert source["storage_options"] == {"region": "us-phoenix-1", "namespace": "space"}


def test_no_secret_is_returned_or_written_in_clear(sqlite_api: Api, tmp_path: Path) -> None:
    lay_down(sqlite_api, "own", AWS)

    made = said(job_on(sqlite_api, {"storageUri": S3, "storageKey": "own"}), 201)

    job_id = f"job-{made['metadata']['uid']}"
    paths = (f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/events", f"{JOBS}/words", f"{JOBS}?watch=0")
    answers = [json.dumps(made), *(sqlite_api.call("GET", path).get_data(as_text=True) for path in paths)]
    files = [path for path in tmp_path.rglob("*") if path.is_file() and "secrets" not in path.parts]
    assert any(path.name.startswith("trainyard.db") for path in files)
    for value in KEYS.values():
        assert not [text for text in answers if value in text]
        assert not [path for path in files if value.encode() in path.read_bytes()]


REFUSED = [
    ("none", S3, {}, "storageKey", "has no secret none: its operator makes the directory default/none"),
    ("foreign", S3, {}, "storageKey", "the project default has no secret foreign"),
    ("half", S3, {}, "storageKey", "the secret half: s3:// takes access_key_id and secret_access_key; given"),
    ("token", S3, {}, "storageKey", "the secret token has none of the keys that this place takes"),
    ("api-key", "oci://n/space/b/company/o/d", {}, "storageKey", "is an API signing key; oci:// is reached by its S3"),
    ("https", "https://other.example.com/a.jsonl", {}, "storageKey", "is for another host than other.example.com"),
    ("token", "http://data.example.com/a.jsonl", {}, "storageKey", "would be readable on the way; use https://"),
    ("in-europe", S3, {"region": "us-east-1"}, "parameters.region", "but the credentials are for another one"),
    ("", S3, {"colour": "blue"}, "parameters.colour", "'colour'; known: endpoint_url, namespace, region"),
    ("", S3, {"namespace": "x", "region": "y"}, "parameters.namespace", "s3:// knows region, endpoint_url"),
    ("", S3, {"auth_type": "InstancePrincipal"}, "parameters.auth_type", "is not supported"),
    ("", S3, {"region": "US.evil/"}, "parameters.region", "region is of small letters, digits and dashes"),
    ("", S3, {"region": 7}, "parameters.region", "must be a non-empty string"),
    ("", S3, {"endpoint": "https://a", "endpoint_url": "https://b"}, "parameters.endpoint", "are the same"),
    ("", S3, {"endpoint_url": "http://10.0.0.1"}, "parameters.endpoint_url", "private address"),
    ("", S3, {"endpoint_url": "http://s3.example.com"}, "parameters.endpoint_url", "would be readable on the way"),
    ("", S3, {"endpoint_url": "https://u:p@s3.example.com"}, "parameters.endpoint_url", "has the form https://host"),
    ("", "https://data.example.com/a", {"region": "us-east-1"}, "parameters", "https:// has no options"),
]


@pytest.mark.parametrize(("secret", "uri", "parameters", "field", "rule"), REFUSED)
def test_what_can_not_open_the_place_is_refused_with_its_field(
    api: Api, secret: str, uri: str, parameters: dict[str, Any], field: str, rule: str
) -> None:
    lay_down(api, "foreign", KEYS, project="other")
    lay_down(api, "half", {"access_key_id": "AKIA"})
    lay_down(api, "token", {"token": "canary-token"})
    lay_down(api, "api-key", API_KEY)
    lay_down(api, "https", {"https-host": "data.example.com", "token": "canary-token"})
    lay_down(api, "in-europe", {**KEYS, "region": "eu-west-1"})
    storage = {"storageUri": uri, "parameters": parameters, **({"storageKey": secret} if secret else {})}

    refused = said(job_on(api, storage), 400)

    assert refused["message"].startswith(f"spec.datasets.{field}")
    assert rule in refused["message"]
    assert "canary" not in refused["message"]
    rehearsed = said(api.post(f"{JOBS}?dryRun=All", manifest(datasets=storage)), 400)
    assert rehearsed["message"] == refused["message"]


def test_parameters_of_the_output_are_checked_like_those_of_data(api: Api) -> None:
    output = {"storageUri": "s3://results/x", "parameters": {"regoin": "us-phoenix-1"}}

    refused = said(job_on(api, {"storageUri": "/srv/a.jsonl"}, modelConfig={"outputModel": output}), 400)

    assert refused["message"].startswith("spec.modelConfig.outputModel.parameters.regoin: unknown parameter 'regoin'")


def test_two_names_of_a_secret_are_refused(api: Api) -> None:
    refused = said(job_on(api, {"storageUri": S3, "storageKey": "one", "key": "two"}), 400)

    assert refused["message"].startswith("spec.datasets.key: is two, but storageKey is one")


@pytest.mark.parametrize("uri", ["oci://company/data", "/srv/data.jsonl", "pvc://claim/data"])
def test_place_on_the_disks_of_the_installation_is_opened_by_nothing(api: Api, uri: str) -> None:
    lay_down(api, "own", KEYS)
    data = {"storageUri": uri, "storageKey": "own", "parameters": {"region": "us-phoenix-1"}}

    answer = job_on(api, data)

    assert stored(api, answer)[1] == {}
    assert warned(answer) == ["spec.datasets.storageKey", "spec.datasets.parameters.region"]


def test_base_model_is_refused_for_parameters_that_no_job_could_use(api: Api) -> None:
    storage = {"storageUri": "s3://models/tiny", "parameters": {"colour": "blue"}}

    refused = said(api.post(MODELS, base_model("odd", storage=storage)), 400)

    assert refused["message"].startswith("spec.storage.parameters.colour: unknown parameter")


# ---- by the native document


def native(**source: Any) -> dict[str, Any]:
    return make_document(data_config={"sources": [{"path": S3, **source}]})


def test_retry_carries_the_credentials_over(api: Api) -> None:
    job_id = api.data(api.post("/v1/jobs", native(credentials=KEYS)), 201)["job_id"]
    with api.db.write() as session:
        session.get_one(Job, job_id).status = JobState.FAILED

    child = api.data(api.post(f"/v1/jobs/{job_id}/retry", {"from_start": True}), 201)["job_id"]

    with api.db.read() as session:
        job = session.get_one(Job, child)
        assert job.spec["data_config"]["sources"][0]["credentials"] == dict.fromkeys(KEYS, "***")
        assert api.app.extensions["trainyard"].plane.box.open(job.sealed_secrets) == {
            f"data_config.sources.0.credentials.{name}": value for name, value in KEYS.items()
        }


def test_masked_credentials_are_not_taken_for_real_ones(api: Api) -> None:
    problem = api.problem(api.post("/v1/jobs", native(credentials=dict.fromkeys(KEYS, "***"))), 400)

    assert "masks a secret" in json.dumps(problem)
