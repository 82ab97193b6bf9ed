"""Who starts bubblewrap, and where it finds the files of an attempt: the worker in place, or the attempt's own user.

An own user can't reach directories of the worker. So everything is mounted for it at short paths, in a namespace of
mounts that it gets from the worker; there what belongs to the worker is its own, and on the disk it stays the worker's.

bubblewrap follows links in the paths that it mounts. Parts of volume claims, in which other jobs may exchange a
directory for a link at any time, are mounted for it by descriptors, in a namespace of mounts, too.
"""

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from app.host.idmapped_mounts import PLACE
from app.host.overlays import MERGED, UPPER, WORK, overlay_command
from app.host.own_users import OwnedPath, as_user, stage, staged
from app.storage.beneath import RefusedFile, located
from workers.sandbox.claim_parts import PLACES
from workers.sandbox.mounts import OURS, outside_of_system, software_among
from workers.sandbox.own_user import OwnUser
from workers.sandbox.placements import WAY_OUT, MountKind, SandboxMount
from workers.sandbox.spec import FilesystemView

_BECOMES = f"import sys; sys.path.insert(0, {str(OURS)!r}); from workers.sandbox.claim_parts import main; main()"


class PartLost(OSError):
    """A part of a volume claim is no longer there, or a link leads out of the claim."""


@dataclass(frozen=True, kw_only=True)
class StagedCommand:
    """A command that becomes bubblewrap, and where that finds what it mounts."""

    command: Sequence[str] = ()
    sources: Mapping[Path, Path] = field(default_factory=dict)
    root: Path | None = None  # of an image


def entered_by(user: OwnUser | None, found: Sequence[SandboxMount], view: FilesystemView) -> StagedCommand:
    """Raises OSError, and PartLost."""
    image = view.image
    if user is None:
        merging = overlay_command(image.directory, view.overlay_dir) if image is not None else []
        parts = _parts(found, view)
        places = view.data_dir / PLACES
        return StagedCommand(
            command=[*merging, *_parts_command(parts, places)],
            sources={path: places / str(number) for number, path in enumerate(parts)},
            root=view.overlay_dir / MERGED if image is not None else None,
        )
    if image is not None:
        for name in (UPPER, WORK):
            (view.overlay_dir / name).mkdir(parents=True, exist_ok=True)
    written = {mount.source for mount in found if mount.kind == MountKind.WRITABLE}
    shown = (mount.source for mount in found if mount.kind in (MountKind.READ_ONLY, MountKind.WRITABLE))
    paths = outside_of_system(shown, view)
    software = software_among(paths, view)
    parts = _parts(found, view)
    sources = [
        OwnedPath(path, _opened(path, parts), is_mapped=path not in software, is_needed=path in written)
        for path in paths
    ]
    overlay = (image.directory, view.overlay_dir) if image is not None else None
    namespace = user.keep(stage(user.namespace, sources, overlay))
    return StagedCommand(
        command=as_user(user.uid, namespace),
        sources={path: staged(number) for number, path in enumerate(paths)},
        root=PLACE / MERGED if image is not None else None,
    )


def _parts(found: Sequence[SandboxMount], view: FilesystemView) -> dict[Path, Path]:
    """The parts of claims among the sources, and the claims."""
    mounted = [mount.source for mount in found if mount.kind in (MountKind.READ_ONLY, MountKind.WRITABLE)]
    return {source: claim for source in mounted if (claim := view.claim_around(source)) is not None}


def _parts_command(parts: Mapping[Path, Path], places: Path) -> list[str]:
    """A command to which another is added, which sees the parts at their numbers below ``places``.

    Raises PartLost, where the command would not find them either.
    """
    if not parts:
        return []
    for path, claim in parts.items():
        with _located(path, claim):
            pass
    places.mkdir(parents=True, exist_ok=True)
    words = [str(path) for pair in parts.items() for path in pair]
    return [sys.executable, "-I", "-c", _BECOMES, str(places), *words, "--"]


def _opened(path: Path, parts: Mapping[Path, Path]) -> Callable[[], AbstractContextManager[int]] | None:
    return functools.partial(_located, path, parts[path]) if path in parts else None


@contextmanager
def _located(part: Path, claim: Path) -> Iterator[int]:
    """As ``located``. Raises PartLost."""
    with ExitStack() as stack:
        try:
            descriptor = stack.enter_context(located(part, claim))
        except (OSError, RefusedFile) as error:
            why = error.message if isinstance(error, RefusedFile) else f"{error.strerror}; {WAY_OUT}"
            raise PartLost(
                f"{part.relative_to(claim)} in the volume claim {claim.name} can't be mounted: {why}"
            ) from error
        yield descriptor
