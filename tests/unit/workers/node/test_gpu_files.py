"""What a node finds out about the files of its GPUs, and the numbers of MIG slices."""

import pytest

from app.domain.scheduling.resources import Device
from app.host import gpu_devices
from workers.node.inventory import lack_of_gpu_files
from workers.node.mig_instances import instances_of


def test_gpus_whose_files_are_unknown_are_a_lack_that_cpu_slots_have_not(monkeypatch):
    def unknown(indices):
        if indices:
            raise gpu_devices.UnknownGpuFiles(f"GPUs {indices}")
        return []

    monkeypatch.setattr("workers.node.inventory.gpu_files", unknown)
    gpu, part = Device(index=1, type="h200"), Device(index=3001, type="h200-mig-1g.18gb", uuid="MIG-1")

    assert lack_of_gpu_files([Device(index=0, type="cpu"), Device(index=1, type="h200", simulated=True)]) == ""
    assert lack_of_gpu_files([gpu, part]) == "GPUs [1, 2]"


class FakeSlices:
    """As much of pynvml as numbers of slices take."""

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
