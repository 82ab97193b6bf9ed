"""What this machine and its devices do now, reported each minute on a thread of its own: NVML may block for long."""

import contextlib
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import psutil

from app.database.engine import Database
from app.domain.scheduling.resources import Device
from app.host.clock import utc_now
from app.services.nodes import device_usage
from app.services.nodes.device_usage import DeviceUse, NodeUse
from workers.node.background_thread import PeriodicThread
from workers.node.nvml import UsageNvml

EVERY_SECONDS = 60.0
MEBIBYTE = 1 << 20


class DeviceSamples:
    """Devices that are CPU slots or simulated report nothing of their own."""

    def __init__(
        self, db: Database, name: str, devices: Sequence[Device], *, load_nvml: Callable[[], UsageNvml] | None = None
    ) -> None:
        self._db, self._name = db, name
        self._gpus = [device for device in devices if not device.is_cpu and not device.simulated]
        self._load_nvml = load_nvml or _pynvml
        self._nvml: Any = None
        self._thread = PeriodicThread("device-samples", self.report, EVERY_SECONDS)

    def start(self) -> None:
        psutil.cpu_percent()  # what follows is since this call
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()

    def wake(self) -> None:
        """Report soon: the node has registered."""
        self._thread.wake()

    def report(self) -> None:
        device_usage.record(self._db, self._name, self.take())

    def take(self) -> NodeUse:
        memory = psutil.virtual_memory()
        return NodeUse(
            at=utc_now(),
            cpu_percent=psutil.cpu_percent(),
            ram_used_mb=round((memory.total - memory.available) / MEBIBYTE),
            devices=self._devices(),
        )

    def _devices(self) -> list[DeviceUse]:
        """Empty without GPUs, library or driver; a driver that comes back is found at the next sample."""
        if not self._gpus:
            return []
        if self._nvml is None:
            with contextlib.suppress(Exception):  # NVMLError is known only when the library is there
                nvml = self._load_nvml()
                nvml.nvmlInit()
                self._nvml = nvml
        return [] if self._nvml is None else [self._use(self._nvml, device) for device in self._gpus]

    def _use(self, nvml: UsageNvml, device: Device) -> DeviceUse:
        busy, used = None, None
        with contextlib.suppress(nvml.NVMLError):
            handle = (
                nvml.nvmlDeviceGetHandleByUUID(device.uuid)
                if device.uuid
                else nvml.nvmlDeviceGetHandleByIndex(device.index)
            )
            # Each by itself: a MIG slice reports its memory, but not its utilization.
            with contextlib.suppress(nvml.NVMLError):
                used = nvml.nvmlDeviceGetMemoryInfo(handle).used // MEBIBYTE
            busy = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        return DeviceUse(index=device.index, utilization=busy, memory_used_mb=used)


def _pynvml() -> UsageNvml:
    return import_module("pynvml")  # imported late: it costs memory, and is needed with GPUs only
