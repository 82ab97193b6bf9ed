"""How fast an attempt may read and write the machine's disks, as files of control groups.

`io.max` of version 2 (the kernel's admin-guide/cgroup-v2), `blkio.throttle` of version 1 (cgroup-v1/blkio-controller).
Version 1 holds reads, and writes that a process waits for: what the kernel writes back later counts for no group.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

BLOCK = Path("/sys/block")
RATES, READ_BYTES = "io.max", "blkio.throttle.read_bps_device"
# In the order of the fields.
_OF_VERSION_1 = (
    READ_BYTES,
    "blkio.throttle.write_bps_device",
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_iops_device",
)
_OF_VERSION_2 = ("rbps", "wbps", "riops", "wiops")
_NO_DISK = re.compile(r"(?:loop|ram|zram|sr|fd)\d+")  # what lies in them lies on a disk, in memory, or is not written


@dataclass(frozen=True, kw_only=True)
class DiskRates:
    """Per second, and for each disk; 0: no limit."""

    read_bytes: int = 0
    written_bytes: int = 0
    reads: int = 0
    writes: int = 0

    def __bool__(self) -> bool:
        return any(astuple(self))


def disks(block: Path = BLOCK) -> list[str]:
    """MAJOR:MINOR of each disk, also of those that are made of others. Hidden paths of NVMe have no number."""
    found = []
    for path in sorted(block.glob("*")):
        with contextlib.suppress(OSError):  # also a disk that has just been removed
            if not _NO_DISK.fullmatch(path.name) and not _is_hidden(path):
                found.append((path / "dev").read_text().strip())
    return found


def _is_hidden(disk: Path) -> bool:
    file = disk / "hidden"  # older kernels have none
    return file.exists() and file.read_text().strip() == "1"


def rate_files(rates: DiskRates, version: int, numbers: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(file, text): the kernel takes a disk in each write."""
    for number in numbers:
        if version == 2:
            named = zip(_OF_VERSION_2, astuple(rates), strict=True)
            yield RATES, " ".join([number, *(f"{name}={rate or 'max'}" for name, rate in named)])
        else:
            for file, rate in zip(_OF_VERSION_1, astuple(rates), strict=True):
                if rate:
                    yield file, f"{number} {rate}"
