"""Paths of the job's choice in the sandbox: what `resource_config.mounts` names, resolved on this node."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.domain.spec.model import CLAIM, CODE, DATA, EMPTY, FILES, MEMORY, MODEL, JobDocument, Mount
from app.storage.beneath import resolved
from trainyard.protocol.run_spec import RunSpec
from workers.attempt_failed import AttemptFailed
from workers.prepare.inputs.input_library import JobInputs, Library
from workers.prepare.volume_claims import claim_mounted
from workers.run_dir.layout import RunDirectory
from workers.sandbox.launcher import inherited_libraries
from workers.sandbox.mounts import mounts
from workers.sandbox.placements import ImageConflict, PlacementConflict
from workers.sandbox.sandbox import BUBBLEWRAP, Sandbox
from workers.sandbox.spec import FILES_MODE, FilesystemView, PlacedPath

FILES_MB = 1  # all files of a document have at most a quarter
EMPTY_DIRECTORIES, LINKS = "empty", "model"  # in the run directory


@dataclass(frozen=True)
class Mounted:
    """The mounts of a job on this node, the specification in which a script's inputs have their paths, and the claims
    in which any of its files lie.
    """

    spec: RunSpec
    placements: tuple[PlacedPath, ...] = ()
    claims: tuple[Path, ...] = ()


def with_mounts(
    spec: RunSpec, document: JobDocument, sources: JobInputs, run: RunDirectory, sandbox: Sandbox, library: Library
) -> Mounted:
    """Makes directories in the run directory, and new claims. Raises AttemptFailed where a claim or a part of an input
    does not exist.
    """
    mounts = document.resource_config.mounts if sandbox.kind == BUBBLEWRAP else ()
    placements = tuple(
        claim_mounted(number, mount, library)
        if mount.type == CLAIM
        else _placement(number, mount, sources, run, library)
        for number, mount in enumerate(mounts)
    )
    return Mounted(_at_mount_paths(spec, mounts), placements, tuple(library.claims))


def check_placements(view: FilesystemView) -> None:
    """Raise AttemptFailed where this node can't mount something at one of the paths."""
    if not view.placements and view.image is None:
        return
    try:
        mounts(replace(view, libraries=inherited_libraries()))
    except ImageConflict as error:
        raise AttemptFailed("INVALID_CONFIG", f"resource_config.image: {error}") from error
    except PlacementConflict as error:
        raise AttemptFailed("INVALID_CONFIG", f"resource_config.mounts: {error}") from error


def _at_mount_paths(spec: RunSpec, mounts: Sequence[Mount]) -> RunSpec:
    places = {(each.type, each.source): each.path for each in reversed(mounts) if not each.sub_path}
    data = tuple(places.get((DATA, number), path) for number, path in enumerate(spec.data_paths))
    moved = replace(spec, data_paths=data, model_path=places.get((MODEL, 0), spec.model_path))
    code = places.get((CODE, 0))
    if code is None:
        return moved
    old = spec.run_dir / "code"
    instances = tuple(
        replace(each, script=_moved(each.script, old, code), directory=_moved(each.directory, old, code))
        for each in spec.instances
    )
    return replace(
        moved, script=_moved(spec.script, old, code), directory=_moved(spec.directory, old, code), instances=instances
    )


def _moved(path: str, old: Path, new: str) -> str:
    return str(Path(new, Path(path).relative_to(old))) if path and Path(path).is_relative_to(old) else path


def _placement(number: int, mount: Mount, sources: JobInputs, run: RunDirectory, library: Library) -> PlacedPath:
    target = Path(mount.path)
    if mount.type == MEMORY:
        return PlacedPath(target=target, size_mb=mount.size_mb)
    if mount.type == FILES:
        files = {file.name: file.content for file in mount.files}
        if mount.sub_path:
            return PlacedPath(target=target, text=files[mount.sub_path], mode=mount.mode or FILES_MODE)
        mode = mount.mode or FILES_MODE
        return PlacedPath(target=target, size_mb=FILES_MB, files=tuple(files.items()), mode=mode)
    if mount.type == EMPTY:
        directory = run.path / EMPTY_DIRECTORIES / str(number)
        directory.mkdir(parents=True, exist_ok=True)
        return PlacedPath(target=target, source=directory, writable=True)
    if (found := _input_of(mount, sources, run)) is not None:
        base, allowed = found
        return PlacedPath(target=target, source=_part(number, mount, base, allowed, library))
    part = run.output.joinpath(mount.sub_path)
    part.mkdir(parents=True, exist_ok=True)
    return PlacedPath(target=target, source=_part(number, mount, run.output, [run.output], library), writable=True)


def _input_of(mount: Mount, sources: JobInputs, run: RunDirectory) -> tuple[Path, Sequence[Path]] | None:
    """The input, and the paths in which its files lie; None for the output directory."""
    if mount.type == DATA:
        data = sources.data[mount.source]
        return data.path, [data.path, *data.visible]
    if mount.type == CODE and sources.code is not None:
        return sources.code, [sources.code]
    if mount.type == MODEL and sources.model is not None:
        model = sources.model
        return (model.path if model.path == model.visible else _links(model.path, run)), [model.visible]
    return None


def _links(model: Path, run: RunDirectory) -> Path:
    """A directory with links to the files of a model in a hub's cache, whose own links are relative to the cache."""
    links = run.path / LINKS
    for path in model.rglob("*"):
        if not path.is_dir():
            link = links / path.relative_to(model)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(os.path.realpath(path))
    return links


def _part(number: int, mount: Mount, base: Path, allowed: Sequence[Path], library: Library) -> Path:
    """The resolved part of an input. Raises AttemptFailed where it does not exist, or a link leads out of the input.

    Of an input in a claim the bound is the claim: another job may put a link in place of the input at any time.
    """
    real = Path(resolved(base / mount.sub_path))
    bounds = [library.claim_around(path) or Path(resolved(path)) for path in (base, *allowed)]
    if not any(map(real.is_relative_to, bounds)) or not os.path.exists(real):  # noqa: PTH110 – never raises
        field = f"resource_config.mounts.{number}"
        message = (
            f"{field}.sub_path: {mount.sub_path} does not exist in the {mount.type} of the job"
            if mount.sub_path
            else f"{field}: the {mount.type} of the job is no longer where it was found; retry, or name another place"
        )
        raise AttemptFailed("INVALID_CONFIG", message)
    return real
