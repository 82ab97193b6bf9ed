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
# Files that every program on a GPU opens, whichever GPU it uses. No /dev/dri: it gives access to all GPUs.
SHARED = ("nvidiactl", "nvidia-uvm*", "nvidia-caps", "nvidia-caps-imex-channels", "infiniband")
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


@dataclass(frozen=True)
class GpuDevice:
    minor: int
    uuid: str


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


def gpu_files(indices: Sequence[int], *, dev: Path = DEV, driver: Path = DRIVER) -> list[Path]:
    """The files of these GPUs and the shared ones; those of every GPU when the files cannot be assigned."""
    if not indices:
        return []
    own = [dev / f"nvidia{gpu.minor}" for gpu in own_gpus(indices, dev=dev, driver=driver)]
    files = own or sorted(dev.glob("nvidia[0-9]*"))
    return files + sorted(path for pattern in SHARED for path in dev.glob(pattern))


def closed_files(paths: Iterable[Path]) -> list[Path]:
    """Those of these device files (as of ``gpu_files``) that not all users may read and write."""
    return [path for path in _opened(paths) if _is_closed(path)]


def closed_gpu_files(*, dev: Path = DEV, driver: Path = DRIVER) -> list[Path]:
    """As ``closed_files``, of all GPUs of this machine."""
    indices = range(len(driver_gpus(dev=dev, driver=driver)))
    return closed_files(gpu_files(indices, dev=dev, driver=driver))


def _opened(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        yield path
        if path.name == "infiniband":
            yield from sorted(file for pattern in _OF_RDMA for file in path.glob(pattern))


def _is_closed(path: Path) -> bool:
    mode = path.stat().st_mode
    return stat.S_ISCHR(mode) and mode & _FOR_ALL != _FOR_ALL
