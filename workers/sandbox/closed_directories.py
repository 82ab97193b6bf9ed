"""Directories of the machine that a user of the job's own may not enter, where its sandbox has mount points inside.

bubblewrap makes the mount points as that user. It sees nothing of such a directory, so an empty one is as good.
"""

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from workers.sandbox.placements import MountKind, SandboxMount

_NOTHING = Path(os.devnull)


def without_closed(
    found: Sequence[SandboxMount], placed: Iterable[Path], *, staged: Collection[Path], mapped: Collection[Path]
) -> list[SandboxMount]:
    """``found``, with an empty directory in place of each closed one around a mount point, and without what lies in
    closed ones itself.

    ``placed``: more mount points. ``staged``: sources that the user reaches wherever they are. ``mapped``: sources that
    are the user's own.
    """
    usual = [mount for mount in found if mount.kind != MountKind.READ_ONLY or _is_reached(mount.source, staged)]
    mounts = {mount.target: mount for mount in usual}
    for target in sorted({*mounts, *placed}, key=lambda each: len(each.parts)):
        around = next((mounts[path] for path in target.parents if path in mounts), None)
        if around is None or around.kind != MountKind.READ_ONLY or around.source in mapped:
            continue
        if (closed := _closed_around(target, around)) is not None:
            mounts[closed] = SandboxMount(MountKind.EMPTY, closed)
    kept = [mount for mount in usual if mounts[mount.target].kind != MountKind.EMPTY or mount.kind == MountKind.EMPTY]
    known = {mount.target for mount in kept}
    return [*kept, *(mount for target, mount in mounts.items() if target not in known)]


def is_closed(path: Path) -> bool:
    """Whether not all users may enter a directory around this path."""
    return any(not _may_enter(directory) for directory in path.parents)


def _is_reached(source: Path, staged: Collection[Path]) -> bool:
    return source in staged or source == _NOTHING or not is_closed(source)


def _closed_around(target: Path, around: SandboxMount) -> Path | None:
    """The first closed directory on the way to the mount point in what is mounted around it."""
    for inside, real in _way(target, around):
        if real.is_symlink() or not real.is_dir():
            return None
        if not _may_enter(real):
            return inside
    return None


def _way(target: Path, around: SandboxMount) -> Iterator[tuple[Path, Path]]:
    """Directories around the mount point, from the mount down: in the sandbox, and on the machine."""
    inside, real = around.target, around.source
    yield inside, real
    for name in target.relative_to(around.target).parts[:-1]:
        inside, real = inside / name, real / name
        yield inside, real


def _may_enter(directory: Path) -> bool:
    return bool(directory.stat().st_mode & stat.S_IXOTH)
