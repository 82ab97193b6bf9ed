"""OME's words for training jobs, both ways: the examples of its documentation, and what is wrong with others."""

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.compat.launchers import parse_launcher
from app.compat.ome.fields import FIELDS, MODEL_FIELDS, RUNTIME_FIELDS
from app.compat.ome.from_native import STATES, events_of, object_of, pods_of, rank_of
from app.compat.ome.manifests import BaseModelSchema, JobSpecSchema, RuntimeSchema, RuntimeSpecSchema, TrainingJobSchema
from app.compat.ome.places import place
from app.compat.ome.runtimes import BUILT_IN
from app.compat.ome.to_native import DIALECT, Native, to_native, trainer_of, without_secrets
from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.domain.spec.secrets import is_secret
from app.http.errors import BadShape
from app.http.request_body import validated
from app.models import Attempt, Job, JobEvent
from app.schemas.jobs import SubmitJobSchema
from app.schemas.spec.field_verdicts import field_paths
from app.services.jobs.details import JobDetails

# The first example of the documentation, word for word.
LLAMA = yaml.safe_load("""
  runtimeRef:
    name: pytorch-runtime
    kind: ClusterTrainingRuntime
  trainer:
    image: "my-training-image:latest"
    command: ["python", "train.py"]
    args: ["--model", "llama-7b", "--epochs", "10"]
    numNodes: 4
    numProcPerNode: "2"
    resourcesPerNode:
      requests:
        cpu: "8"
        memory: "32Gi"
        nvidia.com/gpu: "2"
      limits:
        cpu: "8"
        memory: "32Gi"
        nvidia.com/gpu: "2"
  modelConfig:
    inputModel: "llama-7b-base"
    outputModel:
      storageUri: "oci://my-bucket/models/llama-7b-finetuned"
  datasets:
    storageUri: "oci://my-bucket/datasets/instruction-data"
""")
TUNING = yaml.safe_load("""
    method: "random"
    maxTrials: 10
    metric:
      name: "accuracy"
      goal: "maximize"
    parameters:
      learning_rate:
        type: "double"
        min: 0.0001
        max: 0.01
      batch_size:
        type: "int"
        values: [8, 16, 32]
""")


def translated(spec: dict[str, Any], runtime: dict[str, Any] | None = None) -> Native:
    found = validated(JobSpecSchema(), spec)
    reference = found["runtimeRef"]["name"]
    return to_native("llama", found, BUILT_IN[reference] if runtime is None else runtime, {"team": "nlp", "a/b": "c"})


def training(trainer: dict[str, Any], *, runtime: str = "pytorch-runtime", **more: Any) -> Native:
    return translated({"runtimeRef": {"name": runtime}, "trainer": trainer, **more})


def details_of(native: Native, spec: dict[str, Any], state: JobState = JobState.QUEUED, **columns: Any) -> JobDetails:
    document = validated(SubmitJobSchema(), native.document).to_json()
    at = datetime(2026, 1, 1, tzinfo=UTC)
    foreign = {
        DIALECT: {
            "name": "llama",
            "labels": {},
            "annotations": {},
            "spec": without_secrets(validated(JobSpecSchema(), spec)),
        }
    }
    values: dict[str, Any] = {
        "node_names": [],
        "attempt": 0,
        "retries_used": 0,
        "version": 3,
        "status_reason": "",
        **columns,
    }
    job = Job(
        id=new_id("job"),
        project="default",
        name="llama",
        labels={},
        foreign=foreign,
        alias="ome:default:llama",
        status=state,
        created_at=at,
        updated_at=at,
        **values,
    )
    unset: dict[str, Any] = {field.name: None for field in dataclasses.fields(JobDetails)}
    return JobDetails(**{**unset, "job": job, "stored": document})


def test_first_example_of_the_documentation_is_a_gang_of_custom_ranks():
    native = translated(LLAMA)

    limits = {"cpu_cores": 8.0, "ram_mb": 32768, "required": False}
    assert native.document == {
        "name": "llama",
        "labels": {"team": "nlp", "a/b": "c"},
        "training_config": {
            "training_type": "SFT",
            "base_model": {"model_id": "llama-7b-base"},
            "framework": {
                "type": "CUSTOM",
                "custom_command": ["python", "train.py", "--model", "llama-7b", "--epochs", "10"],
                "distributed": {"config": {"num_proc_per_node": "2"}},
            },
            "environment": native.document["training_config"]["environment"],
        },
        "data_config": {"sources": [{"path": "oci://my-bucket/datasets/instruction-data"}]},
        "resource_config": {"gpu_count": 2, "cpu_cores": 8, "ram_min_mb": 32768, "limits": limits, "node_count": 4},
        "output_config": {"output_path": "oci://my-bucket/models/llama-7b-finetuned"},
    }
    environment = native.document["training_config"]["environment"]
    assert environment["MODEL_PATH"] == "$(TRAINYARD_MODEL)"
    assert environment["PET_NODE_RANK"] == "$(NODE_RANK)"
    assert [line.partition(":")[0] for line in native.warnings] == ["spec.trainer.image"]


@pytest.mark.parametrize(
    ("runtime", "trainer", "command", "config", "nodes"),
    [
        (
            "pytorch-runtime",
            {
                "numProcPerNode": "gpu",
                "command": ["python"],
                "args": ["-m", "torch.distributed.launch", "--nproc_per_node=2", "train.py"],
            },
            ["python", "train.py"],
            {"distributed": {"config": {"num_proc_per_node": "gpu"}}},
            1,
        ),
        (
            "mpi-runtime",
            {"numProcPerNode": 4, "command": ["mpirun"], "args": ["-np", "8", "python", "train.py"]},
            ["python", "train.py"],
            {"distributed": {"config": {"num_proc_per_node": "4"}}, "config": {"launcher": "mpi"}},
            2,
        ),
        (
            "pytorch-runtime",
            {"command": ["torchrun", "--nproc_per_node=3", "--nnodes", "2", "-m", "team.train", "x"]},
            ["python", "-m", "team.train", "x"],
            {"distributed": {"config": {"num_proc_per_node": "3"}}},
            2,
        ),
        (
            "pytorch-runtime",
            {"command": ["true"], "numNodes": 2},
            ["true"],
            {"distributed": {"config": {"num_proc_per_node": "auto"}}},
            2,
        ),
    ],
)
def test_ranks_are_started_by_the_platform(runtime, trainer, command, config, nodes):
    document = training(trainer, runtime=runtime).document

    assert document["training_config"]["framework"] == {"type": "CUSTOM", "custom_command": command, **config}
    assert document["resource_config"]["node_count"] == nodes


@pytest.mark.parametrize(
    ("words", "rest", "per_node"),
    [
        (["torchrun", "--standalone", "--no-python", "bash", "x.sh"], ["bash", "x.sh"], ""),
        (
            ["/usr/bin/mpirun", "--allow-run-as-root", "-x", "A", "-mca", "a", "b", "-N", "2", "./a.out"],
            ["env", "OMPI_MCA_a=b", "./a.out"],
            "2",
        ),
        (["sh", "-c", "mpirun -N 2 ./a.out $X"], ["sh", "-c", "./a.out $X"], "2"),
        (["python3", "-m", "torch.distributed.run", "--nproc-per-node", "auto", "t.py"], ["python3", "t.py"], "auto"),
        (["python", "-m", "team.train"], ["python", "-m", "team.train"], ""),
        ([], [], ""),
    ],
)
def test_launchers_are_stripped_from_commands(words, rest, per_node):
    found = parse_launcher(words, "spec.trainer.command", {})

    assert (found.command, found.per_node) == (rest, per_node)


def test_runtime_says_what_the_job_leaves_open():
    container = {
        "name": "trainer",
        "image": "x",
        "command": ["python", "base.py"],
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}],
        "resources": {"requests": {"nvidia.com/gpu": 2}},
    }
    job = {"name": "node", "template": {"spec": {"template": {"spec": {"containers": [{"name": "side"}, container]}}}}}
    runtime = validated(
        RuntimeSpecSchema(),
        {"mlPolicy": {"numNodes": 3, "torch": {"numProcPerNode": 2}}, "template": {"spec": {"replicatedJobs": [job]}}},
    )

    native = translated({"runtimeRef": {"name": "team"}, "trainer": {"env": [{"name": "B", "value": "2"}]}}, runtime)

    training_config = native.document["training_config"]
    assert training_config["framework"]["custom_command"] == ["python", "base.py"]
    assert training_config["framework"]["distributed"] == {"config": {"num_proc_per_node": "2"}}
    assert (training_config["environment"]["A"], training_config["environment"]["B"]) == ("1", "2")
    assert native.document["resource_config"] == {"gpu_count": 2, "node_count": 3}
    assert trainer_of({"template": {"spec": {"replicatedJobs": "none"}}}) == {}
    container["command"] = "python base.py"
    with pytest.raises(BadShape):
        trainer_of({"template": {"spec": {"replicatedJobs": [job]}}})


@pytest.mark.parametrize(
    ("uri", "is_place"),
    [
        ("oci://n/tenancy/b/bucket/o/a/b.jsonl", "oci://bucket/a/b.jsonl"),
        ("pvc://claim/path", "pvc://claim/path"),
        ("https://example.org/x", "https://example.org/x"),
    ],
)
def test_places_are_those_of_native_jobs(uri, is_place):
    assert place(uri) == is_place


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"maxTrials": None}, "maxTrials"),
        ({"parameters": {"x": {"type": "colour"}}}, "parameters.x.type"),
        ({"parameters": {"x": {"type": "int", "min": 1}}}, "parameters.x.max"),
        ({"parameters": {"x": {"type": "int", "min": 3, "max": 1}}}, "parameters.x.min"),
        ({"parameters": {"x": {"type": "int", "min": 1, "max": 3, "step": 0}}}, "parameters.x.step"),
        ({"parameters": {"x": {"type": "int", "values": [1, 2.5]}}}, "parameters.x.values"),
        ({"parameters": {"x": {"type": "double", "values": []}}}, "parameters.x.values"),
        ({"parameters": {"x": {"type": "categorical"}}}, "parameters.x.values"),
        ({"parameters": {"x": {"type": "double", "min": 0, "max": 1, "scale": "log"}}}, "parameters.x.min"),
        ({"parameters": {"x": {"type": "double", "min": 1, "max": 2, "scale": "odd"}}}, "parameters.x.scale"),
        ({"parameters": {"x": {"type": "int", "values": [1], "colour": 1}}}, "parameters.x.colour"),
        ({"parameters": {"x": [1]}}, "parameters.x"),
        ({"method": "grid", "parameters": {"x": {"type": "double", "min": 0, "max": 1}}}, "parameters.x"),
        (
            {"method": "grid", "maxTrials": None, "parameters": {"x": {"type": "int", "min": 1, "max": 9999}}},
            "maxTrials",
        ),
    ],
)
def test_search_that_cannot_be_followed_is_refused_by_its_name(changes, field):
    with pytest.raises(BadSpec) as refused:
        translated({**LLAMA, "hyperParameterTuningConfig": {**TUNING, **changes}})

    assert not isinstance(refused.value, NotSupportedYet)
    assert refused.value.field == f"spec.hyperParameterTuningConfig.{field}"


@pytest.mark.parametrize(
    ("trainer", "field"),
    [
        ({"numProcPerNode": "many"}, "trainer.numProcPerNode"),
        ({"numProcPerNode": True}, "trainer.numProcPerNode"),
        ({"numNodes": 0}, "trainer.numNodes"),
        ({"resourcesPerNode": {"requests": {"cpu": "lots"}}}, "trainer.resourcesPerNode.requests.cpu"),
        ({"colour": "blue"}, "trainer.colour"),
    ],
)
def test_wrong_shape_is_reported_with_its_field(trainer, field):
    with pytest.raises(BadShape) as refused:
        training(trainer)

    assert refused.value.details[0][0] == field


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.5gb"])
def test_a_part_of_a_device_is_refused_by_the_name_of_the_resource(resource):
    with pytest.raises(BadSpec, match=f"{resource}: devices are allocated whole") as refused:
        translated({**LLAMA, "trainer": {"command": ["true"], "resourcesPerNode": {"requests": {resource: "500m"}}}})

    assert refused.value.field == "spec.trainer.resourcesPerNode"


def test_every_state_is_one_condition_of_omes():
    assert set(STATES) == set(JobState)
    for state in JobState:
        details = details_of(translated(LLAMA), LLAMA, state, started_at=datetime(2026, 1, 2, tzinfo=UTC))
        conditions = object_of(details)["status"]["conditions"]
        holding = [each["type"] for each in conditions if each["status"] == "True"]
        assert (STATES[state] in holding) == bool(STATES[state])
    failed = details_of(translated(LLAMA), LLAMA, JobState.CANCELLED)
    assert object_of(failed)["status"]["conditions"][-1]["reason"] == "Cancelled"


def test_pods_are_ranks_of_the_newest_attempt():
    details = details_of(translated(LLAMA), LLAMA, JobState.TRAINING, node_names=["a", "b", "c", "d"], attempt=1)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    attempt = Attempt(number=1, node_names=["a", "b", "c", "d"], created_at=at, started_at=at)

    pods = pods_of(details, attempt)

    assert [(pod["metadata"]["name"], pod["spec"]["nodeName"]) for pod in pods] == [
        (f"llama-{rank}", "abcd"[rank // 2]) for rank in range(8)
    ]
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}
    assert pods_of(details, None)[0]["status"]["phase"] == "Pending"
    assert [rank_of(details, pod) for pod in ("llama-7", "llama-8", "other-0", "llama", "llama-x")] == [
        7,
        None,
        None,
        None,
        None,
    ]


def test_events_name_what_they_are_of():
    details = details_of(translated(LLAMA), LLAMA)
    event = JobEvent(
        id="evt-1",
        job_id=details.job.id,
        at=datetime(2026, 1, 1, tzinfo=UTC),
        type="job.warning",
        reason="",
        message="m",
    )

    found = events_of(details, [event])[0]

    assert (found["type"], found["reason"], found["message"]) == ("Warning", "job.warning", "m")
    assert found["involvedObject"]["name"] == "llama"


# Values of names such as PWD_X are masked.
NAME = st.from_regex(r"[A-Z]{1,6}_X", fullmatch=True).filter(lambda name: not is_secret(name))


@given(
    env=st.dictionaries(NAME, st.text("ab =", max_size=6), max_size=3),
    nodes=st.integers(1, 9),
    words=st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), min_size=1, max_size=4),
)
def test_what_was_sent_is_returned(env, nodes, words):
    trainer = {
        "command": words,
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "numNodes": nodes,
    }
    spec = {**LLAMA, "trainer": trainer}

    returned = object_of(details_of(translated(spec), spec))["spec"]

    assert {key: returned["trainer"][key] for key in trainer} == trainer
    assert returned["runtimeRef"]["name"] == "pytorch-runtime"


def test_secret_values_are_not_returned():
    spec = {**LLAMA, "trainer": {"command": ["true"], "env": [{"name": "HF_TOKEN", "value": "hf_secret"}]}}

    returned = str(object_of(details_of(translated(spec), spec)))

    assert "HF_TOKEN" in returned
    assert "hf_secret" not in returned


@pytest.mark.parametrize(
    ("schema", "table"), [(TrainingJobSchema, FIELDS), (RuntimeSchema, RUNTIME_FIELDS), (BaseModelSchema, MODEL_FIELDS)]
)
def test_every_field_of_a_manifest_has_a_verdict(schema, table):
    assert sorted(table) == sorted(field_paths(schema()))
