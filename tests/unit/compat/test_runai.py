"""Run:ai's words for trainings, both ways."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.compat.ids import job_id_of, uuid_of
from app.compat.runai.documents.requests import DistributedSchema, TrainingSchema
from app.compat.runai.fields import FIELDS, without_effect
from app.compat.runai.from_native import STATES, class_of, compute_of, spec_of, training_of
from app.compat.runai.owners import Owner
from app.compat.runai.resources import megabytes
from app.compat.runai.to_native import DIALECT, PRIORITIES, Native, to_native
from app.domain.errors import BadSpec
from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.domain.spec.model import ResourceConfig, ResourceLimits
from app.http.request_body import validated
from app.models import Job
from app.models.base import utc_now
from app.schemas.jobs import SubmitJobSchema
from app.schemas.spec.field_verdicts import FieldVerdict
from app.services.jobs.details import JobDetails

OWNER = Owner(7, "Ada")
CLUSTER = "71f69d83-ba66-4822-adf5-55ce55efd210"


def divided(spec: dict[str, Any], **more: Any) -> Native:
    body = {"name": "my-training", "projectId": "default", "clusterId": CLUSTER, "spec": {"command": "true", **spec}}
    training = validated(DistributedSchema(), {**body, **more})
    return to_native(training, training["name"], may_read=lambda _: True, distributed=True)


def translated(spec: dict[str, Any], **more: Any) -> Native:
    body = {"name": "my-training", "projectId": "default", "clusterId": CLUSTER, "spec": {"command": "true", **spec}}
    training = validated(TrainingSchema(), {**body, **more})
    return to_native(training, training["name"], may_read=lambda path: path.startswith("/srv"))


def ignored_fields(native: Native) -> list[str]:
    assert all(": " in line for line in native.warnings)
    return sorted(line.partition(": ")[0] for line in native.warnings)


def details_of(native: Native, **columns: Any) -> JobDetails:
    spec = validated(SubmitJobSchema(), native.document).to_json()
    job = Job(
        id=new_id("job"),
        project="default",
        created_by="key-1",
        name=native.document["name"],
        labels=spec["labels"],
        foreign=native.foreign,
        priority=spec["scheduling_config"]["priority"],
        attempt=0,
        node_names=[],
        max_retries=spec["training_config"]["max_retries"],
        status=JobState.QUEUED,
        created_at=utc_now(),
        updated_at=utc_now(),
        status_reason="",
        **columns,
    )
    shown: dict[str, Any] = {field.name: None for field in dataclasses.fields(JobDetails)}
    return JobDetails(**{**shown, "job": job, "stored": spec, "pending_reason": "", "elapsed_seconds": 0.0})


def test_training_is_a_custom_job():
    native = translated(
        {
            "command": "python",
            "args": "-x 'my script.py'",
            "workingDir": "/srv/code",
            "backoffLimit": 3,
            "environmentVariables": [
                {"name": "STAGE", "value": "test"},
                {"name": "GONE", "value": "x", "exclude": True},
            ],
            "labels": [{"name": "stage", "value": "research"}, {"name": "old", "exclude": True}],
            "nodePools": ["pool-a"],
            "nodeType": "dgx",
            "priorityClass": "build",
            "terminateAfterPreemption": True,
            "compute": {"gpuDevicesRequest": 2, "cpuCoreRequest": 2.5, "cpuMemoryRequest": "1G"},
        }
    )

    assert native.document == {
        "name": "my-training",
        "labels": {"stage": "research"},
        "training_config": {
            "training_type": "SFT",
            "base_model": {"model_id": "none"},
            "framework": {
                "type": "CUSTOM",
                "custom_command": ["python", "-x", "my script.py"],
                "custom_code_dir": "/srv/code",
                "distributed": {"config": {"num_proc_per_node": "1"}},
                "custom_retry_on_error": True,
            },
            "environment": {"STAGE": "test"},
            "max_retries": 3,
        },
        "data_config": {"sources": []},
        "resource_config": {
            "gpu_count": 2,
            "cpu_cores": 3,
            "ram_min_mb": 954,
            "required_node_labels": ["dgx", "pool-a"],
            "mounts": [{"path": "/srv/code", "type": "code", "required": False}],
        },
        "scheduling_config": {"priority": 8, "preemptible": False, "on_preemption": "terminate", "wait_for_node": True},
    }
    assert native.warnings == ["spec.compute.cpuCoreRequest: 2.5 is rounded up to whole cores"]


@pytest.mark.parametrize(
    ("compute", "found"),
    [
        ({}, {"gpu_count": 1, "device_type": "cpu"}),
        (
            {"gpuDevicesRequest": 0, "gpuRequestType": "portion", "gpuPortionRequest": 0.5},
            {"gpu_count": 1, "device_type": "cpu"},
        ),
        (
            {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.5},
            {"gpu_count": 1, "gpu_fraction": 0.5},
        ),
        ({"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 1}, {"gpu_count": 1}),
        (
            {"gpuDevicesRequest": 1, "gpuRequestType": "memory", "gpuMemoryRequest": "8Gi"},
            {"gpu_count": 1, "gpu_memory_request_mb": 8192},
        ),
        (
            {"gpuDevicesRequest": 1, "gpuRequestType": "migProfile", "migProfile": "1g.5gb"},
            {"gpu_count": 1, "mig_profile": "1g.5gb"},
        ),
    ],
)
def test_devices_and_fractions_are_translated(compute, found):
    assert translated({"compute": compute}).document["resource_config"] == found


def test_only_fields_of_the_chosen_kind_count_and_the_others_are_named():
    compute = {
        "gpuDevicesRequest": 1,
        "gpuRequestType": "portion",
        "gpuPortionRequest": 0.5,
        "gpuPortionLimit": 0.5,
        "gpuMemoryRequest": "10M",
        "migProfile": "1g.5gb",
        "cpuCoreLimit": 2,
    }

    native = translated({"compute": compute, "image": "python:3.8", "tty": True, "nodePools": ["a", "b"]})

    assert ignored_fields(native) == [
        "spec.compute.gpuMemoryRequest",
        "spec.compute.gpuPortionLimit",
        "spec.compute.migProfile",
        "spec.image",
        "spec.nodePools",
    ]
    assert native.document["interactive_config"] == {"terminal": True}
    assert native.foreign[DIALECT]["spec"]["compute"] == compute
    assert native.document["resource_config"]["required_node_labels"] == ["a|b"]


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"nodePools": ["a", "b", "c"], "nodeType": "dgx"}, {"required_node_labels": ["dgx", "a|b|c"]}),
        ({"nodePools": ["default"]}, {}),
        ({"nodePools": ["a", "default"]}, {}),
        ({"nodePools": []}, {}),
    ],
)
def test_nodes_are_of_one_of_the_pools(spec, wanted):
    resources = translated(spec).document["resource_config"]
    assert {name: value for name, value in resources.items() if name == "required_node_labels"} == wanted


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"command": "'"}, "spec.command"),
        ({"command": " "}, "spec.command"),
        ({"args": '"'}, "spec.args"),
        ({"priorityClass": "urgent"}, "spec.priorityClass"),
        (
            {"compute": {"gpuDevicesRequest": 2, "gpuRequestType": "portion", "gpuPortionRequest": 0.5}},
            "spec.compute.gpuRequestType",
        ),
    ],
)
def test_what_can_not_be_is_refused_with_its_field(spec, field):
    with pytest.raises(BadSpec) as refused:
        translated(spec)

    assert refused.value.field == field


def test_secrets_are_not_stored_with_the_foreign_document():
    variables = [{"name": "API_KEY", "value": "hunter2"}, {"name": "HOME", "value": "/x"}]

    native = translated({"environmentVariables": variables})

    assert "hunter2" not in json.dumps(native.foreign)
    assert native.document["training_config"]["environment"]["API_KEY"] == "hunter2"


@pytest.mark.parametrize(
    ("quantity", "mib"), [("10M", 10), ("512Mi", 512), ("1.5Gi", 1536), ("1", 1), ("2000000k", 1908), ("0", 0)]
)
def test_quantities_of_memory_are_read_in_mebibytes(quantity, mib):
    assert megabytes(quantity) == mib


def test_training_is_returned_as_it_was_sent():
    native = translated({"args": "-x", "image": "python:3.8"}, useGivenNameAsPrefix=True)
    details = details_of(native)

    returned = training_of(details, OWNER)

    assert returned["spec"] == {"command": "true", "args": "-x", "image": "python:3.8"}
    assert (returned["requestedName"], returned["clusterId"], returned["createdBy"]) == ("my-training", CLUSTER, "Ada")
    assert (returned["projectId"], returned["departmentId"]) == ("7", "1")
    assert job_id_of(returned["workloadId"]) == details.job.id
    assert (returned["desiredPhase"], returned["actualPhase"]) == ("Running", "Pending")


def test_project_that_was_sent_as_a_number_is_returned_as_a_number():
    returned = training_of(details_of(translated({}, projectId=7)), OWNER)

    assert (returned["projectId"], returned["departmentId"]) == (7, 1)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "args": st.from_regex(r"[a-z-]{1,10}( [a-z0-9-]{1,10}){0,3}", fullmatch=True),
            "backoffLimit": st.integers(0, 100),
            "priorityClass": st.sampled_from(["build", "interactive-preemptible", "train", "low", "very-high"]),
            "terminateAfterPreemption": st.booleans(),
            "compute": st.sampled_from(
                [
                    {"gpuDevicesRequest": 3},
                    {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.25},
                    {"gpuDevicesRequest": 1, "gpuRequestType": "memory", "gpuMemoryRequest": "100Mi"},
                    {"gpuDevicesRequest": 1, "gpuRequestType": "migProfile", "migProfile": "1g.10gb"},
                    {"gpuDevicesRequest": 0, "cpuCoreRequest": 2, "cpuMemoryRequest": "100Mi"},
                ]
            ),
        },
    )
)
def test_native_form_alone_tells_what_it_holds(spec):
    native = translated(spec)

    returned = spec_of(details_of(native))

    assert {name: returned.get(name) for name in spec} == spec


def test_every_native_state_is_one_phase():
    assert set(STATES) == set(JobState)
    assert STATES[JobState.PREEMPTED] == "Pending"
    assert STATES[JobState.PAUSED] == "Stopped"


@pytest.mark.parametrize("name", PRIORITIES)
def test_nearest_class_has_the_same_priority(name):
    priority, preemptible = PRIORITIES[name]

    assert PRIORITIES[class_of(priority, preemptible=preemptible)] == (priority, preemptible)


def test_what_is_no_uuid_names_no_job():
    assert job_id_of("../x") == ""
    assert uuid_of("job-0197d2a4-7c1e-7d3a-9f53-1d2c5b0a9e11") == "0197d2a4-7c1e-7d3a-9f53-1d2c5b0a9e11"


def test_limits_are_the_native_ones_where_nodes_can_hold_them():
    compute = {"cpuCoreRequest": 0.5, "cpuCoreLimit": 0.7, "cpuMemoryRequest": "20M", "cpuMemoryLimit": "30Mi"}

    native = translated({"compute": compute})

    resources = validated(SubmitJobSchema(), native.document).resource_config
    assert resources.limits == ResourceLimits(cpu_cores=0.7, ram_mb=30, required=False)
    returned = compute_of(resources)
    assert (returned["cpuCoreLimit"], returned["cpuMemoryLimit"]) == (0.7, "30Mi")


def test_devices_of_a_native_job():
    assert compute_of(ResourceConfig(gpu_count=4, device_type="cuda")) == {"gpuDevicesRequest": 4}


def test_excluded_fields_are_not_warned_about():
    nfs = {"server": "s", "path": "/p", "exclude": True}

    assert not [
        path for path, rule in FIELDS.items() if path.endswith(".exclude") and rule.verdict is FieldVerdict.WARNED
    ]
    assert without_effect({"masterSpec": {"storage": {"nfs": [nfs]}}}) == []
    assert without_effect({"masterSpec": {"storage": {"nfs": [{**nfs, "exclude": False}]}}}) != []
