"""A training job as returned makes another one of the same kind when it is sent again."""

from typing import Any

import pytest

from tests.builders.factories import make_document, make_job, make_node
from tests.integration.compat.test_modelarts import ALGORITHM, JOBS, said
from tests.systems.apps import Api

_FLAVOR = "trainyard.a100.1"
_DATA = {"name": "data", "remote": {"obs": {"obs_url": "obs://bucket/data.jsonl"}}}
BODIES: list[dict[str, Any]] = [
    {
        "algorithm": {
            **ALGORITHM,
            "name": "mine",
            "environments": {"MODE": "fast", "LEVEL": "3", "RANK": "7"},
            "inputs": [_DATA],
            "outputs": [{"name": "out", "remote": {"obs": {"obs_url": "obs://bucket/out"}}}],
            "engine": {"engine_name": "PyTorch"},
        },
        "spec": {
            "resource": {"flavor_id": _FLAVOR, "node_count": 1, "pool_id": "pool-1"},
            "auto_stop": {"time_unit": "HOURS", "duration": 2},
            "schedule_policy": {"priority": 3},
        },
    },
    {
        "algorithm": {"command": "python train.py", "code_dir": "obs://bucket/src/"},
        "spec": {"resource": {"flavor_id": _FLAVOR}},
    },
    {
        "algorithm": {
            "id": "sft",
            "parameters": [{"name": "base_model", "value": "/srv/models/tiny"}],
            "inputs": [_DATA],
            "environments": {"MODE": "fast"},
        },
        "spec": {"resource": {"flavor_id": _FLAVOR}},
    },
]
_FAULTS = {"tensorboard/enable": "true", "fault-tolerance/job-retry-num": "2"}


def again(api: Api, job: str) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The native documents of a job and of the one that its answer makes, and the fields that are warned of."""
    returned = said(api.call("GET", f"{JOBS}/{job}"))
    returned["metadata"]["name"] = "again"
    answer = api.post(JOBS, returned)
    other = said(answer, 201)["metadata"]["id"]
    lines = [line.removeprefix('299 - "').partition(": ")[0] for line in answer.headers.getlist("Warning")]
    first, second = (api.get(f"/v1/jobs/job-{each}") for each in (job, other))
    return first, second, lines


@pytest.mark.parametrize("body", BODIES)
def test_returned_job_can_be_sent_again(sqlite_api: Api, body: dict[str, Any]) -> None:
    with sqlite_api.db.write() as session:
        make_node(session, device_type="a100", memory_mb=80_000, labels=["pool-1"])
    metadata = {"name": "first", "description": "d", "annotations": _FAULTS}
    job = said(sqlite_api.post(JOBS, {"kind": "job", "metadata": metadata, **body}), 201)["metadata"]["id"]

    first, second, warned = again(sqlite_api, job)

    for section in ("training_config", "data_config", "resource_config", "scheduling_config", "output_config"):
        assert second[section] == first[section], section
    assert {"metadata.id", "metadata.create_time", "status"} <= {*warned}


@pytest.mark.parametrize(
    "framework",
    [
        {"type": "DEEPSPEED"},
        {"type": "CUSTOM", "custom_command": ["bash", "-c", "python 'x y.py'"]},
        {"type": "CUSTOM", "custom_script_path": "/srv/models/x.py", "custom_arguments": ["--lr=1"]},
    ],
)
def test_returned_job_of_the_native_api_can_be_sent_again(sqlite_api: Api, framework: dict[str, Any]) -> None:
    document = make_document(training_config={"framework": framework})
    with sqlite_api.db.write() as session:
        job = make_job(session, document=document).id.removeprefix("job-")

    first, second, _ = again(sqlite_api, job)

    assert [source["path"] for source in second["data_config"]["sources"]] == [
        f"file://{source['path']}" for source in first["data_config"]["sources"]
    ]
    assert second["training_config"]["framework"]["type"] == framework["type"]
    assert second["training_config"]["hyperparameters"] == (
        {} if framework["type"] == "CUSTOM" else first["training_config"]["hyperparameters"]
    )
    assert second["training_config"]["base_model"]["model_id"] in (
        "none",
        first["training_config"]["base_model"]["model_id"],
    )


@pytest.mark.parametrize(
    ("environments", "field"),
    [
        ([{"A": "1"}, {"A": "2"}], "algorithm.environments"),
        (["A"], "algorithm.environments"),
        ([{"A B": "1"}], "algorithm.environments"),
        ([{"API_KEY": "***"}], "algorithm.environments"),
        ("A=1", "algorithm.environments"),
    ],
)
def test_variables_that_mean_nothing_are_refused(sqlite_api: Api, environments: Any, field: str) -> None:
    body = {"kind": "job", "metadata": {"name": "x"}, "algorithm": {**ALGORITHM, "environments": environments}}

    assert said(sqlite_api.post(JOBS, body), 400)["error_msg"].startswith(field)
