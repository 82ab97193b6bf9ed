"""Errors and warnings name fields as the client's own vocabulary does."""

import json
from typing import Any

import pytest

from tests.builders.factories import make_node
from tests.builders.native_names import native_names_in
from tests.systems.apps import Api

_RUNAI, _MODELARTS, _CYXWIZ = "/api/v1/workloads/trainings", "/v2/default/training-jobs", "/compat/cyxwiz/v1/jobs"
_DISTRIBUTED = "/api/v1/workloads/distributed"
_OME = "/apis/ome.io/v1beta1/namespaces/default/trainingjobs"


def _runai(path: str = _RUNAI, **spec: Any) -> tuple[str, str, dict[str, Any]]:
    return "runai", path, {"name": "x", "projectId": 1, "clusterId": "c", "spec": {"command": "true", **spec}}


def _compute(**compute: Any) -> tuple[str, str, dict[str, Any]]:
    return _runai(compute={"gpuDevicesRequest": 1, **compute})


def _modelarts(spec: Any = None, **algorithm: Any) -> tuple[str, str, dict[str, Any]]:
    code = {"code_dir": "/team/src/", "boot_file": "/team/src/x.py"}
    given = {key: value for key, value in {**code, **algorithm}.items() if value is not None}
    body = {"kind": "job", "metadata": {"name": "x"}, "algorithm": given, "spec": spec or {}}
    return "modelarts", _MODELARTS, body


def _method(method: str, **values: str) -> tuple[str, str, dict[str, Any]]:
    parameters = [{"name": name, "value": value} for name, value in {"base_model": "/srv/m", **values}.items()]
    data = [{"name": "data", "remote": {"obs": {"obs_url": "/srv/data.jsonl"}}}]
    return _modelarts(id=method, code_dir=None, boot_file=None, parameters=parameters, inputs=data)


def _cyxwiz(model: Any = None, **config: Any) -> tuple[str, str, dict[str, Any]]:
    base = {"training_config": {"base_model": {"model_id": "/srv/m"}}}
    parts = json.dumps({**base, **model}) if model is not None else "/srv/m"
    whole = {"model_config": parts, "dataset_uri": "/srv/x.jsonl", "epochs": 1, "batch_size": 1, **config}
    return "cyxwiz", _CYXWIZ, whole


def _ome(trainer: Any = None, **spec: Any) -> tuple[str, str, dict[str, Any]]:
    given = {"runtimeRef": {"name": "pytorch-runtime"}, "trainer": {"command": ["true"], **(trainer or {})}, **spec}
    body = {"apiVersion": "ome.io/v1beta1", "kind": "TrainingJob", "metadata": {"name": "x"}, "spec": given}
    return "ome", _OME, body


def _resources(**resources: str) -> tuple[str, str, dict[str, Any]]:
    named = {name.replace("__", "/").replace("_", "."): value for name, value in resources.items()}
    return _ome({"resourcesPerNode": {"requests": named}})


VIOLATIONS = [
    _compute(gpuRequestType="portion", gpuPortionRequest=0.295),
    _compute(gpuRequestType="portion", gpuPortionRequest=0.5),
    _compute(gpuRequestType="memory", gpuMemoryRequest="400Gi"),
    _compute(gpuRequestType="migProfile", migProfile="1g.5gb"),
    _compute(gpuDevicesRequest=64),
    _compute(cpuCoreRequest=4000),
    _compute(cpuMemoryRequest="900Ti"),
    _runai(nodeType="dgx"),
    _runai(nodePools=["a", "b"]),
    _runai(backoffLimit=4000),
    _runai(workingDir="../x"),
    _runai(storage={"s3": [{"bucket": "A B", "path": "/x"}]}),
    _runai(command=" ".join(["x"] * 300)),
    _runai(environmentVariables=[{"name": "A B", "value": "x"}]),
    _runai(labels=[{"name": "!", "value": "x"}]),
    _runai(_DISTRIBUTED, numWorkers=9),
    _runai(completions=9, parallelism=9, compute={"gpuDevicesRequest": 64, "cpuCoreRequest": 4000}),
    _runai(completions=99, parallelism=99),
    _runai(
        _DISTRIBUTED,
        numWorkers=1,
        compute={"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.5},
    ),
    _modelarts(boot_file="/other/x.py"),
    _modelarts(command="x" * 9000),
    _modelarts(code_dir="/team/../src"),
    _modelarts({"resource": {"node_count": 9}}),
    _modelarts({"resource": {"pool_id": "dgx"}}),
    _modelarts({"resource": {"flavor_id": "none"}}),
    _modelarts(parameters=[{"name": "x", "value": "1"}] * 99),
    _modelarts(environments={"A": "x" * 5000}),
    _modelarts(outputs=[{"name": "o", "remote": {"obs": {"obs_url": "http://x.example/y"}}}]),
    _modelarts(inputs=[{"name": "i", "remote": {"obs": {"obs_url": "ftp://x"}}}]),
    _method("sft", framework="NONE"),
    _method("sft", framework="MEGATRON", learning_rate="x"),
    _method("dpo", framework="MEGATRON"),
    _method("rlhf", num_generations="3", max_prompt_length="90000"),
    _method("sft", base_model="/etc"),
    _method("lora", lora_r="0"),
    _method("sft", framework="CUSTOM"),
    _cyxwiz({"resource_config": {"gpu_fraction": 0.295}}),
    _cyxwiz({"resource_config": {"node_count": 9}}),
    _cyxwiz({"resource_config": {"gpu_count": 0}}),
    _cyxwiz({"output_config": {"push_to_hub": True}}),
    _cyxwiz({"data_config": {"validation_split": 1.0}}),
    _cyxwiz({"data_config": {"streaming": True}}),
    _cyxwiz({"output_config": {"merge_lora": True, "export_format": "adapter"}}),
    _cyxwiz({"data_config": {"shuffle_buffer": 9}}),
    _cyxwiz(min_memory_mb=10**9),
    _cyxwiz(required_device="CUDA"),
    _cyxwiz({"resource_config": {"required_node_labels": ["dgx"]}}),
    _cyxwiz(timeout_seconds=2**40),
    _ome({"numNodes": 9}),
    _ome({"numProcPerNode": "9999"}),
    _ome({"command": ["mpirun", "x"], "numNodes": 2}),
    _ome({"codeUri": "/other"}),
    _ome(datasets={"storageUri": "/etc/passwd"}),
    _ome({"env": [{"name": "A B"}]}),
    _resources(cpu="4000"),
    _resources(memory="900Ti"),
    _resources(nvidia_com__gpu="64"),
    _resources(**{"ephemeral-storage": "900Ti"}),
]


@pytest.mark.parametrize("device", ["cpu", "a100"])
def test_no_error_names_a_field_that_only_the_native_api_has(sqlite_api: Api, device: str) -> None:
    with sqlite_api.db.write() as session:
        make_node(session, device_type=device, memory_mb=80_000)

    refused = 0
    for vocabulary, path, body in VIOLATIONS:
        answer = sqlite_api.post(path, body)
        said = [answer.text if answer.status_code >= 400 else "", *answer.headers.getlist("Warning")]
        refused += answer.status_code >= 400
        assert answer.status_code < 500, (body, answer.text)
        assert native_names_in(" ".join(said), vocabulary) == set(), (body, said)
    assert refused > 40
