"""Run:ai's distributed workloads: equal pods are the nodes of a job, and a master that differs makes roles of them."""

import pytest

from app.compat.runai.from_native import training_of
from app.compat.runai.to_native import naming_of
from app.domain.errors import BadSpec
from tests.unit.compat.test_runai import OWNER, details_of, divided, ignored_fields


def test_distributed_training_is_a_gang_whose_nodes_run_the_command_once():
    native = divided(
        {"distributedFramework": "PyTorch", "numWorkers": 3, "compute": {"gpuDevicesRequest": 8}, "slotsPerWorker": 1}
    )

    assert native.document["resource_config"] == {"gpu_count": 8, "node_count": 4}
    assert native.document["training_config"]["framework"]["distributed"] == {"config": {"num_proc_per_node": "1"}}
    assert ignored_fields(native) == ["spec.slotsPerWorker"]
    returned = training_of(details_of(native), OWNER)
    assert (returned["spec"]["numWorkers"], returned["masterSpecSameAsWorker"]) == (3, True)


HALF = {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.5}
ONE, TWO = [{"name": "A", "value": "1"}], [{"name": "A", "value": "2"}]
SECRET = {"name": "A", "secret": {"name": "one", "key": "k"}}


def test_master_that_differs_is_a_role_in_one_world_with_the_workers():
    spec = {
        "command": "python",
        "args": "work.py",
        "environmentVariables": [{"name": "A", "value": "1"}],
        "compute": {"gpuDevicesRequest": 2},
        "numWorkers": 3,
    }
    master = {
        "command": "python",
        "args": "'lead it.py'",
        "image": "x",
        "environmentVariables": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        "compute": {"cpuCoreRequest": 1},
    }
    native = divided(spec, masterSpec=master)

    assert native.document["tasks"] == [
        {
            "role": "master",
            "count": 1,
            "resource_config": {"gpu_count": 1, "device_type": "cpu", "cpu_cores": 1},
            "training_config": {"custom_command": ["python", "lead it.py"], "environment": {"B": "2"}},
            "world": "job",
        },
        {
            "role": "worker",
            "count": 3,
            "resource_config": {"gpu_count": 2},
            "training_config": {"custom_command": ["python", "work.py"], "config": {"num_proc_per_node": "1"}},
            "world": "job",
            "sidecar": True,
        },
    ]
    assert (native.document["resource_config"], native.document["training_config"]["environment"]) == ({}, {"A": "1"})
    assert ignored_fields(native) == ["masterSpec.image"]  # this operator has no registries
    returned = training_of(details_of(native), OWNER)
    assert (returned["masterSpec"]["args"], returned["masterSpec"]["compute"]) == (master["args"], master["compute"])
    assert (returned["spec"]["compute"], "masterSpecSameAsWorker" in returned) == (spec["compute"], False)


def test_master_with_the_same_of_everything_is_a_node_like_the_others():
    native = divided({"environmentVariables": ONE}, masterSpec={"command": "true", "environmentVariables": ONE})

    assert "tasks" not in native.document
    assert native.document["resource_config"]["node_count"] == 2


@pytest.mark.parametrize(
    ("policy", "sidecar", "of_equals"), [("None", False, []), ("All", True, ["spec.cleanPodPolicy"]), (None, True, [])]
)
def test_workers_end_with_the_master_unless_their_pods_are_kept(policy, sidecar, of_equals):
    spec = {} if policy is None else {"cleanPodPolicy": policy}

    differing = divided(spec, masterSpec={"args": "x"})

    assert differing.document["tasks"][1].get("sidecar", False) is sidecar
    assert differing.warnings == []
    assert ignored_fields(divided(spec)) == of_equals


def test_masters_own_command_is_the_first_ranks_where_a_device_is_shared():
    spec = {"command": "python", "args": "work.py", "environmentVariables": ONE, "compute": HALF}
    own = [{"name": "B", "value": "2"}]
    master = {"command": "python", "args": "'lead it.py'", "environmentVariables": own, "compute": HALF}

    native = divided(spec, masterSpec=master)

    script = """if [ "$RANK" = 0 ]; then exec python 'lead it.py'; else exec python work.py; fi"""
    assert native.document["training_config"]["framework"]["custom_command"] == ["sh", "-c", script]
    assert native.document["training_config"]["environment"] == {"A": "1", "B": "2"}


def test_limit_that_only_some_pods_have_is_left_out():
    native = divided({"compute": {"cpuMemoryLimit": "30Mi"}}, masterSpec={"compute": {"cpuCoreRequest": 1}})

    assert native.document["resource_config"] == {}
    assert ignored_fields(native) == ["spec.compute.cpuMemoryLimit"]


@pytest.mark.parametrize(
    ("spec", "master", "field"),
    [
        ({"distributedFramework": "JAX"}, {}, "spec.distributedFramework"),
        ({"compute": HALF}, {"compute": {"gpuDevicesRequest": 2}}, "masterSpec.compute"),
        ({}, {"compute": {**HALF, "gpuDevicesRequest": 2}}, "masterSpec.compute.gpuRequestType"),
        ({}, {"args": "'"}, "masterSpec.args"),
        (
            {"compute": HALF, "environmentVariables": ONE},
            {"environmentVariables": TWO},
            "masterSpec.environmentVariables",
        ),
        (
            {"compute": HALF, "environmentVariables": [SECRET]},
            {"environmentVariables": [{**SECRET, "secret": {"name": "other", "key": "k"}}]},
            "masterSpec.environmentVariables",
        ),
        ({"numWorkers": 64}, {"args": "x"}, "spec.numWorkers"),
    ],
)
def test_what_no_job_does_is_refused(spec, master, field):
    with pytest.raises(BadSpec) as refused:
        divided(spec, masterSpec=master)

    assert refused.value.field == field


def test_fields_of_roles_are_named_as_the_parts_of_the_request():
    naming = naming_of({}, ["master", "worker"])

    assert naming.field("tasks.0.resource_config.gpu_count") == "masterSpec.compute.gpuDevicesRequest"
    assert naming.field("tasks.0.training_config.custom_command.0") == "masterSpec.command"
    assert naming.field("tasks.1.resource_config.cpu_cores") == "spec.compute.cpuCoreRequest"
    assert naming.field("tasks") == "spec.numWorkers"
    assert naming_of({}, ["copy"]).field("tasks") == "spec.parallelism"


def test_native_job_with_roles_is_a_distributed_workload():
    roles = [
        {"role": "a", "training_config": {"custom_command": ["lead", "x y"], "environment": {"B": "2"}}},
        {"role": "b", "count": 2, "resource_config": {"gpu_count": 4}, "training_config": {"custom_command": ["work"]}},
    ]
    native = divided({})
    document = {**native.document, "resource_config": {}, "tasks": roles}

    returned = training_of(details_of(native._replace(document=document, foreign={})), OWNER)

    assert (returned["spec"]["numWorkers"], returned["spec"]["compute"]["gpuDevicesRequest"]) == (2, 4)
    assert returned["masterSpec"] == {
        "compute": {"gpuDevicesRequest": 1},
        "command": "lead",
        "args": "'x y'",
        "environmentVariables": [{"name": "B", "value": "2"}],
    }
