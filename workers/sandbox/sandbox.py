"""Confines the ranks of an attempt: by bubblewrap, or not at all where the operator has disabled the sandbox.

One sandbox holds all ranks of an attempt on this node, so that they share /dev/shm and IPC.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from app.domain.nodes.sandboxes import AT_OWN_RISK, BUBBLEWRAP, PROCESS, WAYS_OUT
from app.host.bubblewrap import Lack, lack_of_sandbox
from app.host.system_calls import filter_file
from workers.sandbox.kernel_files import kernel_arguments
from workers.sandbox.mounts import FilesystemView, mount_arguments

__all__ = [
    "BUBBLEWRAP",
    "PROCESS",
    "Bubblewrap",
    "FilesystemView",
    "ProcessGroup",
    "Sandbox",
    "SandboxUnavailable",
    "choose_sandbox",
]

# The network namespace is the machine's: ranks of several nodes must reach each other.
CONFINEMENT = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
)


class SandboxUnavailable(RuntimeError):
    """Bubblewrap cannot confine jobs on this machine, and the operator has not allowed running without it."""

    def __init__(self, lack: Lack) -> None:
        super().__init__(f"{lack}; {WAYS_OUT[lack.kind]}, or, {AT_OWN_RISK}")
        self.kind = lack.kind


@dataclass(frozen=True)
class Enclosed:
    """A confined command line, and the files that its process has to inherit."""

    command: Sequence[str]
    files: tuple[int, ...] = ()


class Sandbox(Protocol):
    """Wraps a command line so that it runs confined to a view."""

    kind: str

    def enclosed(self, command: Sequence[str], view: FilesystemView) -> AbstractContextManager[Enclosed]:
        """To be started once, inside the context; also prepares directories that the confinement needs."""
        ...


class ProcessGroup:
    """No confinement: for machines whose operator trusts all users with the node worker's permissions."""

    kind = PROCESS

    @contextmanager
    def enclosed(self, command: Sequence[str], view: FilesystemView) -> Iterator[Enclosed]:
        if view.code is not None and not view.code_dir.is_symlink():
            view.code_dir.symlink_to(view.code, target_is_directory=True)
        yield Enclosed(command)


class Bubblewrap:
    """Own mount, PID, IPC, UTS and cgroup namespaces, and a filter of system calls; everything dies with the
    supervisor's main thread.
    """

    kind = BUBBLEWRAP

    @contextmanager
    def enclosed(self, command: Sequence[str], view: FilesystemView) -> Iterator[Enclosed]:
        view.temporary_dir.mkdir(parents=True, exist_ok=True)
        view.code_dir.mkdir(exist_ok=True)
        with filter_file() as file:
            arguments = [*CONFINEMENT, *kernel_arguments(), *mount_arguments(view), "--seccomp", str(file)]
            yield Enclosed(["bwrap", *arguments, "--chdir", str(view.run_dir), "--", *command], (file,))


def choose_sandbox(setting: str = "auto") -> Sandbox:
    """The sandbox for the setting `node.sandbox`, tested on this machine. Raises SandboxUnavailable."""
    if setting == PROCESS:
        return ProcessGroup()
    masks = (*kernel_arguments(), "--tmpfs", "/tmp", "--remount-ro", "/tmp")  # noqa: S108 – a mount point
    lack = lack_of_sandbox((*CONFINEMENT, *masks))
    if lack is not None:
        raise SandboxUnavailable(lack)
    return Bubblewrap()
