"""Resource usage of an attempt: processor and memory of all its processes, and its GPUs.

Metrics of every job, custom scripts too, attached to the step that is being trained:

- ``cpu_percent``: processor time of all processes of the attempt since the sample before; 100 is one core kept busy.
- ``memory_mb``: their memory in MiB; of a page that several processes share each has its part, also of one that a
  forked rank shares with its fork server.
- ``gpu_utilization``: percent of the time in which the attempt's GPUs computed, the mean over them.
- ``gpu_memory_mb``: memory allocated on them in MiB, summed.

Of an attempt on several nodes they are those of rank 0's node; the others have ``system/node-K/`` before their names.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from app.domain.scheduling.resources import Device
from workers.node.nvml import UsageNvml
from workers.supervisor.ranks.device_health import DeviceHealth, broken_between, health_of

log = logging.getLogger(__name__)

CPU_PERCENT, MEMORY_MB = "cpu_percent", "memory_mb"
GPU_UTILIZATION, GPU_MEMORY_MB = "gpu_utilization", "gpu_memory_mb"
# Once a second would show nothing more to a person, and this is read from /proc, process by process.
SAMPLE_SECONDS = 2.0
# Each node of a gang writes to the job's row.
OTHER_NODE_SECONDS = 10.0
LAST_SAMPLE_SECONDS = 2.0  # for a driver that may never answer

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Consumption:
    """Of a process and its descendants: processor time since their start, with ended children, and memory now."""

    cpu_seconds: float
    memory_bytes: int


class UsageMeter:
    """Samples one attempt. The GPUs are those of ``devices`` that are neither CPU slots nor simulated."""

    def __init__(self, devices: Sequence[Device], *, load_nvml: Callable[[], UsageNvml] | None = None) -> None:
        self._gpus = GpuMeter([d for d in devices if not d.is_cpu and not d.simulated], load_nvml or _pynvml)
        self._before: tuple[float, float] | None = None  # when, and processor seconds by then

    def sample(self, root_pid: int) -> dict[str, float]:
        """Values by name; empty when the processes have ended. The first sample has no ``cpu_percent``."""
        used, now = consumption(root_pid), time.monotonic()
        if used is None:
            return {}
        values = {MEMORY_MB: round(used.memory_bytes / MEBIBYTE, 1)}
        if self._before is not None and now > self._before[0]:
            # The time of a child that is never waited for is lost: the sum may fall.
            seconds = max(0.0, used.cpu_seconds - self._before[1])
            values[CPU_PERCENT] = round(100 * seconds / (now - self._before[0]), 1)
        self._before = now, used.cpu_seconds
        return values | self._gpus.sample()

    def broken(self) -> str:
        """GPU faults since this object was created, as text; "" when there are none."""
        return self._gpus.broken()

    def close(self) -> None:
        self._gpus.close()


class GpuMeter:
    """The attempt's GPUs by NVML; no values without GPUs, driver or library."""

    def __init__(self, devices: Sequence[Device], load_nvml: Callable[[], UsageNvml]) -> None:
        self._nvml: Any = None
        self._handles: list[object] = []
        self._indices = [device.index for device in devices]
        self._before: list[DeviceHealth] = []
        if not devices:
            return
        try:
            self._nvml = load_nvml()
            self._nvml.nvmlInit()
            handles = [_handle(self._nvml, device) for device in devices]
            self._before = [health_of(self._nvml, handle) for handle in handles]
            self._handles = handles
        except Exception:  # NVMLError is known only when the library is there
            log.warning("the use of the GPUs can't be observed", exc_info=True)

    def sample(self) -> dict[str, float]:
        values: dict[str, float] = {}
        if not self._handles:
            return values
        # Each by itself: a MIG slice reports its memory, but not its utilization.
        with contextlib.suppress(self._nvml.NVMLError):
            busy = [float(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu) for handle in self._handles]
            values[GPU_UTILIZATION] = round(sum(busy) / len(busy), 1)
        with contextlib.suppress(self._nvml.NVMLError):
            used = [int(self._nvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in self._handles]
            values[GPU_MEMORY_MB] = round(sum(used) / MEBIBYTE, 1)
        return values

    def broken(self) -> str:
        """As of ``UsageMeter``."""
        now = [health_of(self._nvml, handle) for handle in self._handles]
        found = zip(self._indices, self._before, now, strict=True) if self._handles else ()
        return "; ".join(filter(None, (broken_between(*each) for each in found)))

    def close(self) -> None:
        if self._handles:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
            self._handles = []


def _handle(nvml: UsageNvml, device: Device) -> object:
    return nvml.nvmlDeviceGetHandleByUUID(device.uuid) if device.uuid else nvml.nvmlDeviceGetHandleByIndex(device.index)


def _pynvml() -> UsageNvml:
    return import_module("pynvml")  # imported late: it costs memory, and is needed with GPUs only


def consumption(root_pid: int) -> Consumption | None:
    """Consumption of ``root_pid`` and its descendants; None when it has ended.

    The time of children that ended counts through the parent that waited for them, so nothing short-lived is missed.
    """
    try:
        root = psutil.Process(root_pid)
        tree = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return None
    return consumption_of(tree)


def consumption_of(tree: Iterable[psutil.Process]) -> Consumption | None:
    """The same of processes that were found before."""
    seconds, memory, found = 0.0, 0, False
    for process in tree:
        with contextlib.suppress(psutil.Error), process.oneshot():  # it may end just now
            seconds += sum(process.cpu_times()[:4])  # user and system, its own and that of children it has waited for
            memory += _memory(process)
            found = True
    return Consumption(seconds, memory) if found else None


def _memory(process: psutil.Process) -> int:
    """Bytes of the process: its proportional set size, or what is resident if that can't be read."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) << 10
    return int(process.memory_info().rss)


class UsageSampler:
    """Samples on a thread of its own, because NVML may block for long on a GPU that fell off its bus.

    ``on_sample`` is called on that thread, every ``seconds``.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        on_sample: Callable[[dict[str, float]], None],
        *,
        seconds: float = SAMPLE_SECONDS,
    ) -> None:
        self._devices = devices
        self._on_sample = on_sample
        self._seconds = seconds
        self._stopped, self._ended = threading.Event(), threading.Event()
        self._broken = ""

    def start(self, root_pid: int) -> None:
        """Watch the process and its descendants until stopped."""
        threading.Thread(target=self._watch, args=(root_pid,), name="usage", daemon=True).start()

    def stop(self, *, waits: bool = True) -> str:
        """Stop sampling; returns the GPU faults as text. GPUs that do not answer soon are left out."""
        self._stopped.set()
        if waits and any(not device.is_cpu and not device.simulated for device in self._devices):
            self._ended.wait(LAST_SAMPLE_SECONDS)
        return self._broken

    def _watch(self, root_pid: int) -> None:
        meter = UsageMeter(self._devices)
        try:
            self._sample(meter, root_pid)
            self._broken = meter.broken()
        except Exception:
            log.exception("the use of processor and memory is not observed any more")
        finally:
            self._ended.set()
            meter.close()

    def _sample(self, meter: UsageMeter, root_pid: int) -> None:
        meter.sample(root_pid)  # from here on processor time is counted
        while not self._stopped.wait(self._seconds):
            self._on_sample(meter.sample(root_pid))
