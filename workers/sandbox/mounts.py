"""The mounts of a bubblewrap sandbox: the machine's programs, without secrets, plus the paths of one attempt."""

import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from workers.sandbox.gpu_devices import gpu_files

OURS = Path(__file__).parents[2]
# Homes and service directories. They also hold sockets (Docker's, PostgreSQL's), which a read-only mount does not
# block.
HIDDEN = (
    *("/root", "/home", "/run", "/var/run", "/srv"),
    *("/var/log", "/var/mail", "/var/spool", "/var/backups"),
    *("/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet"),
    *("/var/lib/postgresql", "/var/lib/mysql", "/var/lib/redis"),
)
# Directories, in addition to everything below /etc, in which files that are not world-readable are hidden from jobs.
SEARCHED = ("/var", "/var/lib")
CONFIGURATION = Path("/etc")
RESOLVER = Path("/etc/resolv.conf")  # often a link into /run
TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 – mount points: what the sandbox puts there is its own
KERNEL = ("/proc", "/sys", "/dev")  # the sandbox has its own
# Hiding one of these would leave nothing to run.
NEVER_HIDDEN = frozenset(map(Path, ("/", "/usr", "/etc", "/bin", "/lib", "/lib64", "/dev", "/proc", "/sys")))


@dataclass(frozen=True, kw_only=True)
class FilesystemView:
    """The part of the file system that an attempt needs."""

    run_dir: Path
    data_dir: Path  # hidden, except for run_dir and readable paths
    code: Path | None = None  # a user directory, mounted at run_dir/code
    readable: tuple[Path, ...] = ()  # model, data, resume checkpoint
    libraries: tuple[Path, ...] = ()  # paths named by inherited environment variables
    protected: tuple[Path, ...] = ()  # files in run_dir that are read-only for the ranks
    hidden: tuple[Path, ...] = ()  # other paths of ours that no job may see: directories, or single files
    gpus: tuple[int, ...] = ()  # NVML indices

    @property
    def code_dir(self) -> Path:
        return self.run_dir / "code"

    @property
    def temporary_dir(self) -> Path:
        return self.run_dir / "tmp"


@dataclass(frozen=True)
class _Mount:
    target: Path
    arguments: tuple[str, ...]


def mount_arguments(view: FilesystemView) -> list[str]:
    """Mounts ordered from the root down, so that a narrow mount shows through a wider one that hides."""
    temporary = _existing(TEMPORARY)
    directories, files = _hidden(view)
    hiding = {*directories, *temporary}
    shown = dict(_shown(view))
    empty = [path for path in directories if not _is_covered(path, set(directories), shown)]
    mounts = [_empty(path) for path in empty]
    mounts += [_Mount(path, ("--bind", str(view.temporary_dir), str(path))) for path in temporary]
    mounts.append(_Mount(view.run_dir, ("--bind", str(view.run_dir), str(view.run_dir))))
    # Only what a hidden directory would cover; the rest of / is readable anyway.
    mounts += [
        _read_only(real, path) for path, real in shown.items() if path in hiding or _is_covered(path, hiding, shown)
    ]
    mounts += [_nothing(path) for path in files if not _is_covered(path, hiding, shown)]
    mounts += [_read_only(path, path) for path in view.protected]
    mounts += _code_mounts(view, {*hiding, *map(Path, KERNEL)}, files)
    mounts += [_Mount(path, ("--dev-bind", str(path), str(path))) for path in gpu_files(view.gpus)]
    mounts.sort(key=lambda mount: len(mount.target.parts))
    arguments = [argument for mount in mounts for argument in mount.arguments]
    # Last, after the mounts inside: a hidden directory stays empty and cannot be used to fill memory.
    for path in empty:
        arguments += ("--remount-ro", str(path)) if path not in temporary else ()
    return arguments


def _hidden(view: FilesystemView) -> tuple[list[Path], list[Path]]:
    """(directories, files) that are hidden from every process in the sandbox."""
    private = {path for top in _existing(SEARCHED) for path in _not_for_everyone(top, deep=False)}
    private |= set(_not_for_everyone(CONFIGURATION, deep=True))
    passwords = OURS / ".env"  # beside docker-compose.yml
    wanted = {view.data_dir.resolve(), *_existing((*HIDDEN, *view.hidden, passwords)), *private} - NEVER_HIDDEN
    directories = sorted(path for path in wanted if path.is_dir())
    return directories, sorted(wanted.difference(directories))


def _not_for_everyone(top: Path, *, deep: bool) -> Iterator[Path]:
    """Files and directories below ``top`` that are not world-readable; ranks running as root could read them as
    owner.
    """
    for directory, names, files in os.walk(top):
        for name in (*names, *files):
            path = Path(directory, name)
            try:
                mode = path.lstat().st_mode
            except OSError:
                continue
            needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
            if not stat.S_ISLNK(mode) and mode & needed != needed:
                yield path
                if name in names:
                    names.remove(name)  # os.walk does not descend into removed names
        if not deep:
            return


def _shown(view: FilesystemView) -> Iterator[tuple[Path, Path]]:
    """(path in the sandbox, real path) of everything that a hidden directory must not cover."""
    for path in (*_our_code(), *(path for path in (RESOLVER, *view.libraries) if _is_shareable(path)), *view.readable):
        real = path.resolve()
        yield real, real
        yield Path(os.path.normpath(path.absolute())), real
    # The interpreter may be reached through links in hidden directories.
    yield from ((link, link.resolve()) for link in _links(Path(sys.executable)))


def _is_covered(path: Path, hiding: Collection[Path], shown: Collection[Path]) -> bool:
    """Whether the nearest mount above the path is a hiding one."""
    around = next((outer for outer in path.parents if outer in hiding or outer in shown), None)
    return around is not None and around not in shown


def _code_mounts(view: FilesystemView, hiding: Iterable[Path], files: Iterable[Path]) -> list[_Mount]:
    if view.code is None:
        return []
    source = view.code.resolve()

    def in_code(path: Path) -> Path:
        return view.code_dir / path.relative_to(source)

    # A script in a directory that also holds hidden paths must not expose them this way.
    mounts = [_empty(in_code(path)) for path in hiding if path != source and path.is_relative_to(source)]
    mounts += [_nothing(in_code(path)) for path in files if path.is_relative_to(source)]
    return [_read_only(source, view.code_dir), *mounts]


def _our_code() -> Iterator[Path]:
    """The interpreter, its environment and our packages, wherever they are installed."""
    # A checkout also contains the owner's other files.
    is_checkout = (OURS / "pyproject.toml").exists()
    yield from (Path(sys.prefix), Path(sys.base_prefix))
    yield from (OURS / name for name in ("app", "config", "trainyard", "workers")) if is_checkout else (OURS,)
    for entry in map(Path, filter(None, sys.path)):
        if entry.exists() and not (is_checkout and entry.resolve() == OURS.resolve()):
            yield entry


def _is_shareable(path: Path) -> bool:
    """Never share a whole home directory because an environment variable names it."""
    return path.exists() and path.resolve() not in _existing(HIDDEN)


def _links(path: Path) -> Iterator[Path]:
    while path.is_symlink():
        yield path
        path = Path(os.path.normpath(path.parent / path.readlink()))
    yield path


def _existing(paths: Iterable[Path | str]) -> list[Path]:
    """Resolved paths, as mount points require, without duplicates."""
    return list(dict.fromkeys(path.resolve() for path in map(Path, paths) if path.exists()))


def _empty(target: Path) -> _Mount:
    return _Mount(target, ("--tmpfs", str(target)))


def _nothing(target: Path) -> _Mount:
    return _read_only(Path(os.devnull), target)


def _read_only(source: Path, target: Path) -> _Mount:
    return _Mount(target, ("--ro-bind", str(source), str(target)))
