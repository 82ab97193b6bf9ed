"""ModelArts' words for training jobs, both ways; its flavors and units."""

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.compat.modelarts.from_native import TranslationData, job_of
from app.compat.modelarts.requests import CreateSchema
from app.compat.modelarts.status import NO_TROUBLE
from app.compat.modelarts.to_native import DIALECT, METHODS, Native, to_native
from app.domain.errors import BadSpec
from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.resources import Device, NodeCapacity
from app.http.request_body import validated
from app.models import Job
from app.schemas.jobs import SubmitJobSchema
from app.services.jobs.details import JobDetails

NODES = [
    NodeCapacity(
        name="n1",
        devices=tuple(Device(index=i, type="cpu") for i in range(3)),
        free=frozenset(),
        cpu_cores=8,
        ram_mb=32_768,
        storage_mb=81_920,
        arch="x86_64",
    ),
    NodeCapacity(
        name="n2",
        devices=tuple(Device(index=i, type="NVIDIA A100", memory_mb=81_920) for i in range(8)),
        free=frozenset(),
        cpu_cores=96,
        ram_mb=1_048_576,
        storage_mb=8_192_000,
        arch="aarch64",
    ),
]
# The example of the documentation, as it would be created.
ALGORITHM = {
    "code_dir": "obs://test/economic_test/py_minist/",
    "boot_file": "obs://test/economic_test/py_minist/minist_common.py",
    "inputs": [
        {
            "name": "data_url",
            "local_dir": "/home/ma-user/modelarts/inputs/data_url_0",
            "remote": {"obs": {"obs_url": "/test/data/py_minist/"}},
        }
    ],
    "outputs": [
        {
            "name": "train_url",
            "local_dir": "/home/ma-user/modelarts/outputs/train_url_0",
            "remote": {"obs": {"obs_url": "/test/train_output/"}},
        }
    ],
    "engine": {
        "engine_id": "pytorch-cp36-1.4.0-v2",
        "engine_name": "PyTorch",
        "engine_version": "PyTorch-1.4.0-python3.6-v2",
    },
}


CLUSTER = TranslationData(NODES, {"key-1": "ada"}, NO_TROUBLE, datetime(2026, 1, 2, tzinfo=UTC))


USUAL = "/home/ma-user/modelarts/user-job-dir"


def translated(algorithm: dict[str, Any], *, metadata: dict[str, Any] | None = None, **more: Any) -> Native:
    body = {"kind": "job", "metadata": {"name": "minist", **(metadata or {})}, "algorithm": algorithm, **more}
    return to_native(validated(CreateSchema(), body), NODES, lambda path: path.startswith("nfs/nas"))


def named(native: Native) -> list[str]:
    """The fields that it warns of."""
    return [line.partition(": ")[0] for line in native.warnings]


def details_of(native: Native, *, state: JobState = JobState.QUEUED, **columns: Any) -> JobDetails:
    spec = validated(SubmitJobSchema(), native.document).to_json()
    job = Job(
        id=new_id("job"),
        project="default",
        created_by="key-1",
        name=native.document["name"],
        labels={},
        foreign=native.foreign,
        priority=spec["scheduling_config"]["priority"],
        framework="CUSTOM",
        status=state,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        **{"attempt": 1, **columns},
    )
    shown: dict[str, Any] = {field.name: None for field in dataclasses.fields(JobDetails)}
    return JobDetails(**{**shown, "job": job, "stored": spec, "elapsed_seconds": 1.5})


def test_code_and_boot_file_become_a_script_that_receives_the_paths_of_its_channels():
    parameters = [
        {"name": "epochs", "value": "3"},
        {"name": "log", "value": "/home/ma-user/modelarts/outputs/train_url_0/log"},
    ]

    native = translated({**ALGORITHM, "parameters": parameters})

    training = native.document["training_config"]
    assert training["framework"] == {
        "type": "CUSTOM",
        "custom_code_dir": "obs://test/economic_test/py_minist/",
        "custom_script_path": "obs://test/economic_test/py_minist/minist_common.py",
        "custom_arguments": [
            "--epochs=3",
            "--log=$(TRAINYARD_OUTPUT_DIR)/log",
            "--data_url=$(TRAINYARD_DATA_0)",
            "--train_url=$(TRAINYARD_OUTPUT_DIR)",
        ],
    }
    assert native.document["data_config"] == {"sources": [{"path": "obs://test/data/py_minist/"}]}
    assert native.document["output_config"] == {"output_path": "obs://test/train_output"}
    assert named(native) == [f"algorithm.engine.engine_{part}" for part in ("id", "name", "version")]


@pytest.mark.parametrize("code", ["file-01a226e9-136a-75a0-9250-9070ca3c628b", f"git+https://a.example/c@{'0' * 40}"])
def test_bundle_is_code_as_it_is_named(code):
    framework = translated({"code_dir": code, "boot_file": "train.py"}).document["training_config"]["framework"]

    assert (framework["custom_code_dir"], framework["custom_script_path"]) == (code, "train.py")


def test_command_is_a_shells_with_its_arguments_quoted():
    algorithm = {
        "command": "python /home/ma-user/modelarts/user-job-dir/x.py",
        "code_dir": "/team/src/",
        "local_code_dir": "/home/ma-user/modelarts/user-job-dir",
        "engine": {"image_url": "team/image:1"},
        "parameters": [{"name": "note", "value": "it's two words"}],
        "inputs": [{"name": "data", "access_method": "env", "remote": {"obs": {"obs_url": "obs://b/x"}}}],
        "environments": {"MODE": "fast", "RANK": "7"},
    }

    native = translated(algorithm)

    training = native.document["training_config"]
    assert training["framework"]["custom_command"] == [
        "bash",
        "-c",
        "python $(TRAINYARD_RUN_DIR)/code/x.py '--note=it'\"'\"'s two words'",
    ]
    assert training["framework"]["custom_code_dir"] == "obs://team/src/"
    assert training["environment"]["data"] == "$(TRAINYARD_DATA_0)"
    assert training["environment"]["MODE"] == "fast"
    assert "RANK" not in training["environment"]
    assert named(native) == ["algorithm.environments.RANK", "algorithm.engine.image_url"]


def test_algorithm_id_names_a_built_in_method():
    algorithm = {
        "id": "lora",
        "parameters": [{"name": "base_model", "value": "org/base"}, {"name": "lora_r", "value": "8"}],
        "inputs": [{"name": "data", "remote": {"obs": {"obs_url": "obs://b/train.jsonl"}}}],
    }

    training = translated(algorithm).document["training_config"]

    assert (training["training_type"], training["base_model"]) == ("LORA", {"model_id": "org/base"})
    assert (training["framework"], training["hyperparameters"]) == ({"type": "HF_TRAINER"}, {"lora_r": "8"})


def test_several_outputs_are_folders_of_what_they_have_in_common():
    outputs = [
        {"name": "model", "remote": {"obs": {"obs_url": "obs://team/run/out/model/"}}},
        {"name": "logs", "remote": {"obs": {"obs_url": "/team/run/out/logs"}}},
    ]

    native = translated({**ALGORITHM, "inputs": [], "outputs": outputs})

    assert native.document["output_config"] == {"output_path": "obs://team/run/out"}
    assert native.document["training_config"]["framework"]["custom_arguments"] == [
        "--model=$(TRAINYARD_OUTPUT_DIR)/model",
        "--logs=$(TRAINYARD_OUTPUT_DIR)/logs",
    ]


def test_policies_about_faults_time_and_priority_are_translated():
    annotations = {
        "fault-tolerance/job-retry-num": "5",
        "fault-tolerance/job-unconditional-retry": "true",
        "fault-tolerance/hang-retry": "true",
        "jupyter-lab/enable": "true",
    }
    spec = {
        "resource": {"flavor_id": "trainyard.nvidia-a100.8", "node_count": 2, "pool_id": "pool-1"},
        "auto_stop": {"time_unit": "HOURS", "duration": 2},
        "schedule_policy": {"priority": 3, "preemptible": True, "required_affinity": {"affinity_type": "cabinet"}},
    }

    native = translated(ALGORITHM, metadata={"annotations": annotations}, spec=spec)

    training = native.document["training_config"]
    assert (training["max_retries"], training["framework"]["custom_retry_on_error"]) == (5, True)
    assert training["framework"]["distributed"] == {"config": {"num_proc_per_node": "1"}}
    assert native.document["resource_config"].pop("mounts")[0]["path"] == "/home/ma-user/modelarts/inputs/data_url_0"
    assert native.document["resource_config"] == {
        "gpu_count": 8,
        "gpu_type": "NVIDIA A100",
        "node_count": 2,
        "required_node_labels": ["pool-1"],
    }
    assert native.document["scheduling_config"] == {"priority": 8, "preemptible": True, "max_runtime_seconds": 7200}
    assert native.document["interactive_config"] == {"notebook": True}
    assert named(native)[3:] == ["spec.schedule_policy.required_affinity.affinity_type"]


def test_nothing_is_retried_unless_an_annotation_says_so():
    assert translated(ALGORITHM).document["training_config"]["max_retries"] == 0
    for name in ("job-unconditional-retry", "hang-retry"):
        always = {"annotations": {f"fault-tolerance/{name}": "true"}}
        assert translated(ALGORITHM, metadata=always).document["training_config"]["max_retries"] == 3


@pytest.mark.parametrize(("annotation", "asked"), [("false", False), ("true", None), (None, None)])
def test_hang_is_not_retried_where_the_annotation_says_so(annotation, asked):
    hang = {"fault-tolerance/hang-retry": annotation} if annotation else {}

    native = translated(ALGORITHM, metadata={"annotations": {"fault-tolerance/job-retry-num": "2", **hang}})

    training = native.document["training_config"]
    assert (training.get("retry_on_hang"), training["max_retries"]) == (asked, 2)


@pytest.mark.parametrize(
    ("algorithm", "more", "field"),
    [
        ({"boot_file": "obs://b/x.py"}, {}, "algorithm.code_dir"),
        ({"code_dir": "obs://b/x/"}, {}, "algorithm.boot_file"),
        ({"id": "magic"}, {}, "algorithm.id"),
        ({"id": "sft"}, {}, "algorithm.parameters.base_model"),
        ({**ALGORITHM, "subscription_id": "x"}, {}, "algorithm.subscription_id"),
        ({**ALGORITHM, "item_version_id": "x"}, {}, "algorithm.item_version_id"),
        ({**ALGORITHM, "autosearch_config_path": "obs://b/x.yaml"}, {}, "algorithm.autosearch_config_path"),
        (
            {**ALGORITHM, "inputs": [{"name": "d", "remote": {"dataset": {"id": "x"}}}]},
            {},
            "algorithm.inputs.0.remote.dataset",
        ),
        ({**ALGORITHM, "inputs": [{"name": "d", "remote": {}}]}, {}, "algorithm.inputs.0"),
        ({**ALGORITHM, "local_code_dir": "/not/home"}, {}, "algorithm.local_code_dir"),
        ({**ALGORITHM, "local_code_dir": "/home/../etc"}, {}, "algorithm.local_code_dir"),
        ({**ALGORITHM, "working_dir": "src"}, {}, "algorithm.working_dir"),
        (
            {"code_dir": "obs://b/x", "boot_file": "obs://b/y.py", "working_dir": f"{USUAL}/x"},
            {},
            "algorithm.boot_file",
        ),
        (
            ALGORITHM,
            {"metadata": {"annotations": {"mindstudio-insight/enable": "true"}}},
            "metadata.annotations.mindstudio-insight/enable",
        ),
        (ALGORITHM, {"endpoints": {"mindstudio_insight": {"url": "x"}}}, "endpoints.mindstudio_insight"),
        (
            ALGORITHM,
            {"metadata": {"annotations": {"fault-tolerance/hang-retry": "maybe"}}},
            "metadata.annotations.fault-tolerance/hang-retry",
        ),
        (
            ALGORITHM,
            {
                "spec": {
                    "schedule_policy": {"required_affinity": {"affinity_type": "cabinet", "affinity_group_size": 2}}
                }
            },
            "spec.schedule_policy.required_affinity.affinity_group_size",
        ),
        ({**ALGORITHM, "outputs": [{"name": "d", "remote": {}}]}, {}, "algorithm.outputs.0"),
        (
            {
                **ALGORITHM,
                "outputs": [{"name": n, "remote": {"obs": {"obs_url": f"obs://{n}/x"}}} for n in ("aa", "bb")],
            },
            {},
            "algorithm.outputs",
        ),
        ({**ALGORITHM, "parameters": [{"name": "a"}, {"name": "a"}]}, {}, "algorithm.parameters"),
        (ALGORITHM, {"spec": {"resource": {"flavor_id": "modelarts.vm.pnt1.large.eco"}}}, "spec.resource.flavor_id"),
        (
            ALGORITHM,
            {"metadata": {"annotations": {"fault-tolerance/job-retry-num": "0"}}},
            "metadata.annotations.fault-tolerance/job-retry-num",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_name(algorithm, more, field):
    with pytest.raises(BadSpec) as refused:
        translated(algorithm, **more)

    assert refused.value.field == field


WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8)


@pytest.mark.long
@given(
    parameters=st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), WORDS, max_size=4),
    environment=st.dictionaries(st.from_regex(r"X[A-Z]{1,6}", fullmatch=True), WORDS, max_size=3),
    priority=st.integers(1, 3),
)
def test_what_was_sent_is_returned(parameters, environment, priority):
    given_parameters = [{"name": name, "value": value} for name, value in parameters.items()]
    algorithm = {**ALGORITHM, "parameters": given_parameters, "environments": environment}
    native = translated(algorithm, spec={"schedule_policy": {"priority": priority}})

    found = job_of(details_of(native), [], CLUSTER)

    assert found["algorithm"]["parameters"] == given_parameters
    assert {name: value for each in found["algorithm"]["environments"] for name, value in each.items()} == environment
    assert found["spec"]["schedule_policy"]["priority"] == priority


@pytest.mark.parametrize("method", METHODS)
def test_native_job_is_shown_as_its_method(method):
    native = translated({"id": method, "parameters": [{"name": "base_model", "value": "org/m"}]})
    details = details_of(Native(native.document, {}, []))

    found = job_of(details, [], CLUSTER)["algorithm"]

    assert (found["id"], found["parameters"]) == (method, [{"name": "base_model", "value": "org/m"}])
    assert DIALECT not in details.job.foreign


def test_algorithm_is_named_as_its_method_and_what_brings_its_code_only_as_it_says_itself():
    def name_of(algorithm: dict[str, Any]) -> Any:
        return job_of(details_of(translated(algorithm)), [], CLUSTER)["algorithm"].get("name")

    assert name_of(ALGORITHM) is None
    assert name_of({**ALGORITHM, "name": "mine"}) == "mine"
    assert name_of({"id": "dpo", "parameters": [{"name": "base_model", "value": "org/m"}]}) == "DPO"


def test_user_is_shown_as_the_name_of_the_key():
    details = details_of(translated(ALGORITHM))

    assert job_of(details, [], CLUSTER)["metadata"]["user_name"] == "ada"
    assert job_of(details, [], CLUSTER._replace(names={}))["metadata"]["user_name"] == "key-1"


@pytest.mark.parametrize(
    "code", ["upload://file-01935b5f-7c00-7abc-8def-0123456789ab", f"git+https://h.org/a@{'0' * 40}"]
)
def test_script_of_code_that_is_unpacked_is_named_by_its_path_in_it(code: str) -> None:
    native = translated({"code_dir": code, "boot_file": "src/train.py"})

    framework = native.document["training_config"]["framework"]
    assert (framework["custom_code_dir"], framework["custom_script_path"]) == (code, "src/train.py")


def test_pip_requirements_of_the_code_are_installed_if_they_are_there() -> None:
    training = translated(ALGORITHM).document["training_config"]

    assert training["packages"] == {"requirements_file": "pip-requirements.txt", "requirements_file_required": False}


def test_jobs_in_an_image_and_without_code_have_no_packages() -> None:
    image = {**ALGORITHM, "engine": {"image_url": "team/image:1"}}
    body = validated(CreateSchema(), {"kind": "job", "metadata": {"name": "minist"}, "algorithm": image})

    in_image = to_native(body, NODES, lambda _: True, uses_images=True)

    assert "packages" not in translated({"command": "true"}).document["training_config"]
    assert "packages" not in in_image.document["training_config"]
    assert in_image.document["resource_config"]["image"]


def test_requirements_file_is_not_shown() -> None:
    assert "requirements" not in str(job_of(details_of(translated(ALGORITHM)), [], CLUSTER))
