"""The device files of single NVIDIA GPUs, from the driver's files in /proc; NVML would be too large for every
supervisor.
"""

import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

DEV = Path("/dev")
DRIVER = Path("/proc/driver/nvidia/gpus")
# Files that every program on a GPU opens, whichever GPU it uses. No /dev/dri: it gives access to all GPUs. No
# nvidia-caps: who opens its files uses other jobs' MIG slices, or changes which there are.
SHARED = ("nvidiactl", "nvidia-uvm*", "nvidia-caps-imex-channels", "infiniband")
_CAPABILITIES = "nvidia-caps"  # in DEV; the driver's files name the minor number of each
# What programs open for RDMA; other files of that directory are for those who manage the network.
_OF_RDMA = ("rdma_cm", "uverbs*")
_FOR_ALL = stat.S_IROTH | stat.S_IWOTH

# Where sandboxes whose root is an image's have the driver's libraries, which must be those of the machine's driver.
GPU_LIBRARIES = Path("/.trainyard/gpu")
_LIBRARY = re.compile(
    r"^\s*(lib(?:cuda|nvidia-[\w-]+|nvcuvid|cudadebugger)\.so\.[\d.]+) \(.*64\b.*\) => (/\S+)$", re.MULTILINE
)

_FIELD = re.compile(r"^(GPU UUID|Device Minor):\s*(\S+)", re.MULTILINE)
_UUID = re.compile(r"^GPU-[0-9a-fA-F-]+$")  # question marks until the GPU is first used
_CAPABILITY = re.compile(r"^DeviceFileMinor:\s*(\d+)", re.MULTILINE)


class UnknownGpuFiles(RuntimeError):
    """The device files of a GPU, or of a MIG slice, can't be distinguished from those of others."""


@dataclass(frozen=True)
class GpuDevice:
    minor: int
    uuid: str


@dataclass(frozen=True, kw_only=True)
class MigInstance:
    """A MIG slice, in the driver's numbers: the GPU's index, a GPU instance of it, a compute instance of that."""

    gpu: int
    gpu_instance: int
    compute_instance: int


def driver_gpus(*, dev: Path = DEV, driver: Path = DRIVER) -> list[GpuDevice]:
    """The GPUs that this process may open, in PCI order, which is also NVML's."""
    found = []
    for path in sorted(driver.glob("*/information")):
        fields = dict(_FIELD.findall(path.read_text(errors="replace")))
        minor = fields.get("Device Minor", "")
        # A container may see the whole driver, but only the files of its own GPUs.
        if minor.isdecimal() and (dev / f"nvidia{minor}").exists():
            found.append(GpuDevice(int(minor), fields.get("GPU UUID", "")))
    return found


def own_gpus(indices: Sequence[int], *, dev: Path = DEV, driver: Path = DRIVER) -> list[GpuDevice]:
    """The GPUs with these indices; none when they cannot all be identified for sure."""
    if not indices:
        return []
    gpus = driver_gpus(dev=dev, driver=driver)
    own = [gpus[index] for index in indices if index < len(gpus)]
    return own if len(own) == len(indices) and all(_UUID.match(gpu.uuid) for gpu in own) else []


def driver_libraries() -> dict[str, Path]:
    """File by name of the driver's libraries, as the dynamic linker finds them; none without a driver."""
    ldconfig = shutil.which("ldconfig", path="/sbin:/usr/sbin")  # which are not on every user's PATH
    if ldconfig is None:
        return {}
    return libraries_in(subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False).stdout)


def libraries_in(linker_cache: str) -> dict[str, Path]:
    """As ``driver_libraries``, of what `ldconfig -p` prints."""
    return {name: Path(path) for name, path in reversed(_LIBRARY.findall(linker_cache))}


def gpu_files(
    indices: Sequence[int], slices: Sequence[MigInstance] = (), *, dev: Path = DEV, driver: Path = DRIVER
) -> list[Path]:
    """The files of these GPUs, those of these slices of them, and the shared ones. Raises UnknownGpuFiles."""
    if not indices:
        return []
    own = _files_of_gpus(indices, dev=dev, driver=driver)
    capabilities = [path for each in slices for path in _files_of_slice(each, dev=dev, driver=driver)]
    return [*dict.fromkeys([*own, *capabilities, *_shared(dev)])]


def _shared(dev: Path) -> list[Path]:
    return sorted(path for pattern in SHARED for path in dev.glob(pattern))


def _all_files_of_gpus(dev: Path) -> list[Path]:
    return sorted(dev.glob("nvidia[0-9]*"))


def _files_of_gpus(indices: Sequence[int], *, dev: Path, driver: Path) -> list[Path]:
    if own := own_gpus(indices, dev=dev, driver=driver):
        return [dev / f"nvidia{gpu.minor}" for gpu in own]
    files = _all_files_of_gpus(dev)
    if not files or (len(files) == 1 and set(indices) == {0}):
        return files  # there is no other GPU to keep apart
    raise UnknownGpuFiles(
        f"{driver} doesn't tell which device file is which GPU's: give the worker's container that directory, or only "
        "one GPU, and run a worker for each"
    )


def _minor_of(index: int, *, dev: Path, driver: Path) -> str:
    for path in _files_of_gpus([index], dev=dev, driver=driver):
        return path.name.removeprefix("nvidia")
    raise UnknownGpuFiles(f"{dev} has no file of a GPU: show them to the worker")


def _files_of_slice(part: MigInstance, *, dev: Path, driver: Path) -> Iterator[Path]:
    """See the MIG user guide of NVIDIA, "Device Nodes and Capabilities"."""
    minor = _minor_of(part.gpu, dev=dev, driver=driver)
    instance = driver.parent / "capabilities" / f"gpu{minor}" / "mig" / f"gi{part.gpu_instance}"
    for access in (instance / "access", instance / f"ci{part.compute_instance}" / "access"):
        try:
            found = _CAPABILITY.search(access.read_text())
        except OSError as error:
            raise UnknownGpuFiles(f"{access} can't be read ({error.strerror}): show it to the worker") from error
        path = dev / _CAPABILITIES / f"nvidia-cap{found[1]}" if found else None
        if path is None or not path.exists():
            raise UnknownGpuFiles(
                f"{path or access} is missing: make it with nvidia-modprobe, and show it to the worker"
            )
        yield path


def closed_files(paths: Iterable[Path]) -> list[Path]:
    """Those of these device files (as of ``gpu_files``) that not all users may read and write."""
    return [path for path in _opened(paths) if _is_closed(path)]


def closed_gpu_files(*, dev: Path = DEV) -> list[Path]:
    """As ``closed_files``, of all GPUs of this machine, whichever file is whose, without their slices."""
    own = _all_files_of_gpus(dev)
    return closed_files([*own, *_shared(dev)]) if own else []


def _opened(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        yield path
        if path.name == "infiniband":
            yield from sorted(file for pattern in _OF_RDMA for file in path.glob(pattern))


def _is_closed(path: Path) -> bool:
    mode = path.stat().st_mode
    needed = stat.S_IROTH if path.parent.name == _CAPABILITIES else _FOR_ALL  # which are only read
    return stat.S_ISCHR(mode) and mode & needed != needed
