"""OME's base models and fine-tuned weights, and jobs that its built-in trainer runs on them."""

import gzip
import json
from typing import Any

import pytest
import yaml

from app.compat.images import NO_REGISTRIES
from app.domain.lifecycle.states import JobState
from app.models import Job
from tests.builders.factories import make_job
from tests.integration.compat.test_ome import BASE, CORE, JOBS, RUNTIMES, manifest, patch, refused, runtime, said
from tests.systems.apps import Api

IN_DEFAULT = f"{BASE}/namespaces/default"
MODELS, WEIGHTS = f"{IN_DEFAULT}/basemodels", f"{IN_DEFAULT}/finetunedweights"
# The documentation's complete manifests that ask for no tuning, or with what they ask of it left out; word for word.
SIMPLE = """
apiVersion: ome.io/v1beta1
kind: TrainingJob
metadata:
  name: simple-finetune
spec:
  runtimeRef:
    name: pytorch-runtime
  trainer:
    image: "pytorch/pytorch:latest"
    numNodes: 1
    numProcPerNode: "1"
    resourcesPerNode:
      requests:
        nvidia.com/gpu: "1"
  modelConfig:
    inputModel: "bert-base"
    outputModel:
      storageUri: "oci://bucket/bert-finetuned"
  datasets:
    storageUri: "oci://bucket/classification-data"
"""
MULTI_NODE = """
apiVersion: ome.io/v1beta1
kind: TrainingJob
metadata:
  name: large-model-training
spec:
  runtimeRef:
    name: pytorch-distributed-runtime
  trainer:
    numNodes: 8
    numProcPerNode: "gpu"
    resourcesPerNode:
      requests:
        nvidia.com/gpu: "4"
        memory: "64Gi"
  modelConfig:
    inputModel: "llama-70b"
    outputModel:
      storageUri: "oci://bucket/llama-70b-custom"
  datasets:
    storageUri: "oci://bucket/large-dataset"
  hyperParameterTuningConfig:
    method: "bayes"
    maxTrials: 50
    metric:
      name: "perplexity"
      goal: "minimize"
"""


def base_model(name: str = "tiny", uri: str = "/srv/models/tiny", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "ome.io/v1beta1",
        "kind": "BaseModel",
        "metadata": {"name": name},
        "spec": {"storage": {"storageUri": uri}, **spec},
    }


def tuned(name: str = "tuned", *, model: str = "tiny", trainer: dict[str, Any] | None = None, **spec: Any) -> Any:
    """Without a command: the built-in trainer's."""
    parts = {"modelConfig": {"inputModel": model}, "datasets": {"storageUri": "/srv/data.jsonl"}, **spec}
    return manifest(name, trainer=trainer or {}, **parts)


def native(api: Api, made: Any) -> Any:
    return api.get(f"/v1/jobs/job-{made['metadata']['uid']}")


def test_simple_example_of_the_documentation_is_trained_by_the_built_in_trainer(api: Api) -> None:
    answer = api.post(JOBS, yaml.safe_load(SIMPLE))

    found = native(api, said(answer, 201))
    training = found["training_config"]
    assert (training["framework"]["type"], training["training_type"]) == ("HF_TRAINER", "SFT")
    assert training["base_model"]["model_id"] == "bert-base"
    assert found["data_config"]["sources"][0]["path"] == "oci://bucket/classification-data"
    assert found["output_config"]["output_path"] == "oci://bucket/bert-finetuned"
    assert found["resource_config"]["gpu_count"] == 1
    assert answer.headers.getlist("Warning") == [f'299 - "spec.trainer.image: {NO_REGISTRIES}"']


def test_runtime_says_how_the_built_in_trainer_trains(api: Api) -> None:
    body = runtime("lora", "TrainingRuntime")
    body["spec"]["trainer"] = {"trainingType": "LORA", "hyperparameters": {"learning_rate": "2e-4"}, "batchSize": 2}
    said(api.post(f"{IN_DEFAULT}/trainingruntimes", body), 201)
    reference = {"name": "lora", "kind": "TrainingRuntime"}

    made = said(api.post(JOBS, tuned(trainer={"args": ["--max-steps", "7", "--lora_r=4"]}, runtimeRef=reference)), 201)

    found = native(api, made)
    assert found["training_config"]["training_type"] == "LORA"
    assert found["training_config"]["hyperparameters"] == {"learning_rate": "2e-4", "max_steps": "7", "lora_r": "4"}
    assert found["data_config"]["batch_size"] == 2
    unknown = said(api.post(JOBS, tuned("other", trainer={"args": ["--colour=blue"]}, runtimeRef=reference)), 400)
    assert unknown["details"]["causes"][0]["field"].startswith("spec.trainer.args"), unknown


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"datasets": {}}, "spec.datasets.storageUri"),
        ({"modelConfig": {}}, "spec.modelConfig.inputModel"),
        ({"trainer": {"args": ["--lr", "1", "two"]}}, "spec.trainer.args"),
        ({"trainer": {"codeUri": "/srv/code"}}, "spec.trainer.codeUri"),
        ({"runtimeRef": {"name": "mpi-runtime"}}, "spec.trainer.command"),
        (
            {"trainer": {"numProcPerNode": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}}},
            "spec.trainer.numProcPerNode",
        ),
        (
            {"datasets": {"storageUri": "/srv/a.jsonl.zst", "parameters": {"compression": "gzip"}}},
            "spec.datasets.parameters.compression",
        ),
        ({"datasets": {"storageUri": "/srv/a", "parameters": {"format": "colour"}}}, "spec.datasets.parameters.format"),
        ({"trainer": {"resourcesPerNode": {"requests": {"vendor.com/x": 1}}}}, "spec.trainer.resourcesPerNode"),
        (
            {"trainer": {"resourcesPerNode": {"requests": {"nvidia.com/gpu": 1, "amd.com/gpu": 1}}}},
            "spec.trainer.resourcesPerNode",
        ),
        ({"trainer": {"resourcesPerNode": {"claims": [{"name": "x"}]}}}, "spec.trainer.resourcesPerNode.claims"),
    ],
)
def test_what_the_built_in_trainer_cannot_do_is_refused_by_its_field(api: Api, changes: Any, field: str) -> None:
    problem = said(api.post(JOBS, tuned(**changes)), 400)

    assert problem["details"]["causes"][0]["field"].startswith(field), problem


def test_data_has_the_format_and_resources_are_those_that_are_asked_for(api: Api) -> None:
    datasets = {"storageUri": "/srv/data.gz", "parameters": {"format": "JSONL", "compression": "gzip"}}
    trainer = {"numProcPerNode": 2, "resourcesPerNode": {"requests": {"ephemeral-storage": "2Gi", "cpu": 1}}}

    found = native(api, said(api.post(JOBS, tuned(trainer=trainer, datasets=datasets)), 201))

    source = found["data_config"]["sources"][0]
    assert (source["path"], source["format"]) == ("/srv/data.gz", "jsonl")
    resources = found["resource_config"]
    assert (resources["gpu_count"], resources["device_type"], resources["storage_min_mb"]) == (2, "cpu", 2048)


def test_base_model_lies_for_a_command_where_it_says(api: Api) -> None:
    storage = {"storageUri": "/srv/tiny", "path": "/mnt/models/tiny"}
    said(api.post(MODELS, base_model(storage=storage)), 201)
    command = {"command": ["python", "-c", "pass"]}

    found = native(api, said(api.post(JOBS, tuned(trainer=command)), 201))
    built_in = api.post(JOBS, tuned("built-in"))

    (mount,) = found["resource_config"]["mounts"]
    assert (mount["type"], mount["path"], mount["required"]) == ("model", "/mnt/models/tiny", False)
    assert [line.split('"')[1].partition(":")[0] for line in built_in.headers.getlist("Warning")] == [
        "spec.modelConfig.inputModel"
    ]
    datasets = {"storageUri": "/srv/data.jsonl", "path": "/mnt/models/tiny/"}
    problem = said(api.post(JOBS, tuned("two", trainer=command, datasets=datasets)), 400)
    assert problem["details"]["causes"][0]["field"] == "spec.datasets.path"


def test_path_of_no_data_has_a_warning(api: Api) -> None:
    answer = api.post(JOBS, manifest("without", datasets={"path": "/mnt/data"}))

    assert said(answer, 201)
    assert 'spec.datasets.path: there is no storageUri"' in answer.headers.getlist("Warning")[-1]


def test_base_model_at_a_path_of_the_system_has_a_warning(api: Api) -> None:
    answer = api.post(MODELS, base_model(storage={"storageUri": "/srv/tiny", "path": "/usr/lib/tiny"}))

    assert said(answer, 201)
    (line,) = answer.headers.getlist("Warning")
    assert "spec.storage.path: /usr/lib/tiny belongs to the system" in line


def test_base_models_are_made_changed_referred_to_and_deleted(api: Api) -> None:
    made = said(api.post(MODELS, base_model(vendor="us", modelFormat={"name": "safetensors"})), 201)
    changed = said(patch(api, f"{MODELS}/tiny", "merge-patch+json", {"spec": {"vendor": "them"}}))
    applied = patch(api, f"{MODELS}/hub", "apply-patch+yaml", base_model("hub", "hf://owner/name"))

    assert (made["kind"], made["metadata"]["namespace"], changed["spec"]["vendor"]) == ("BaseModel", "default", "them")
    assert said(applied, 201)["spec"]["storage"]["storageUri"] == "hf://owner/name"
    refused(api.post(MODELS, base_model()), 409, "AlreadyExists")
    assert [each["metadata"]["name"] for each in said(api.call("GET", MODELS))["items"]] == ["hub", "tiny"]
    job = native(api, said(api.post(JOBS, tuned()), 201))
    assert job["training_config"]["base_model"]["model_id"] == "/srv/models/tiny"
    said(patch(api, f"{MODELS}/tiny", "merge-patch+json", {"spec": {"disabled": True}}))
    problem = refused(api.post(JOBS, tuned("second")), 400, "BadRequest")
    assert problem["message"] == "spec.modelConfig.inputModel: the base model tiny is disabled"
    assert said(api.call("DELETE", f"{MODELS}/tiny"))["status"] == "Success"
    refused(api.call("GET", f"{MODELS}/tiny"), 404, "NotFound")
    kept = native(api, said(api.call("GET", f"{JOBS}/tuned")))
    assert kept["training_config"]["base_model"]["model_id"] == "/srv/models/tiny", "the job keeps what it took"


def test_models_that_jobs_name_are_no_base_models(api: Api) -> None:
    said(api.post(JOBS, tuned(model="no-such-model")), 201)

    assert said(api.call("GET", MODELS))["items"] == []
    refused(api.call("GET", f"{MODELS}/no-such-model"), 404, "NotFound")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"storage": {}}, "spec.storage.storageUri"),
        ({"storage": {"storageUri": None}}, "spec.storage.storageUri"),
        ({"storage": {"storageUri": "vendor://x"}}, "spec.storage.storageUri"),
        ({"storage": {"storageUri": "/etc"}}, "spec.storage.storageUri"),
        ({"storage": {"storageUri": "scaidrive://team/model"}}, "spec.storage.storageUri"),
    ],
)
def test_base_model_that_no_job_could_begin_with_is_refused(api: Api, spec: Any, field: str) -> None:
    problem = said(api.post(MODELS, base_model(**spec)), 400)

    assert problem["details"]["causes"][0]["field"] == field


def test_weights_are_those_of_jobs_that_succeeded_with_a_model(api: Api) -> None:
    with api.db.write() as session:
        good = make_job(session, state=JobState.COMPLETED, report={"model_uri": "oci://bucket/tuned"}).id
        without = make_job(session, state=JobState.COMPLETED, report={"model_uri": ""}).id
        failed = make_job(session, state=JobState.FAILED, report={"model_uri": "oci://bucket/half"}).id
        running = make_job(session, state=JobState.TRAINING).id

    weights = said(api.call("GET", WEIGHTS))["items"]

    assert [each["metadata"]["name"] for each in weights] == [good]
    assert said(api.call("GET", f"{WEIGHTS}/{good}")) == weights[0]
    assert weights[0]["spec"]["storage"] == {"storageUri": "oci://bucket/tuned"}
    assert (weights[0]["status"]["state"], weights[0]["spec"]["trainingJobRef"]["name"]) == ("Ready", good)
    for name in (without, failed, running):
        refused(api.call("GET", f"{WEIGHTS}/{name}"), 404, "NotFound")


@pytest.mark.parametrize(
    ("state", "counts"),
    [
        (JobState.QUEUED, {"ready": 0, "active": 2, "succeeded": 0, "failed": 0, "suspended": 0}),
        (JobState.TRAINING, {"ready": 2, "active": 2, "succeeded": 0, "failed": 0, "suspended": 0}),
        (JobState.PAUSED, {"ready": 0, "active": 0, "succeeded": 0, "failed": 0, "suspended": 2}),
        (JobState.COMPLETED, {"ready": 0, "active": 0, "succeeded": 2, "failed": 0, "suspended": 0}),
        (JobState.CANCELLED, {"ready": 0, "active": 0, "succeeded": 0, "failed": 2, "suspended": 0}),
    ],
)
def test_status_counts_the_pods(api: Api, state: JobState, counts: dict[str, int]) -> None:
    body = manifest(trainer={"command": ["true"], "numProcPerNode": 2})
    job_id = f"job-{said(api.post(JOBS, body), 201)['metadata']['uid']}"
    with api.db.write() as session:
        session.get_one(Job, job_id).status = state

    (status,) = said(api.call("GET", f"{JOBS}/words"))["status"]["jobsStatus"]

    assert status == {"name": "words-job-0", **counts}


def test_job_that_is_created_suspended_is_never_queued(api: Api) -> None:
    answer = api.post(JOBS, manifest(suspend=True, compartmentID="ocid1"))

    made = said(answer, 201)
    job_id = f"job-{made['metadata']['uid']}"
    assert made["spec"]["suspend"] is True
    assert made["status"]["jobsStatus"][0]["suspended"] == 1
    assert answer.headers.getlist("Warning") == [
        '299 - "spec.compartmentID: compartments are not supported; a namespace is a project"'
    ]
    events = api.get(f"/v1/jobs/{job_id}/events?order_by=created_at")["events"]
    assert [event["to_status"] for event in events if event["to_status"]] == ["PENDING", "PAUSED"]
    resumed = said(patch(api, f"{JOBS}/words", "merge-patch+json", {"spec": {"suspend": False}}))
    assert resumed["spec"]["suspend"] is False


def test_warnings_come_with_dry_runs_too(api: Api) -> None:
    trainer = {
        "command": ["true"],
        "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0,1"}],
        "resourcesPerNode": {"limits": {"memory": "1Gi"}},
    }
    datasets = {"storageUri": "/srv/x.gz", "storageKey": "k", "parameters": {"compression": "gzip"}}
    output = {"storageUri": "/srv/out", "parameters": {"region": "us-phoenix-1"}}
    body = manifest(trainer=trainer, datasets=datasets, modelConfig={"outputModel": output})
    body["metadata"]["finalizers"] = ["x/y"]

    rehearsed = api.post(f"{JOBS}?dryRun=All", body)
    made = api.post(JOBS, body)

    assert (rehearsed.status_code, made.status_code) == (201, 201), made.text
    assert rehearsed.headers.getlist("Warning") == made.headers.getlist("Warning")
    assert {line.split('"')[1].partition(":")[0] for line in made.headers.getlist("Warning")} == {
        "metadata.finalizers",
        "spec.trainer.env.CUDA_VISIBLE_DEVICES",
        "spec.datasets.storageKey",
        "spec.datasets.parameters.compression",
        "spec.modelConfig.outputModel.parameters.region",
    }


def test_parts_of_a_runtime_without_effect_are_named(api: Api) -> None:
    container = {"name": "trainer", "image": "x", "command": ["true"], "volumeMounts": [{"name": "v"}]}
    pod = {"containers": [container, {"name": "side", "image": "y"}], "nodeSelector": {"a": "b"}}
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    body = runtime("team", torch={"elasticPolicy": {"minNodes": 1}})
    body["spec"] |= {"podGroupPolicy": {"coscheduling": {}}, "template": {"spec": {"replicatedJobs": [job]}}}

    answer = api.post(RUNTIMES, body)

    said(answer, 201)
    of_pod = "spec.template.spec.replicatedJobs.0.template.spec.template.spec"
    assert [line.split('"')[1].partition(":")[0] for line in answer.headers.getlist("Warning")] == [
        "spec.mlPolicy.torch.elasticPolicy",
        "spec.podGroupPolicy",
        f"{of_pod}.containers.0.volumeMounts.0",
        f"{of_pod}.nodeSelector",
        f"{of_pod}.containers.1",
    ]


@pytest.mark.parametrize(
    "template",
    [
        {"spec": [1]},
        {"spec": {"replicatedJobs": {"a": 1}}},
        {"spec": {"replicatedJobs": [1, None]}},
        {"spec": {"replicatedJobs": [{"template": {"spec": {"template": {"spec": {"containers": 5}}}}}]}},
        {"spec": {"replicatedJobs": [{"template": {"spec": {"template": {"spec": {"containers": [1, {}]}}}}}]}},
        {"spec": {"replicatedJobs": [{"template": {"spec": {"template": {"spec": "x"}}}}]}},
        {"spec": None},
    ],
)
def test_template_of_any_form_makes_no_server_error(api: Api, template: Any) -> None:
    body = runtime("odd")
    body["spec"]["template"] = template

    said(api.post(RUNTIMES, body), 201)
    made = said(api.post(JOBS, manifest(runtimeRef={"name": "odd"})), 201)

    assert made["spec"]["runtimeRef"]["name"] == "odd"


def test_labels_and_annotations_of_the_spec_are_those_of_its_pods(api: Api) -> None:
    said(api.post(JOBS, manifest(labels={"stage": "dev"}, annotations={"owner": "me"})), 201)

    (pod,) = said(api.call("GET", f"{CORE}/pods?labelSelector=stage%3Ddev"))["items"]

    assert pod["metadata"]["labels"] == {"stage": "dev", "job-name": "words", "training.ome.io/rank": "0"}
    assert pod["metadata"]["annotations"] == {"owner": "me"}


def test_body_without_a_content_type_is_json(api: Api) -> None:
    made = api.call("POST", JOBS, data=json.dumps(manifest()))
    deleted = api.call("DELETE", f"{JOBS}/words", data=json.dumps({"dryRun": ["All"]}))

    assert (said(made, 201)["metadata"]["name"], said(deleted)["status"]) == ("words", "Success")
    refused(api.call("PATCH", f"{JOBS}/words", data=b"{}"), 415, "UnsupportedMediaType")
    refused(api.call("POST", JOBS, data=gzip.compress(b"{}")), 400, "BadRequest")
