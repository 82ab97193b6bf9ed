"""What a node finds out about the files of its GPUs, and the numbers of MIG slices."""

import pytest

from app.domain.scheduling.resources import Device
from app.host import gpu_devices
from workers.node.inventory import lack_of_gpu_files
from workers.node.mig_instances import instances_of


def test_gpus_whose_files_are_unknown_are_a_lack_that_cpu_slots_have_not(monkeypatch):
    def unknown(indices, slices):
        if indices:
            raise gpu_devices.UnknownGpuFiles(f"GPUs {indices}")
        return []

    monkeypatch.setattr("workers.node.inventory.gpu_files", unknown)
    gpu, part = Device(index=1, type="h200"), Device(index=3001, type="h200-mig-1g.18gb", uuid="MIG-a")

    assert lack_of_gpu_files([Device(index=0, type="cpu"), Device(index=1, type="h200", simulated=True)]) == ""
    assert lack_of_gpu_files([gpu, part], FakeSlices()) == "GPUs [1, 2]"


def test_files_of_the_slices_of_a_node_are_looked_at(monkeypatch):
    asked = []
    monkeypatch.setattr("workers.node.inventory.gpu_files", lambda *given: asked.append(given))
    gpu, *parts = (
        Device(index=index, type="h200", uuid=uuid) for index, uuid in ((1, ""), (3001, "MIG-b"), (3000, "MIG-a"))
    )

    assert lack_of_gpu_files([gpu], FakeSlices()) == ""
    assert lack_of_gpu_files([gpu, *parts], FakeSlices()) == ""
    slices = [
        gpu_devices.MigInstance(gpu=2, gpu_instance=5, compute_instance=6),
        gpu_devices.MigInstance(gpu=2, gpu_instance=3, compute_instance=4),
    ]
    assert asked == [([1], []), ([1, 2], slices)]


def test_slices_that_the_driver_does_not_know_are_a_lack(monkeypatch):
    monkeypatch.setattr("workers.node.inventory.gpu_files", lambda *_: [])
    gone = Device(index=3001, type="h200-mig-1g.18gb", uuid="MIG-c")

    assert lack_of_gpu_files([gone], FakeSlices()) == "the driver doesn't tell which MIG slices these are: 'MIG-c'"


class FakeSlices:
    """As much of pynvml as numbers of slices take."""

    NVMLError = KeyError

    def __init__(self):
        self.open = 0

    def nvmlInit(self):  # noqa: N802
        self.open += 1

    def nvmlShutdown(self):  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        return {"MIG-a": 3, "MIG-b": 5}[uuid]

    def nvmlDeviceGetGpuInstanceId(self, handle):  # noqa: N802
        return handle

    def nvmlDeviceGetComputeInstanceId(self, handle):  # noqa: N802
        return handle + 1


def test_slices_are_found_by_uuid():
    nvml = FakeSlices()

    assert instances_of(["MIG-b", "MIG-a"], nvml) == [(5, 6), (3, 4)]
    with pytest.raises(KeyError):
        instances_of(["MIG-c"], nvml)
    assert nvml.open == 0
