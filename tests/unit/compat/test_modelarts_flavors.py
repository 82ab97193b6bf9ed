"""Flavors of ModelArts over the devices of nodes."""

import pytest

from app.compat.modelarts.flavors import flavor, flavor_item, flavors_of, of_job, of_resources
from app.domain.errors import BadSpec
from app.domain.scheduling.resources import Device, NodeCapacity
from app.domain.spec.model import ResourceConfig
from tests.unit.compat.test_modelarts import NODES


def test_flavors_are_counts_of_the_inventorys_devices():
    found = [each.id for each in flavors_of(NODES)]

    assert found == [
        "trainyard.cpu.1",
        "trainyard.cpu.2",
        "trainyard.cpu.3",
        "trainyard.nvidia-a100.1",
        "trainyard.nvidia-a100.2",
        "trainyard.nvidia-a100.4",
        "trainyard.nvidia-a100.8",
    ]
    assert of_resources(ResourceConfig(gpu_count=3, gpu_type=("NVIDIA A100",)), NODES) is not None
    assert of_resources(ResourceConfig(gpu_count=4, device_type="cpu"), NODES) is None


def test_flavor_is_its_devices_share_of_a_node():
    found = {each.id: flavor_item(each)["flavor_info"] for each in flavors_of(NODES)}

    assert found["trainyard.nvidia-a100.8"] == {
        "max_num": 1,
        "cpu": {"arch": "aarch64", "core_num": 96},
        "memory": {"size": 1024, "unit": "GB"},
        "disk": {"size": 8000, "unit": "GB"},
        "gpu": {"unit_num": 8, "product_name": "NVIDIA A100", "memory": "80GB"},
    }
    assert found["trainyard.nvidia-a100.2"]["cpu"]["core_num"] == 24
    assert found["trainyard.nvidia-a100.2"]["memory"]["size"] == 256
    assert found["trainyard.cpu.3"] == {
        "max_num": 1,
        "cpu": {"arch": "x86", "core_num": 8},
        "memory": {"size": 32, "unit": "GB"},
        "disk": {"size": 80, "unit": "GB"},
    }


def test_flavor_of_a_job_is_of_exactly_its_devices():
    found = of_job(ResourceConfig(gpu_count=6, gpu_type="NVIDIA A100"), NODES)

    assert found is not None
    assert found["billing"] == {"code": "trainyard.nvidia-a100.6", "unit_num": 6}
    assert (found["flavor_info"]["cpu"]["core_num"], found["flavor_info"]["disk"]["size"]) == (72, "6000")


def test_node_that_has_not_said_its_architecture_has_none():
    silent = NodeCapacity(name="n", devices=(Device(index=0, type="cpu"),), free=frozenset(), cpu_cores=2, ram_mb=2048)

    assert flavor_item(flavors_of([silent])[0])["flavor_info"]["cpu"] == {"core_num": 2}


def test_flavors_of_modelarts_are_numbers_of_devices():
    assert flavor("modelarts.pool.visual.4xlarge", NODES) == {"gpu_count": 4, "device_type": "cuda"}
    assert flavor("modelarts.vm.cpu.2u", NODES) == {"gpu_count": 2, "device_type": "cpu"}
    assert flavor(None, NODES) == {"gpu_count": 1, "device_type": "cpu"}


@pytest.mark.parametrize("flavor_id", ["modelarts.vm.cpu.8u", "modelarts.vm.pnt1.large.eco", "modelarts.vm.cpu.0u"])
def test_flavor_that_no_node_has_is_refused_with_those_that_there_are(flavor_id):
    with pytest.raises(BadSpec, match=r"trainyard\.cpu\.3, trainyard\.nvidia-a100\.1") as refused:
        flavor(flavor_id, NODES)

    assert refused.value.field == "spec.resource.flavor_id"
