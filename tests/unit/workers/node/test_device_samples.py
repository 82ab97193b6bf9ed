"""What a node samples of its machine and its GPUs."""

from types import SimpleNamespace

from app.database.engine import Database
from app.domain.scheduling.resources import Device
from app.services.nodes.device_usage import DeviceUse
from workers.node.device_samples import DeviceSamples

GPUS = (Device(index=1, type="h200"), Device(index=3, type="h200", uuid="GPU-3"), Device(index=4, type="h200"))


class NvmlError(Exception):
    pass


def of_index(index: int) -> str:
    if index == 4:
        raise NvmlError("fell off the bus")
    return f"by index {index}"


def rates(handle: str) -> SimpleNamespace:
    if handle == "GPU-3":
        raise NvmlError("not supported")  # as of a MIG slice
    return SimpleNamespace(gpu=71)


NVML = SimpleNamespace(
    NVMLError=NvmlError,
    nvmlInit=lambda: None,
    nvmlDeviceGetHandleByIndex=of_index,
    nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
    nvmlDeviceGetUtilizationRates=rates,
    nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(used=3 << 30),
)


def no_driver() -> SimpleNamespace:
    raise NvmlError("no driver")


def test_each_gpu_reports_what_it_can():
    taken = DeviceSamples(Database(), "gpu-1", GPUS, load_nvml=lambda: NVML).take()

    assert taken.devices == [
        DeviceUse(index=1, utilization=71.0, memory_used_mb=3072),
        DeviceUse(index=3, utilization=None, memory_used_mb=3072),
        DeviceUse(index=4, utilization=None, memory_used_mb=None),
    ]


def test_the_machine_is_sampled_without_gpus_and_without_a_driver():
    slots = (Device(index=0, type="cpu"), Device(index=1, type="h200", simulated=True))

    for devices in (slots, GPUS):
        taken = DeviceSamples(Database(), "gpu-1", devices, load_nvml=no_driver).take()
        assert taken.devices == []
        assert (taken.ram_used_mb or 0) > 0
        assert 0 <= (taken.cpu_percent or 0) <= 100
