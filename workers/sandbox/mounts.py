"""The root directory of a sandbox: the machine's programs, what programs read of /etc, and the paths of one attempt.

Nothing else of the machine exists there: the root is an empty file system into which these paths are mounted.
"""

import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from app.host.gpu_devices import GPU_LIBRARIES, driver_libraries
from workers.sandbox.accounts import ACCOUNTS
from workers.sandbox.closed_directories import is_closed, without_closed
from workers.sandbox.node_python import python_mounts
from workers.sandbox.placements import MountKind, SandboxMount, check_image_path, placed
from workers.sandbox.spec import FilesystemView, ImageRoot

OURS = Path(__file__).parents[2]
# Directories of programs and their libraries; on most systems all but the first are links.
PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# What programs and libraries read of /etc; the rest configures services of the machine.
CONFIGURATION = tuple(
    Path("/etc", name)
    for name in (
        *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "os-release", "debian_version"),
        *("ssl", "pki", "ca-certificates", "ca-certificates.conf", "crypto-policies"),
        *("nsswitch.conf", "host.conf", "gai.conf", "protocols", "services", "rpc", "resolv.conf"),
        *("localtime", "timezone", "locale.alias", "locale.conf", "default/locale", "terminfo", "inputrc"),
        *("mime.types", "magic", "fonts", "nccl.conf"),
        *("openmpi", "pmix", "prrte", "ucx", "libibverbs.d", "rdma", "OpenCL", "vulkan", "glvnd"),
    )
)
# Homes and service directories, hidden where a job names a directory around them. They also hold sockets (Docker's,
# PostgreSQL's), which a read-only mount does not block.
HIDDEN = (
    *("/root", "/home", "/run", "/var/run", "/srv"),
    *("/var/log", "/var/mail", "/var/spool", "/var/backups"),
    *("/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet"),
    *("/var/lib/postgresql", "/var/lib/mysql", "/var/lib/redis"),
)
# Files in it that are not world-readable are hidden: ranks of a worker that is root own them.
PRIVATE = Path("/etc")
TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 – mount points: what the sandbox puts there is its own
KERNEL = ("/proc", "/sys", "/dev")  # the sandbox has its own


def mounts(view: FilesystemView, *, own_user: bool = False) -> list[SandboxMount]:
    """Mounts ordered from the root down, so that a narrow mount shows through a wider one that hides.

    ``own_user``: the job has another user than this process. Raises PlacementConflict.
    """
    if view.image is not None:
        return _in_image(view, view.image)
    shown = dict(_shown(view))
    temporary = _existing(TEMPORARY)
    own = {*map(Path, KERNEL), *temporary, view.run_dir}
    apart = set(_apart(view)) if own_user else set[Path]()
    masked = dict(_masks(view, {target: real for target, real in shown.items() if target not in own}, own))
    found = [SandboxMount(MountKind.LINK, path, path.readlink()) for path in _linked_programs()]
    found += masked.values()
    found += [
        SandboxMount(MountKind.READ_ONLY, target, real)
        for target, real in shown.items()
        if target not in own and (target in apart or not _is_visible(target, real, shown, {*masked, *own}))
    ]
    found += [SandboxMount(MountKind.WRITABLE, path, view.temporary_dir) for path in temporary]
    found.append(SandboxMount(MountKind.WRITABLE, view.run_dir, view.run_dir))
    found += [SandboxMount(MountKind.READ_ONLY, path, path) for path in view.protected]
    found += [SandboxMount(MountKind.DEVICE, path, path) for path in view.devices]
    return _with_placements(_with_room_for_user(found, view) if own_user else found, view, own)


def _with_placements(found: Iterable[SandboxMount], view: FilesystemView, own: Collection[Path]) -> list[SandboxMount]:
    ordered = sorted(found, key=lambda mount: len(mount.target.parts))
    if not view.placements:
        return ordered
    read_only = {each.target: each.source for each in view.placements if each.source and not each.writable}
    return sorted(
        [*placed(ordered, view), *dict(_masks(view, read_only, own)).values()],
        key=lambda mount: len(mount.target.parts),
    )


def _in_image(view: FilesystemView, image: ImageRoot) -> list[SandboxMount]:
    """As ``mounts``, where the machine's programs are not shown but those of an image."""
    root = SandboxMount(MountKind.IMAGE, Path("/"), image.directory)
    shown = dict(_inputs(view))
    temporary = [path for path in map(Path, TEMPORARY) if not _is_link_in(image, path)]
    own = {*map(Path, KERNEL), *temporary, view.run_dir}
    found = [*python_mounts(), *dict(_masks(view, shown, own)).values()]
    found += [
        SandboxMount(MountKind.READ_ONLY, target, real)
        for target, real in shown.items()
        if target not in own and not _is_visible(target, real, shown, own)
    ]
    found += [SandboxMount(MountKind.WRITABLE, path, view.temporary_dir) for path in temporary]
    found += [
        SandboxMount(MountKind.WRITABLE, view.run_dir, view.run_dir),
        SandboxMount(MountKind.EMPTY, view.overlay_dir),
    ]
    found += [SandboxMount(MountKind.READ_ONLY, path, path) for path in view.protected]
    found += [SandboxMount(MountKind.DEVICE, path, path) for path in view.devices]
    if view.devices:
        found += [
            SandboxMount(MountKind.READ_ONLY, GPU_LIBRARIES / name, path) for name, path in driver_libraries().items()
        ]
    targets = {
        mount.target: mount.kind in (MountKind.EMPTY, MountKind.MEMORY) or mount.source.is_dir() for mount in found
    }
    targets |= {**dict.fromkeys(map(Path, KERNEL), True), **dict.fromkeys(map(Path, ACCOUNTS), False)}
    for target, is_directory in sorted(targets.items(), key=lambda each: len(each[0].parts)):
        check_image_path(image.directory, target, is_directory=is_directory)
    return _with_placements([root, *found], view, own)


def _is_link_in(image: ImageRoot, path: Path) -> bool:
    return any(image.directory.joinpath(*path.parts[1:end]).is_symlink() for end in range(2, len(path.parts) + 1))


def _inputs(view: FilesystemView) -> Iterator[tuple[Path, Path]]:
    """As ``_shown``, of the job's inputs alone."""
    for path in view.shown:
        real = path.resolve()
        yield real, real
        yield Path(os.path.normpath(path.absolute())), real
    if view.code_source is not None:
        yield view.code_dir, view.code_source


def _shown(view: FilesystemView) -> Iterator[tuple[Path, Path]]:
    """(path in the sandbox, real path) of everything that is shown read-only, but for links of PROGRAMS."""
    yield from ((path, path) for path in map(Path, PROGRAMS) if path.is_dir() and not path.is_symlink())
    yield from ((path, path.resolve()) for path in CONFIGURATION if path.exists())
    shareable = [path for path in (*view.software, *view.libraries) if _is_shareable(path)]
    for path in (*_our_code(), *shareable, *view.shown):
        real = path.resolve()
        yield real, real
        alias = Path(os.path.normpath(path.absolute()))
        if not any(alias.is_relative_to(link) for link in _linked_programs()):  # these lead to the real path
            yield alias, real
    # The interpreter may be reached through links.
    yield from ((link, link.resolve()) for link in _links(Path(sys.executable)))
    if view.code_source is not None:
        yield view.code_dir, view.code_source


def _apart(view: FilesystemView) -> Iterator[Path]:
    """Inputs and our code in directories of programs, where a user of the job's own sees what all users may see."""
    named = _existing((*view.software, *view.libraries))
    yield from (path for path in _existing(view.shown) if _is_in(path, (*named, *_existing(PROGRAMS), PRIVATE)))
    yield from (path for path in _existing(_our_code()) if _is_in(path, named))
    yield from _closed_code()


def outside_of_system(sources: Iterable[Path], view: FilesystemView) -> list[Path]:
    """Those that are inputs, or not in directories of the system, which every user may enter."""
    system = (*_existing(PROGRAMS), PRIVATE, *map(Path, KERNEL))
    inputs = _existing((*view.shown, *view.claims, view.run_dir, *filter(None, [view.code_source]), *_closed_code()))
    return [path for path in dict.fromkeys(sources) if not _is_in(path, system) or _is_in(path, inputs)]


def software_among(sources: Iterable[Path], view: FilesystemView) -> set[Path]:
    """Those that are there for all users of the machine, rather than inputs of the job or our code."""
    named = _existing((*view.software, *view.libraries))
    found = {path for path in sources if _is_in(path, named)}
    own = (
        _existing((*view.shown, *view.claims, *_our_code(), view.run_dir, *filter(None, [view.code_source])))
        if found
        else ()
    )
    return {path for path in found if not _is_in(path, own)}


def _with_room_for_user(found: Sequence[SandboxMount], view: FilesystemView) -> list[SandboxMount]:
    """``found``, where a user of the job's own can reach all mount points, also those of placements."""
    sources = [mount.source for mount in found if mount.kind == MountKind.READ_ONLY]
    staged = set(outside_of_system(sources, view))
    software = software_among(staged, view)
    return without_closed(found, (each.target for each in view.placements), staged=staged, mapped=staged - software)


def _closed_code() -> list[Path]:
    """Our code in directories of the system that not all users may enter."""
    programs = _existing(PROGRAMS)
    return [path for path in _existing(_our_code()) if _is_in(path, programs) and is_closed(path / "any")]


def _is_in(path: Path, directories: Iterable[Path]) -> bool:
    return any(map(path.is_relative_to, directories))


def _linked_programs() -> list[Path]:
    return [path for path in map(Path, PROGRAMS) if path.is_symlink()]


def _masks(
    view: FilesystemView, shown: Mapping[Path, Path], own: Collection[Path]
) -> Iterator[tuple[Path, SandboxMount]]:
    """Mounts over what a shown directory contains and no job may see, by their targets."""
    hidden = sorted(_hidden(view), key=lambda path: len(path.parts))
    covered: set[Path] = set()
    for target, real in shown.items():
        for path in hidden:
            if path == real or not path.is_relative_to(real):
                continue
            at = target / path.relative_to(real)
            if at in shown or at in own or _nearest(at, {*shown, *covered, *own}) != target:
                continue
            covered.add(at)
            is_directory = path.is_dir()
            yield (
                at,
                SandboxMount(MountKind.EMPTY, at)
                if is_directory
                else SandboxMount(MountKind.READ_ONLY, at, Path(os.devnull)),
            )


def _hidden(view: FilesystemView) -> set[Path]:
    """Real paths that no job may see, even where it names a directory around them."""
    passwords = OURS / ".env"  # beside docker-compose.yml
    named = _existing((view.data_dir, *HIDDEN, *KERNEL, *TEMPORARY, *view.hidden, passwords))
    return {*named, *_not_for_everyone(PRIVATE)}


def _not_for_everyone(top: Path) -> Iterator[Path]:
    """Files and directories below ``top`` that are not world-readable."""
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


def _is_visible(target: Path, real: Path, shown: Mapping[Path, Path], covering: Collection[Path]) -> bool:
    """Whether a mount further up already shows this file there."""
    around = _nearest(target, {*shown, *covering})
    if around is None or around in covering:
        return False
    return (shown[around] / target.relative_to(around)).resolve() == real


def _nearest(path: Path, targets: Collection[Path]) -> Path | None:
    """The nearest of these directories that contains the path."""
    return next((outer for outer in path.parents if outer in targets), None)


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
