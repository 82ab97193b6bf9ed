"""Which device files a job of some GPUs gets to see."""

import os
import stat
from pathlib import Path

import pytest

from app.host.gpu_devices import (
    MigInstance,
    UnknownGpuFiles,
    closed_files,
    closed_gpu_files,
    gpu_files,
    libraries_in,
    own_gpus,
)

UUIDS = ["GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000"]


@pytest.fixture
def machine(tmp_path):
    """Two GPUs whose minor numbers run against their PCI order, and one whose file is not ours."""
    dev, driver = tmp_path / "dev", tmp_path / "gpus"
    (dev / "nvidia-caps").mkdir(parents=True)
    for number in range(1, 9):
        (dev / "nvidia-caps" / f"nvidia-cap{number}").touch()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "null"):
        (dev / name).touch()
    for bus, minor, uuid in (
        ("0000:19:00.0", 1, UUIDS[0]),
        ("0000:3b:00.0", 7, "GPU-x"),
        ("0000:4c:00.0", 0, UUIDS[1]),
    ):
        (driver / bus).mkdir(parents=True)
        text = f"Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
        (driver / bus / "information").write_text(text)
    return {"dev": dev, "driver": driver}


SHARED = ["nvidia-uvm", "nvidia-uvm-tools", "nvidiactl"]


def names(files):
    return sorted(path.name for path in files)


@pytest.mark.parametrize(("indices", "own"), [([0], ["nvidia1"]), ([1], ["nvidia0"]), ([0, 1], ["nvidia0", "nvidia1"])])
def test_job_sees_its_own_gpus_only(machine, indices, own):
    assert names(gpu_files(indices, **machine)) == sorted(own + SHARED)


def test_own_gpus_are_known_by_uuid(machine):
    assert [gpu.uuid for gpu in own_gpus([1, 0], **machine)] == [UUIDS[1], UUIDS[0]]


@pytest.mark.parametrize("indices", [[0], [1], [0, 1]])
def test_where_the_driver_does_not_tell_no_job_gets_files_of_others(machine, tmp_path, indices):
    silent = {**machine, "driver": tmp_path / "none"}

    assert own_gpus([0], **silent) == []
    with pytest.raises(UnknownGpuFiles, match="run a worker for each"):
        gpu_files(indices, **silent)


def test_only_gpu_of_a_machine_needs_no_word_of_the_driver(machine, tmp_path):
    (machine["dev"] / "nvidia0").unlink()
    silent = {**machine, "driver": tmp_path / "none"}

    assert names(gpu_files([0], **silent)) == sorted(["nvidia1", *SHARED])
    with pytest.raises(UnknownGpuFiles):
        gpu_files([1], **silent)


def test_where_there_are_no_files_of_gpus_none_are_kept_apart(tmp_path):
    nowhere = tmp_path / "nowhere"

    assert gpu_files([0, 1], dev=nowhere, driver=nowhere) == []
    with pytest.raises(UnknownGpuFiles, match="has no file of a GPU: show them to the worker"):
        gpu_files([0], [FIRST], dev=nowhere, driver=nowhere)


def test_uuid_that_the_driver_has_not_read_yet_is_not_used(machine):
    path = machine["driver"] / "0000:19:00.0" / "information"
    path.write_text("GPU UUID: \t GPU-????????-????-????-????-????????????\nDevice Minor: \t 1\n")

    assert own_gpus([0], **machine) == []
    with pytest.raises(UnknownGpuFiles):
        gpu_files([0], **machine)


def capability(machine, path, minor):
    access = machine["driver"].parent / "capabilities" / path / "access"
    access.parent.mkdir(parents=True, exist_ok=True)
    access.write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")


@pytest.fixture
def divided(machine):
    """GPU 0, whose minor number is 1, with two slices; other files of capabilities are those of other slices."""
    for path, minor in (
        *(("gpu1/mig/gi3", 3), ("gpu1/mig/gi3/ci0", 4), ("gpu1/mig/gi5", 5), ("gpu1/mig/gi5/ci0", 6)),
        *(("gpu0/mig/gi3", 7), ("gpu0/mig/gi3/ci0", 8), ("mig/config", 1), ("mig/monitor", 2)),
    ):
        capability(machine, path, minor)
    return machine


FIRST = MigInstance(gpu=0, gpu_instance=3, compute_instance=0)
SECOND = MigInstance(gpu=0, gpu_instance=5, compute_instance=0)


@pytest.mark.parametrize(("slices", "own"), [([FIRST], [3, 4]), ([SECOND], [5, 6]), ([FIRST, SECOND], [3, 4, 5, 6])])
def test_job_sees_the_capabilities_of_its_own_slices_only(divided, slices, own):
    files = gpu_files([each.gpu for each in slices], slices, **divided)

    assert names(files) == sorted(["nvidia1", *SHARED, *(f"nvidia-cap{minor}" for minor in own)])


@pytest.mark.parametrize(
    ("slice_", "what"),
    [
        (MigInstance(gpu=0, gpu_instance=4, compute_instance=0), "gi4/access can't be read"),
        (MigInstance(gpu=0, gpu_instance=3, compute_instance=1), "ci1/access can't be read"),
    ],
)
def test_slice_that_the_driver_does_not_name_gets_no_files(divided, slice_, what):
    with pytest.raises(UnknownGpuFiles, match=what):
        gpu_files([0], [slice_], **divided)


def test_slice_whose_file_is_missing_gets_none_of_another(divided):
    (divided["dev"] / "nvidia-caps" / "nvidia-cap4").unlink()

    with pytest.raises(UnknownGpuFiles, match="nvidia-cap4 is missing"):
        gpu_files([0], [FIRST], **divided)


def test_job_on_the_cpu_sees_none(machine):
    assert gpu_files([], **machine) == []


def test_libraries_of_the_driver_are_those_that_the_linker_finds():
    printed = """\
1234 libs found in cache `/etc/ld.so.cache'
\tlibnvidia-ml.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libnvidia-ml.so.1
\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1
\tlibcuda.so.1 (libc6,x86-64) => /usr/local/cuda/compat/libcuda.so.1
\tlibcuda.so.1 (libc6) => /lib/i386-linux-gnu/libcuda.so.1
\tlibcuda.so (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so
\tlibcudart.so.13 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.13
"""

    assert libraries_in(printed) == {
        "libcuda.so.1": Path("/lib/x86_64-linux-gnu/libcuda.so.1"),
        "libnvidia-ml.so.1": Path("/lib/x86_64-linux-gnu/libnvidia-ml.so.1"),
    }


def device(path: Path, mode: int) -> Path:
    """A file of a kind that every user may make, and none can open."""
    path.parent.mkdir(exist_ok=True)
    os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))
    path.chmod(mode)
    return path


def test_device_that_not_all_users_may_use_is_found(tmp_path):
    paths = [device(tmp_path / name, mode) for name, mode in (("nvidia0", 0o666), ("nvidiactl", 0o660))]

    assert closed_files(paths) == paths[1:]
    assert closed_files(paths[:1]) == []


def test_files_of_rdma_that_programs_open_are_looked_at(tmp_path):
    directory = tmp_path / "infiniband"
    device(directory / "umad0", 0o600)  # for those who manage the network
    device(directory / "rdma_cm", 0o666)
    last = device(directory / "uverbs0", 0o666)

    assert closed_files([directory]) == []
    last.chmod(0o600)
    assert closed_files([directory]) == [last]


def test_files_of_capabilities_need_only_be_read(tmp_path):
    readable = device(tmp_path / "nvidia-caps" / "nvidia-cap3", 0o444)
    private = device(tmp_path / "nvidia-caps" / "nvidia-cap1", 0o400)

    assert closed_files([readable, private]) == [private]


def test_files_of_all_gpus_of_a_machine_are_looked_at(machine):
    dev = machine["dev"]
    assert closed_gpu_files(dev=dev) == []
    for name in ("nvidia1", "nvidiactl"):
        (dev / name).unlink()
    shut = [device(dev / name, 0o600) for name in ("nvidia1", "nvidiactl")]

    assert closed_gpu_files(dev=dev) == shut


def test_machine_without_gpus_has_none_that_are_closed(tmp_path):
    device(tmp_path / "infiniband" / "uverbs0", 0o600)

    assert closed_gpu_files(dev=tmp_path) == []
