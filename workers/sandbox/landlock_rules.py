"""The files that an attempt reaches where Landlock confines it: those that a sandbox of namespaces would show."""

from collections.abc import Collection, Iterator
from pathlib import Path

from app.host.landlock import ALL, READ, Right
from workers.sandbox.mounts import OURS, mounts
from workers.sandbox.placements import MountKind, SandboxMount
from workers.sandbox.spec import FilesystemView

_NOTHING = Path("/dev/null")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "fd")
_ON_DEVICES = Right.READ_FILE | Right.READ_DIRECTORY | Right.WRITE_FILE | Right.TRUNCATE | Right.IOCTL
# A sandbox of namespaces has files of its own in their place.
_OF_THE_MACHINE = ("/proc", "/sys", "/etc/passwd", "/etc/group", "/etc/hosts")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 – torch's workers and NCCL exchange tensors there


def file_rules(view: FilesystemView) -> list[tuple[Path, int]]:
    """(path, rights). Raises PlacementConflict."""
    found = mounts(view)
    rules = [(Path(path), int(READ)) for path in _OF_THE_MACHINE]
    rules += [(Path("/dev", name), int(_ON_DEVICES)) for name in _DEVICES]
    rules.append((_SHARED_MEMORY, int(ALL)))
    # Python finds packages by listing the directory around them. In a checkout it also has files that stay closed.
    rules.append((OURS, int(Right.READ_DIRECTORY)))
    hidden = set(_hidden(found))
    for mount in found:
        if (claim := view.claim_around(mount.source)) is not None and mount.kind == MountKind.READ_ONLY:
            rules.append((claim, int(READ)))  # a rule opens its path, and a job may put a link in place of a part
        elif mount.kind == MountKind.WRITABLE:
            rules.append((mount.source, int(ALL)))
        elif mount.kind == MountKind.DEVICE:
            rules.append((mount.source, int(_ON_DEVICES)))
        elif mount.kind == MountKind.READ_ONLY and mount.source != _NOTHING:
            rules += [(path, int(READ)) for path in _without(mount.source, hidden)]
    return rules


def _hidden(found: Collection[SandboxMount]) -> Iterator[Path]:
    """Real paths over which a sandbox would mount nothing."""
    shown = [mount for mount in found if mount.kind == MountKind.READ_ONLY and mount.source != _NOTHING]
    for mask in found:
        if mask.kind == MountKind.EMPTY or (mask.kind == MountKind.READ_ONLY and mask.source == _NOTHING):
            for mount in shown:
                if mask.target.is_relative_to(mount.target):
                    yield mount.source / mask.target.relative_to(mount.target)


def _without(path: Path, hidden: Collection[Path]) -> Iterator[Path]:
    """The path, or its entries where something below it is hidden: what is allowed can't be taken away again below."""
    if path in hidden:
        return
    if not any(each.is_relative_to(path) for each in hidden):
        yield path
        return
    for entry in path.iterdir():
        if not entry.is_symlink():  # what it leads to has rules of its own
            yield from _without(entry, hidden)
