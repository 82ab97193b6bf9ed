"""Volume claims that a job mounts: found or made on this node, whose other jobs may write to them at any time."""

import os
import stat
from pathlib import Path

from app.domain.spec.locations.paths import within
from app.domain.spec.model import Mount, OutputConfig
from app.services.access.volume_claims import only_uses
from config.fetching import FetchSettings
from workers.attempt_failed import AttemptFailed
from workers.fetching.failures import FetchFailed, FetchRefused, NotThere
from workers.fetching.local import CLAIM_MODE, CLAIMS, claimed, volumes_of
from workers.fetching.uris import scheme_of, volume
from workers.prepare.inputs.input_library import Library
from workers.sandbox.spec import PlacedPath


def claim_mounted(number: int, mount: Mount, library: Library) -> PlacedPath:
    """The claim, or the part of it, at the path of a mount. Raises AttemptFailed."""
    field = f"resource_config.mounts.{number}"
    location = f"{CLAIMS}://{mount.claim}/{mount.sub_path or '.'}"
    try:
        if mount.create:
            _make(library, location)
        path, base = claimed(library.fetch, location, library.project)
        if not mount.read_only:
            _check_writable(library.fetch, mount.claim, Path(base))
    except FetchFailed as error:
        raise AttemptFailed("INVALID_CONFIG", f"{field}.claim: {error.message}") from error
    except OSError as error:
        raise AttemptFailed("INVALID_CONFIG", f"{field}.claim: {mount.claim} can't be made: {error}") from error
    if not os.path.exists(path):  # noqa: PTH110 – never raises
        raise AttemptFailed(
            "INVALID_CONFIG", f"{field}.sub_path: {mount.sub_path} does not exist in the volume claim {mount.claim}"
        )
    library.claims.add(Path(base))
    return PlacedPath(target=Path(mount.path), source=Path(path), writable=not mount.read_only)


def refuse_new_outputs(fetch: FetchSettings, project: str, output: OutputConfig) -> None:
    """For a project that makes no claims: publishing makes those that are missing. Raises AttemptFailed."""
    for name, location in (("output_path", output.output_path), ("log_path", output.log_path)):
        if not location or scheme_of(location) != CLAIMS:
            continue
        try:
            directory = volumes_of(fetch, location, project)
        except FetchRefused as error:
            raise AttemptFailed("INVALID_CONFIG", f"output_config.{name}: {error.message}") from error
        if directory is not None and not (directory / volume(location).container).is_dir():
            raise AttemptFailed("INVALID_CONFIG", f"output_config.{name}: {only_uses(project)}")


def _make(library: Library, location: str) -> None:
    """Does nothing where there is one: attempts and nodes may make it at the same time. Raises FetchFailed, OSError."""
    directory, claims = volumes_of(library.fetch, location, library.project), library.fetch.pvc_dir
    name = location.removeprefix(f"{CLAIMS}://").partition("/")[0]
    if directory is None or claims is None or name in library.fetch.pvc_shared:
        raise FetchRefused("it can't be made; have the administrator set TRAINYARD_FETCH_PVC_DIR, or make it there")
    if not claims.is_dir() and not within(str(claims), str(library.cache_dir.parent)):
        # It would lie where a file system is to be mounted.
        raise NotThere("the directory that TRAINYARD_FETCH_PVC_DIR names does not exist on this node")
    if not (directory / name).is_dir() and not library.may_make_claims():  # since the job was accepted
        raise FetchRefused(only_uses(library.project))
    directory.mkdir(CLAIM_MODE, parents=True, exist_ok=True)
    (directory / name).mkdir(CLAIM_MODE, exist_ok=True)


def _check_writable(fetch: FetchSettings, name: str, claim: Path) -> None:
    """Raises FetchRefused."""
    if name in fetch.pvc_shared and name not in fetch.pvc_shared_writable:
        raise FetchRefused(
            f"{name} is a claim of all projects, which jobs only read; set read_only, or have the administrator add it "
            "to TRAINYARD_FETCH_PVC_SHARED_WRITABLE"
        )
    found = claim.stat()
    if found.st_uid != os.geteuid() and not found.st_mode & stat.S_IWOTH:
        raise FetchRefused(
            f"{name} belongs to another user than the node's worker, as whom jobs write; set read_only, or have the "
            "administrator change the owner of its directory"
        )
