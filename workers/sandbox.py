"""What the ranks of one attempt may see and use: bubblewrap where it works, else only a process group.

One sandbox holds all ranks of an attempt on this node, so that they share /dev/shm and IPC.
"""

import functools
import shutil
import subprocess
from collections.abc import Sequence
from typing import Protocol

from workers.kernel_files import kernel_arguments
from workers.mounts import View, mount_arguments

__all__ = [
    "BUBBLEWRAP",
    "PROCESS",
    "Bubblewrap",
    "ProcessGroup",
    "Sandbox",
    "View",
    "bubblewrap_works",
    "choose_sandbox",
]

BUBBLEWRAP = "bubblewrap"
PROCESS = "process"

PROBE_SECONDS = 10

# The network stays the machine's: ranks of several nodes must find each other.
CONFINEMENT = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
)


class Sandbox(Protocol):
    """Turns a command line into one that runs confined to a view."""

    kind: str

    def enclose(self, command: Sequence[str], view: View) -> list[str]:
        """The command to start; also prepares directories that the confinement needs."""
        ...


class ProcessGroup:
    """No confinement: for machines where bubblewrap is missing or not allowed to make namespaces."""

    kind = PROCESS

    def enclose(self, command: Sequence[str], view: View) -> list[str]:
        if view.code is not None and not view.code_dir.is_symlink():
            view.code_dir.symlink_to(view.code, target_is_directory=True)
        return list(command)


class Bubblewrap:
    """Own mounts, PID, IPC, UTS and cgroup namespace; everything dies with the supervisor's main thread."""

    kind = BUBBLEWRAP

    def enclose(self, command: Sequence[str], view: View) -> list[str]:
        view.temporary_dir.mkdir(parents=True, exist_ok=True)
        view.code_dir.mkdir(exist_ok=True)
        return [
            "bwrap",
            *CONFINEMENT,
            *kernel_arguments(),
            *mount_arguments(view),
            *("--chdir", str(view.run_dir), "--"),
            *command,
        ]


def choose_sandbox(wish: str = "auto") -> Sandbox:
    """The sandbox of this machine for the setting `node.sandbox`; bubblewrap is probed once per process.

    Raises RuntimeError when bubblewrap is demanded but does not work here.
    """
    if wish == PROCESS:
        return ProcessGroup()
    if bubblewrap_works():
        return Bubblewrap()
    if wish == BUBBLEWRAP:
        raise RuntimeError("TRAINYARD_NODE_SANDBOX=bubblewrap, but bwrap can't make a sandbox on this machine")
    return ProcessGroup()


@functools.cache
def bubblewrap_works() -> bool:
    """Whether bwrap is installed and may make the namespaces we use (many containers forbid it)."""
    if shutil.which("bwrap") is None:
        return False
    masks = (*kernel_arguments(), "--tmpfs", "/tmp", "--remount-ro", "/tmp")  # noqa: S108 – a mount point
    probe = ["bwrap", *CONFINEMENT, *masks, "--", "true"]
    try:
        return subprocess.run(probe, capture_output=True, timeout=PROBE_SECONDS, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
