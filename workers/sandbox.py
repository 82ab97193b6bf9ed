"""What the ranks of one attempt may see and use: bubblewrap where it works, else only a process group.

One sandbox holds all ranks of an attempt on this node, so that they share /dev/shm and IPC.
"""

import functools
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

BUBBLEWRAP = "bubblewrap"
PROCESS = "process"

GPU_DEVICES = ("nvidia*", "dri", "infiniband", "kfd")
PROBE_SECONDS = 10


@dataclass(frozen=True, kw_only=True)
class View:
    """The part of the file system that an attempt needs."""

    run_dir: Path
    data_dir: Path  # hidden, but for run_dir and what readable names
    script_dir: Path | None = None  # seen as run_dir/code
    readable: tuple[Path, ...] = ()  # model, data, resume checkpoint
    protected: tuple[Path, ...] = ()  # files in run_dir that the ranks may read but not change
    uses_gpus: bool = False

    @property
    def code_dir(self) -> Path:
        return self.run_dir / "code"

    @property
    def temporary_dir(self) -> Path:
        return self.run_dir / "tmp"


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
        if view.script_dir is not None and not view.code_dir.is_symlink():
            view.code_dir.symlink_to(view.script_dir, target_is_directory=True)
        return list(command)


class Bubblewrap:
    """Own mounts, PID and IPC namespace; everything dies with the supervisor's main thread."""

    kind = BUBBLEWRAP

    def enclose(self, command: Sequence[str], view: View) -> list[str]:
        view.temporary_dir.mkdir(parents=True, exist_ok=True)
        view.code_dir.mkdir(exist_ok=True)
        return [
            "bwrap",
            *("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
            *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
            *_mount_arguments(view),
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
    probe = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]  # noqa: S108 – a mount point
    probe += ["--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--", "true"]
    try:
        return subprocess.run(probe, capture_output=True, timeout=PROBE_SECONDS, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@dataclass(frozen=True)
class _Mount:
    target: Path
    arguments: tuple[str, ...]


def _mount_arguments(view: View) -> list[str]:
    """Mounts from the root downwards, so that a narrower one shows through a wider one that hides."""
    temporary = Path("/tmp")  # noqa: S108 – what the sandbox puts there is its own
    data_dir = view.data_dir.resolve()
    mounts = [
        _Mount(temporary, ("--bind", str(view.temporary_dir), str(temporary))),
        _Mount(data_dir, ("--tmpfs", str(data_dir))),
        _Mount(view.run_dir, ("--bind", str(view.run_dir), str(view.run_dir))),
    ]
    hidden = (temporary, data_dir)
    shown = {path.resolve() for path in (*_our_code(), *view.readable)}
    # Only what a hidden directory would cover: the rest of / is readable anyway.
    mounts += [_read_only(path, path) for path in shown if any(_within(path, outer) for outer in hidden)]
    mounts += [_read_only(path, path) for path in view.protected]
    mounts += _code_mounts(view, data_dir)
    if view.uses_gpus:
        mounts += [_Mount(path, ("--dev-bind", str(path), str(path))) for path in _gpu_devices()]
    mounts.sort(key=lambda mount: len(mount.target.parts))
    return [argument for mount in mounts for argument in mount.arguments]


def _code_mounts(view: View, data_dir: Path) -> list[_Mount]:
    if view.script_dir is None:
        return []
    source = view.script_dir.resolve()
    mounts = [_read_only(source, view.code_dir)]
    if _within(data_dir, source):
        # A script in the directory that also holds our data must not show it by this way round.
        inner = view.code_dir / data_dir.relative_to(source)
        mounts.append(_Mount(inner, ("--tmpfs", str(inner))))
    return mounts


def _read_only(source: Path, target: Path) -> _Mount:
    return _Mount(target, ("--ro-bind", str(source), str(target)))


def _our_code() -> Iterable[Path]:
    """The interpreter, its environment and our packages: needed wherever they were installed."""
    yield Path(sys.prefix)
    yield Path(sys.base_prefix)
    yield Path(__file__).parents[1]
    yield from (Path(entry) for entry in sys.path if entry and Path(entry).exists())


def _within(path: Path, outer: Path) -> bool:
    return path == outer or outer in path.parents


def _gpu_devices() -> list[Path]:
    return sorted(path for pattern in GPU_DEVICES for path in Path("/dev").glob(pattern))
