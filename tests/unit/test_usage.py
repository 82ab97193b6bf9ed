"""What is sampled of an attempt's processes and GPUs."""

import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from app.domain.resources import Device
from workers import usage
from workers.usage import UsageMeter, UsageWatch, consumption

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


def fake_nvml(*, splits: bool = False) -> SimpleNamespace:
    """Two busy GPUs among others; ``splits``: they don't tell how busy, as with MIG."""

    def rates(handle: int) -> SimpleNamespace:
        if splits:
            raise NvmlError("not supported")
        return SimpleNamespace(gpu={1: 90, 3: 71}[handle])

    return SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUtilizationRates=rates,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=handle << 30),
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


def test_time_and_memory_are_those_of_the_whole_tree(parent):
    used = consumption(parent.pid)

    assert used is not None
    assert used.cpu_seconds >= 0.2  # also of the child that has ended
    assert 128 << 20 <= used.memory_bytes < 512 << 20


def test_a_process_that_is_gone_uses_nothing(parent):
    end(parent)

    assert consumption(parent.pid) is None
    assert UsageMeter(CPU).sample(parent.pid) == {}


def test_processor_time_is_told_from_the_second_sample_on():
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


def test_a_gpu_that_does_not_tell_all_tells_the_rest():
    sample = UsageMeter(GPUS, load_nvml=lambda: fake_nvml(splits=True)).sample(os.getpid())

    assert "gpu_utilization" not in sample
    assert sample["gpu_memory_mb"] == 4096.0


def test_without_driver_or_library_there_are_no_gpu_values():
    def missing():
        raise ImportError("pynvml")

    assert set(UsageMeter(GPUS, load_nvml=missing).sample(os.getpid())) == {"memory_mb"}


def test_cpu_slots_and_simulated_devices_ask_no_driver():
    simulated = (Device(index=0, type="h200", simulated=True), *CPU)

    meter = UsageMeter(simulated, load_nvml=lambda: pytest.fail("asked for NVML"))

    assert set(meter.sample(os.getpid())) == {"memory_mb"}


def test_samples_are_at_most_every_two_seconds(monkeypatch):
    assert usage.SAMPLE_SECONDS >= 2.0
    monkeypatch.setattr(usage, "SAMPLE_SECONDS", 0.01)
    arrived = threading.Event()
    samples = []

    def take(values):
        samples.append(values)
        arrived.set()

    watch = UsageWatch(CPU, take)
    watch.start(os.getpid())
    assert arrived.wait(5)
    watch.stop()
    next(t for t in threading.enumerate() if t.name == "usage").join(5)

    assert set(samples[0]) == {"memory_mb", "cpu_percent"}
