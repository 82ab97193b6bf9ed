"""What the ranks of one attempt may see and use: what bubblewrap shows them, or all where an operator wants no sandbox.

One sandbox holds all ranks of an attempt on this node, so that they share /dev/shm and IPC.
"""

from collections.abc import Sequence
from typing import Protocol

from app.domain.nodes.sandboxes import AT_OWN_RISK, BUBBLEWRAP, PROCESS, WAYS_OUT
from app.host.bubblewrap import Lack, lack_of_sandbox
from workers.sandbox.kernel_files import kernel_arguments
from workers.sandbox.mounts import View, mount_arguments

__all__ = [
    "BUBBLEWRAP",
    "PROCESS",
    "Bubblewrap",
    "NoSandbox",
    "ProcessGroup",
    "Sandbox",
    "View",
    "choose_sandbox",
]

# The network stays the machine's: ranks of several nodes must find each other.
CONFINEMENT = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
)


class NoSandbox(RuntimeError):
    """Bubblewrap can't confine jobs on this machine, and no operator said that they may run without."""

    def __init__(self, lack: Lack) -> None:
        super().__init__(f"{lack}; {WAYS_OUT[lack.kind]}, or, {AT_OWN_RISK}")
        self.kind = lack.kind


class Sandbox(Protocol):
    """Turns a command line into one that runs confined to a view."""

    kind: str

    def enclose(self, command: Sequence[str], view: View) -> list[str]:
        """The command to start; also prepares directories that the confinement needs."""
        ...


class ProcessGroup:
    """No confinement: for machines whose operator trusts all users with everything that the node worker may do."""

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
    """The sandbox of this machine for the setting `node.sandbox`, tried out. Raises NoSandbox."""
    if wish == PROCESS:
        return ProcessGroup()
    masks = (*kernel_arguments(), "--tmpfs", "/tmp", "--remount-ro", "/tmp")  # noqa: S108 – a mount point
    lack = lack_of_sandbox((*CONFINEMENT, *masks))
    if lack is not None:
        raise NoSandbox(lack)
    return Bubblewrap()
