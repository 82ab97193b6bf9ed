"""Who starts bubblewrap, and where it finds the files of an attempt: the worker in place, or the attempt's own user.

An own user can't reach directories of the worker. So everything is mounted for it at short paths, in a namespace of
mounts that it gets from the worker; there what belongs to the worker is its own, and on the disk it stays the worker's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.host.idmapped_mounts import PLACE
from app.host.overlays import MERGED, UPPER, WORK, overlay_command
from app.host.own_users import Source, as_user, stage, staged
from workers.sandbox.mounts import outside_of_system, software_among
from workers.sandbox.own_user import OwnUser
from workers.sandbox.placements import Kind, Mount
from workers.sandbox.spec import FilesystemView


@dataclass(frozen=True, kw_only=True)
class Entered:
    """A command that becomes bubblewrap, and where that finds what it mounts."""

    command: Sequence[str] = ()
    sources: Mapping[Path, Path] = field(default_factory=dict)
    root: Path | None = None  # of an image


def entered_by(user: OwnUser | None, found: Sequence[Mount], view: FilesystemView) -> Entered:
    """Raises OSError."""
    image = view.image
    if user is None:
        command = overlay_command(image.directory, view.overlay_dir) if image is not None else []
        return Entered(command=command, root=view.overlay_dir / MERGED if image is not None else None)
    if image is not None:
        for name in (UPPER, WORK):
            (view.overlay_dir / name).mkdir(parents=True, exist_ok=True)
    written = {mount.source for mount in found if mount.kind == Kind.WRITABLE}
    shown = (mount.source for mount in found if mount.kind in (Kind.READ_ONLY, Kind.WRITABLE))
    paths = outside_of_system(shown, view)
    software = software_among(paths, view)
    sources = [Source(path, is_mapped=path not in software, is_needed=path in written) for path in paths]
    overlay = (image.directory, view.overlay_dir) if image is not None else None
    namespace = user.keep(stage(user.namespace, sources, overlay))
    return Entered(
        command=as_user(user.uid, namespace),
        sources={path: staged(number) for number, path in enumerate(paths)},
        root=PLACE / MERGED if image is not None else None,
    )
