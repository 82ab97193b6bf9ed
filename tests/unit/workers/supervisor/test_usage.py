"""Usage samples of an attempt's processes and GPUs."""

import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from app.domain.scheduling.resources import Device
from workers.supervisor.ranks import usage
from workers.supervisor.ranks.usage import UsageMeter, UsageSampler, consumption

CPU = (Device(index=0, type="cpu"),)
GPUS = (Device(index=1, type="h200"), Device(index=3, type="h200"))
BURNS = "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\n"
# A child that is waited for, then one that stays, both with memory of their own.
PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-c", {burns!r}])
kept = bytearray(b"x" * (64 << 20))
stays = "kept = bytearray(b'x' * (64 << 20)); print('ready', flush=True); input()"
child = subprocess.Popen([sys.executable, "-c", stays])
child.wait()
"""


class NvmlError(Exception):
    pass


def fake_nvml(*, splits: bool = False, health: dict[int, tuple[int, bool]] | None = None) -> SimpleNamespace:
    """Two busy GPUs among others; ``splits``: they do not report utilization, as with MIG.

    ``health``: GPU → its uncorrected errors, and whether rows of its memory wait to be remapped; None: not reported.
    """

    def rates(handle: int) -> SimpleNamespace:
        if splits:
            raise NvmlError("not supported")
        return SimpleNamespace(gpu={1: 90, 3: 71}[handle])

    def health_of(handle: int) -> tuple[int, bool]:
        if health is None:
            raise NvmlError("not supported")
        return health[handle]

    def retires_no_pages(_: int) -> int:
        raise NvmlError("not supported")

    return SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUtilizationRates=rates,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=handle << 30),
        NVML_MEMORY_ERROR_TYPE_UNCORRECTED=1,
        NVML_VOLATILE_ECC=0,
        NVML_FEATURE_ENABLED=1,
        nvmlDeviceGetTotalEccErrors=lambda handle, _kind, _since: health_of(handle)[0],
        nvmlDeviceGetRemappedRows=lambda handle: (0, 0, int(health_of(handle)[1]), 0),
        nvmlDeviceGetRetiredPagesPendingStatus=retires_no_pages,
    )


def end(process):
    process.stdin.close()
    process.wait(10)
    process.stdout.close()


@pytest.fixture
def parent():
    script = PARENT.format(burns=BURNS.format(seconds=0.2))
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    end(process)


@pytest.mark.long
def test_time_and_memory_are_those_of_the_whole_tree(parent):
    used = consumption(parent.pid)

    assert used is not None
    assert used.cpu_seconds >= 0.2  # also of the child that has ended
    assert 128 << 20 <= used.memory_bytes < 512 << 20


@pytest.mark.long
def test_a_process_that_is_gone_uses_nothing(parent):
    end(parent)

    assert consumption(parent.pid) is None
    assert UsageMeter(CPU).sample(parent.pid) == {}


def test_processor_time_is_reported_from_the_second_sample_on():
    meter = UsageMeter(CPU)

    first = meter.sample(os.getpid())
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    second = meter.sample(os.getpid())

    assert set(first) == {"memory_mb"}
    assert set(second) == {"memory_mb", "cpu_percent"}
    assert second["cpu_percent"] > 5
    assert second["memory_mb"] > 10


def test_gpus_of_the_attempt_are_averaged_and_summed():
    meter = UsageMeter(GPUS, load_nvml=fake_nvml)

    sample = meter.sample(os.getpid())
    meter.close()

    assert (sample["gpu_utilization"], sample["gpu_memory_mb"]) == (80.5, 4096.0)


def test_a_slice_is_known_by_its_uuid():
    nvml = fake_nvml(splits=True)
    nvml.nvmlDeviceGetHandleByUUID = {"MIG-a": 7}.__getitem__
    slices = [Device(index=2000, type="h100-mig-1g.10gb", uuid="MIG-a")]

    assert UsageMeter(slices, load_nvml=lambda: nvml).sample(os.getpid())["gpu_memory_mb"] == 7 * 1024


def test_values_that_a_gpu_lacks_do_not_hide_the_others():
    sample = UsageMeter(GPUS, load_nvml=lambda: fake_nvml(splits=True)).sample(os.getpid())

    assert "gpu_utilization" not in sample
    assert sample["gpu_memory_mb"] == 4096.0


def test_without_driver_or_library_there_are_no_gpu_values():
    def missing():
        raise ImportError("pynvml")

    assert set(UsageMeter(GPUS, load_nvml=missing).sample(os.getpid())) == {"memory_mb"}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((0, False), (0, False), ""),
        ((2, True), (2, True), ""),  # errors from before the attempt do not count
        ((2, False), (0, False), ""),  # the driver was loaded anew
        ((2, False), (5, False), "GPU 3 has 3 memory errors that ECC could not correct since the attempt began"),
        ((0, False), (0, True), "GPU 3 has memory that will be given up at its next reset since the attempt began"),
    ],
)
def test_what_gets_worse_of_a_gpu_is_named(before, after, said):
    health = {1: (7, True), 3: before}
    meter = UsageMeter(GPUS, load_nvml=lambda: fake_nvml(health=health))

    health[3] = after

    assert meter.broken() == said


def test_gpus_that_do_not_tell_of_errors_have_none():
    assert UsageMeter(GPUS, load_nvml=fake_nvml).broken() == ""
    assert UsageMeter(CPU).broken() == ""


def test_pages_that_wait_to_be_retired_count_on_older_gpus():
    nvml, pending = fake_nvml(), {1: 0, 3: 0}
    nvml.nvmlDeviceGetRetiredPagesPendingStatus = pending.__getitem__
    meter = UsageMeter(GPUS, load_nvml=lambda: nvml)

    pending[1] = nvml.NVML_FEATURE_ENABLED

    assert meter.broken().startswith("GPU 1 has memory that will be given up")


def test_end_of_a_watch_says_what_broke_meanwhile(monkeypatch):
    health = {1: (0, False), 3: (0, False)}
    sampled = threading.Event()
    monkeypatch.setattr(usage, "_pynvml", lambda: fake_nvml(health=health))
    monkeypatch.setattr(usage, "LAST_SAMPLE_SECONDS", 20.0)
    watch = UsageSampler(GPUS, lambda _: sampled.set(), seconds=0.01)
    watch.start(os.getpid())
    assert sampled.wait(5)
    health[1] = 4, False

    assert watch.stop() == "GPU 1 has 4 memory errors that ECC could not correct since the attempt began"


def test_cpu_slots_and_simulated_devices_ask_no_driver():
    simulated = (Device(index=0, type="h200", simulated=True), *CPU)

    meter = UsageMeter(simulated, load_nvml=lambda: pytest.fail("asked for NVML"))

    assert set(meter.sample(os.getpid())) == {"memory_mb"}


def test_samples_are_at_most_every_two_seconds():
    assert usage.SAMPLE_SECONDS >= 2.0
    arrived = threading.Event()
    samples = []

    def take(values):
        samples.append(values)
        arrived.set()

    watch = UsageSampler(CPU, take, seconds=0.01)
    watch.start(os.getpid())
    assert arrived.wait(5)
    watch.stop()
    next(t for t in threading.enumerate() if t.name == "usage").join(5)

    assert set(samples[0]) == {"memory_mb", "cpu_percent"}
