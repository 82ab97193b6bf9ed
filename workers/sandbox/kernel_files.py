"""Kernel files in a sandbox: settings are read-only and machine details are masked, as in containers.

Root owns these files, so neither a PID namespace nor dropped capabilities protect them: writing `kernel.core_pattern`
runs a program as root on the machine. bubblewrap covers /proc/sys only where the directory itself is writable, which it
never is.
"""

from collections.abc import Iterator
from pathlib import Path

# The lists of Docker, containerd and Podman.
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
MASKED = (
    *("/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
    *("/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats"),
    *("/sys/devices/virtual/powercap", "/sys/firmware"),
    # File systems that containers do not mount at all.
    *("/sys/fs/bpf", "/sys/fs/pstore", "/sys/kernel/config", "/sys/kernel/debug", "/sys/kernel/security"),
    "/sys/kernel/tracing",
)


def kernel_arguments() -> list[str]:
    """Mounts over a fresh /proc and the machine's /sys, for files that this kernel has."""
    return [argument for arguments in _mounts() for argument in arguments]


def _mounts() -> Iterator[tuple[str, ...]]:
    for path in filter(_exists, READ_ONLY):
        yield "--ro-bind", path, path
    for path in filter(_exists, MASKED):
        if Path(path).is_dir():
            yield "--tmpfs", path, "--remount-ro", path
        else:
            yield "--ro-bind", "/dev/null", path


def _exists(path: str) -> bool:
    return Path(path).exists()
