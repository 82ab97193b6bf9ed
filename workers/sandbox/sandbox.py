"""Confines the ranks of an attempt: by bubblewrap, or not at all where the operator has disabled the sandbox.

One sandbox holds all ranks of an attempt on this node, so that they share /dev/shm and IPC.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from app.domain.nodes.sandboxes import BUBBLEWRAP, LANDLOCK, PROCESS, way_out
from app.host.bubblewrap import Lack, lack_of_sandbox
from app.host.landlock import lack_of_landlock
from app.host.oom_score import holds_scores
from app.host.system_calls import filter_file
from workers.sandbox.accounts import HOSTS, account_files
from workers.sandbox.kernel_files import kernel_arguments
from workers.sandbox.landlock_rules import file_rules
from workers.sandbox.mounts import OURS, mounts
from workers.sandbox.placements import MountKind, SandboxMount
from workers.sandbox.spec import Account, SandboxSpec
from workers.sandbox.staging import entered_by

__all__ = ["BUBBLEWRAP", "PROCESS", "Bubblewrap", "ProcessGroup", "Sandbox", "SandboxUnavailable", "choose_sandbox"]

# A user namespace gives no process a capability outside of it. bubblewrap's own --disable-userns is not needed: the
# filter of system calls forbids all further namespaces.
NAMESPACES = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
)
_PROGRAM = "bwrap"
OWN_NETWORK = ("--unshare-net",)
_KERNEL = ("--dev", "/dev", "--proc", "/proc", "--ro-bind", "/sys", "/sys")
_ENTERS = f"import sys; sys.path.insert(0, {str(OURS)!r}); from workers.sandbox.landlocked import main; main()"
_LANDLOCKED = (sys.executable, "-I", "-c", _ENTERS)
_SHARED_MEMORY = ("--perms", "1777", "--tmpfs", "/dev/shm")  # noqa: S108 – a mount point
_ALWAYS_READ_ONLY = (Path("/"), Path("/dev"))
_READ_ONLY_IN_IMAGES = (Path("/dev"),)  # what is written to the root lies in the run directory


class SandboxUnavailable(RuntimeError):
    """Bubblewrap cannot confine jobs on this machine, and the operator has not allowed running without it."""

    def __init__(self, lack: Lack) -> None:
        super().__init__(f"{lack}; {way_out(lack.kind)}")
        self.kind = lack.kind


@dataclass(frozen=True)
class Enclosed:
    """A confined command line, and the files that its process has to inherit."""

    command: Sequence[str]
    files: tuple[int, ...] = ()

    def with_options(self, *options: str) -> list[str]:
        """The command with more options of bubblewrap, which is its program or becomes it."""
        at = list(self.command).index(_PROGRAM) + 1
        return [*self.command[:at], *options, *self.command[at:]]


class Sandbox(Protocol):
    """Wraps a command line so that it runs confined to a view."""

    kind: str
    reported: str  # by the node: more kinds than matter to what runs in them

    def enclosed(self, command: Sequence[str], spec: SandboxSpec) -> AbstractContextManager[Enclosed]:
        """To be started once, inside the context; also prepares directories that the confinement needs."""
        ...


class ProcessGroup:
    """No confinement: for machines whose operator trusts all users with the node worker's permissions."""

    kind = reported = PROCESS

    @contextmanager
    def enclosed(self, command: Sequence[str], spec: SandboxSpec) -> Iterator[Enclosed]:
        view = spec.view
        if view.code is not None and not view.code_dir.is_symlink():
            view.code_dir.symlink_to(view.code, target_is_directory=True)
        yield Enclosed(command)


class Landlocked(ProcessGroup):
    """Processes of the worker's user that reach the files of their attempt alone, and no more system calls than others:
    for machines without namespaces. Network, users and processes are the machine's.
    """

    reported = LANDLOCK

    @contextmanager
    def enclosed(self, command: Sequence[str], spec: SandboxSpec) -> Iterator[Enclosed]:
        view = spec.view
        view.temporary_dir.mkdir(parents=True, exist_ok=True)
        rules = [[str(path), rights] for path, rights in file_rules(view)]
        temporary = ("env", f"TMPDIR={view.temporary_dir}")  # /tmp is the machine's
        with super().enclosed(command, spec) as plain, _text_file(json.dumps(rules)) as file:
            yield Enclosed([*_LANDLOCKED, str(file), "--", *temporary, *plain.command], (*plain.files, file))


class Bubblewrap:
    """Own user, mount, PID, IPC, UTS, cgroup and network namespaces, a root of its own, and a filter of system calls;
    everything dies with the supervisor's main thread.
    """

    kind = reported = BUBBLEWRAP

    @contextmanager
    def enclosed(self, command: Sequence[str], spec: SandboxSpec) -> Iterator[Enclosed]:
        view = spec.view
        view.temporary_dir.mkdir(parents=True, exist_ok=True)
        view.code_dir.mkdir(exist_ok=True)
        with filter_file(plain_modes=spec.plain_modes) as file, ExitStack() as stack:
            arguments = [*_user(spec.account), *NAMESPACES, *(OWN_NETWORK if spec.own_network else ())]
            found = mounts(view, own_user=spec.user is not None)
            entered = entered_by(spec.user, found, view)
            if entered.root is not None:
                arguments += ("--bind", str(entered.root), "/")
            arguments += (*_KERNEL, *kernel_arguments())
            arguments += [argument for mount in found for argument in _mount_arguments(mount, entered.sources)]
            files = [file]
            for path, (mode, text) in _texts(spec).items():
                files.append(stack.enter_context(_text_file(text)))
                arguments += ("--perms", mode, "--ro-bind-data", str(files[-1]), path)
            if not spec.own_network:
                arguments += ("--ro-bind-try", HOSTS, HOSTS)
            if spec.shm_mb:
                arguments += ("--size", str(spec.shm_mb << 20))
            arguments += _SHARED_MEMORY
            # Last, after the mounts inside: no directory that is not the job's can be used to fill memory.
            empty = [mount.target for mount in found if mount.kind == MountKind.EMPTY]
            empty += [placement.target for placement in view.placements if placement.files]
            writable_root = view.image is not None and not view.image.read_only
            always = _READ_ONLY_IN_IMAGES if writable_root else _ALWAYS_READ_ONLY
            for directory in (*empty, *always, *_with_scores()):
                arguments += ("--remount-ro", str(directory))
            arguments += ("--seccomp", str(file), "--chdir", str(view.run_dir))
            yield Enclosed([*entered.command, _PROGRAM, *arguments, "--", *command], tuple(files))


def _mount_arguments(mount: SandboxMount, sources: Mapping[Path, Path]) -> tuple[str, ...]:
    source, target = str(sources.get(mount.source, mount.source)), str(mount.target)
    match mount.kind:
        case MountKind.READ_ONLY:
            return "--ro-bind", source, target
        case MountKind.WRITABLE:
            return "--bind", source, target
        case MountKind.DEVICE:
            return "--dev-bind", source, target
        case MountKind.LINK:
            return "--symlink", source, target
        case MountKind.IMAGE | MountKind.FILE:  # the first is mounted before all others, the second after them
            return ()
        case MountKind.EMPTY:
            return "--tmpfs", target
        case MountKind.MEMORY:
            size = ("--size", str(mount.size_mb << 20)) if mount.size_mb else ()
            return *size, "--perms", "0755", "--tmpfs", target


def _texts(spec: SandboxSpec) -> dict[str, tuple[str, str]]:
    """Files that the sandbox makes: mode and text by path."""
    view = spec.view
    found = account_files(spec.account, own_network=spec.own_network, image=view.image)
    texts = {path: ("0444", text) for path, text in found.items()}
    for placement in view.placements:
        texts |= {str(placement.target / name): (placement.mode, text) for name, text in placement.files}
        if placement.text is not None:
            texts[str(placement.target)] = (placement.mode, placement.text)
    return texts


def _user(account: Account) -> tuple[str, ...]:
    return "--unshare-user", "--uid", str(account.uid), "--gid", str(account.gid)


def _with_scores() -> tuple[Path, ...]:
    """What must not be written to where the kernel lets a rank lower its score to that of the platform's processes."""
    return () if holds_scores() else (Path("/proc"),)


@contextmanager
def _text_file(text: str) -> Iterator[int]:
    """A file to inherit with this text."""
    descriptor = os.memfd_create("sandbox")
    try:
        os.write(descriptor, text.encode())
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def choose_sandbox(setting: str = "auto") -> Sandbox:
    """The sandbox for the setting `node.sandbox`, tested on this machine. Raises SandboxUnavailable."""
    if setting == PROCESS:
        return ProcessGroup()
    if setting == LANDLOCK:
        if (why := lack_of_landlock()) is not None:
            raise SandboxUnavailable(why)
        return Landlocked()
    root = ["--ro-bind", "/", "/", *_KERNEL, *kernel_arguments(), *_SHARED_MEMORY]
    for directory in (Path("/dev"), *_with_scores()):
        root += ("--remount-ro", str(directory))
    lack = lack_of_sandbox((*_user(Account()), *NAMESPACES, *OWN_NETWORK, *root))
    if lack is not None:
        raise SandboxUnavailable(lack)
    return Bubblewrap()
