"""Mounts at paths of the job's choice, among those that the sandbox has anyway."""

import enum
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.storage.beneath import RefusedFile, located
from workers.sandbox.spec import FilesystemView, PlacedPath

_NOTHING = Path(os.devnull)  # mounted over a file that no job may see
WAY_OUT = "retry, or name another place in the claim"  # where another job has moved something
MOST_ENTRIES = 512  # each entry of a directory that is rebuilt is a mount of its own


class MountKind(enum.Enum):
    """How a path comes into the sandbox."""

    READ_ONLY = enum.auto()
    WRITABLE = enum.auto()
    DEVICE = enum.auto()  # read and written, and opened as a device
    LINK = enum.auto()  # a symbolic link, whose text is the source
    EMPTY = enum.auto()  # a directory without entries, read-only
    MEMORY = enum.auto()  # a directory without entries, writable, of size_mb
    FILE = enum.auto()  # a read-only file in memory
    IMAGE = enum.auto()  # the root of an image, writable; what is written lies elsewhere


@dataclass(frozen=True)
class SandboxMount:
    """One path of the sandbox; EMPTY, MEMORY and FILE have no source."""

    kind: MountKind
    target: Path
    source: Path = Path()
    size_mb: int = 0


class PlacementConflict(ValueError):
    """Nothing can be mounted at a path of the job's choice; the message begins with the path."""


class ImageConflict(PlacementConflict):
    """What every sandbox has cannot be mounted into an image; the message begins with the path."""


def check_image_path(image: Path, target: Path, *, is_directory: bool = True) -> None:
    """Raise ImageConflict where bubblewrap would follow a link of the image, out of it perhaps, to a mount point, or
    where something else lies there.
    """
    at = image
    for name in target.parts[1:]:
        at /= name
        shown = f"/{at.relative_to(image)}"
        if at.is_symlink():
            raise ImageConflict(f"{shown} is a link in the image, where the sandbox needs {target}; remove the link")
        wanted = is_directory or shown != str(target)
        if at.exists() and at.is_dir() != wanted:
            what = "file" if wanted else "directory"
            raise ImageConflict(f"{shown} is a {what} in the image, where the sandbox needs {target}; remove it")


def placed(found: Sequence[SandboxMount], view: FilesystemView) -> list[SandboxMount]:
    """``found``, ordered from the root down, with the mounts of the view's placements, in the same order.

    A placement shows what it is for and hides nothing: what lies below it must be part of it. Raises
    PlacementConflict.
    """
    mounts = list(found)
    for placement in sorted(view.placements, key=lambda each: len(each.target.parts)):
        target = placement.target
        if target.is_relative_to(view.run_dir) or view.run_dir.is_relative_to(target):
            raise PlacementConflict(f"{target} is in the way of the run directory {view.run_dir}; choose another path")
        if view.image is not None and _is_file(placement):
            _check_no_directory(view.image.directory, target)
        mounts = [mount for mount in mounts if not _is_covered(mount, placement)]
        mounts = [*_with_room(mounts, target, view), _mount_of(placement)]
    return sorted(mounts, key=lambda mount: len(mount.target.parts))


def _is_file(placement: PlacedPath) -> bool:
    return placement.text is not None or (placement.source is not None and placement.source.is_file())


def _check_no_directory(image: Path, target: Path) -> None:
    if image.joinpath(*target.parts[1:]).is_dir():
        raise PlacementConflict(
            f"{target} is a directory in the image, and a file would lie there; choose another path"
        )


def _mount_of(placement: PlacedPath) -> SandboxMount:
    if placement.text is not None:
        return SandboxMount(MountKind.FILE, placement.target)
    if placement.source is None:
        return SandboxMount(MountKind.MEMORY, placement.target, size_mb=placement.size_mb)
    kind = MountKind.WRITABLE if placement.writable else MountKind.READ_ONLY
    return SandboxMount(kind, placement.target, placement.source)


def _is_covered(mount: SandboxMount, placement: PlacedPath) -> bool:
    """Whether the placement shows the same as this mount, or this mount hides something in what the placement replaces.

    Raises PlacementConflict where the placement would hide something else.
    """
    target, source = placement.target, placement.source
    if not mount.target.is_relative_to(target):
        return False
    if mount.kind == MountKind.EMPTY or mount.source == _NOTHING:
        return True
    is_part = source is not None and mount.source == source / mount.target.relative_to(target)
    if mount.kind == MountKind.READ_ONLY and is_part:
        return True
    raise PlacementConflict(f"{target} would hide {mount.target}, which the job needs; choose another path")


def _with_room(mounts: Sequence[SandboxMount], target: Path, view: FilesystemView) -> Iterator[SandboxMount]:
    """The mounts, in which the mount point exists or can be made. Raises PlacementConflict."""
    inside = [mount for mount in reversed(mounts) if target.is_relative_to(mount.target)]
    around = max(inside, key=lambda mount: len(mount.target.parts), default=None)
    for mount in mounts:
        if mount is around and mount.kind == MountKind.READ_ONLY:
            yield from _rebuilt(mount, target, view)
            continue
        if mount is around and mount.kind == MountKind.WRITABLE and _is_of_claim(mount.source, view):
            raise PlacementConflict(
                f"{target} lies in {mount.target}, a claim that the job may write to; choose a path outside of it"
            )
        if mount is around and mount.kind in (MountKind.WRITABLE, MountKind.IMAGE):
            _check_writable(mount, target)
        elif mount is around and mount.kind not in (MountKind.EMPTY, MountKind.MEMORY):
            raise PlacementConflict(f"{target} lies below {mount.target}, which is no directory; choose another path")
        yield mount


def _check_writable(mount: SandboxMount, target: Path) -> None:
    """Raise PlacementConflict where bubblewrap would follow a link when it makes the mount point."""
    at = mount.source
    for name in target.relative_to(mount.target).parts:
        at /= name
        if at.is_symlink() or (at.exists() and not at.is_dir()):
            where = "the image" if mount.kind == MountKind.IMAGE else mount.target
            raise PlacementConflict(f"{target} would replace a file in {where}; choose another path")


def _is_of_claim(source: Path, view: FilesystemView) -> bool:
    return source in view.claims or view.claim_around(source) is not None


def _rebuilt(mount: SandboxMount, target: Path, view: FilesystemView) -> Iterator[SandboxMount]:
    """A read-only directory; where it has no directory for the mount point, one made of mounts of its entries.

    So it is in a claim anyway: another job could put a link in place of the directory. Raises PlacementConflict.
    """
    if not _is_directory(mount.source):
        raise PlacementConflict(f"{target} lies below {mount.target}, which is a file; choose another path")
    names = target.relative_to(mount.target).parts
    chain = [mount.source.joinpath(*names[: number + 1]) for number in range(len(names))]
    if all(map(_is_directory, chain)) and not _is_of_claim(mount.source, view):
        yield mount
        return
    with _opened(mount, view) as opened:
        entries = sorted(opened.iterdir())
        if len(entries) > MOST_ENTRIES:
            raise PlacementConflict(
                f"{target} lies in {mount.target}, which has no such directory, and {len(entries)} entries; choose a "
                "path outside of it"
            )
        yield SandboxMount(MountKind.EMPTY, mount.target)
        for entry in entries:
            at, source = mount.target / entry.name, mount.source / entry.name
            if source == chain[0]:
                if len(chain) == 1:
                    if _is_directory(entry):  # in a claim: the mount point is made beside its entries
                        continue
                    raise PlacementConflict(f"{target} would hide a file, which the job needs; choose another path")
                yield from _rebuilt(SandboxMount(MountKind.READ_ONLY, at, source), target, view)
            elif entry.is_symlink():
                yield SandboxMount(MountKind.LINK, at, entry.readlink())
            else:
                yield SandboxMount(MountKind.READ_ONLY, at, source)


@contextmanager
def _opened(mount: SandboxMount, view: FilesystemView) -> Iterator[Path]:
    """The directory, by a descriptor if it is a part of a claim.

    Raises PlacementConflict for a link out of it, and where another job exchanges what is read of it in the block.
    """
    claim = view.claim_around(mount.source)
    if claim is None:
        yield mount.source
        return
    try:
        with located(mount.source, claim) as descriptor:
            yield Path(f"/proc/self/fd/{descriptor}")
    except (OSError, RefusedFile) as error:
        why = error.message if isinstance(error, RefusedFile) else f"{error.strerror}; {WAY_OUT}"
        raise PlacementConflict(f"{mount.target} can't be read in the volume claim {claim.name}: {why}") from error


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
