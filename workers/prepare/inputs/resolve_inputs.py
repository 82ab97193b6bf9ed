"""Resolves a job's model, data and script to local paths, by the access rules.

Local files are used in place. Remote ones are fetched by a child process into this node's cache and exposed as links in
a directory owned by this process (``Library.link_directory``).
"""

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain.errors import BadSpec
from app.domain.spec.credentials import NO_ACCESS, Access
from app.domain.spec.locations.code import is_bundle
from app.domain.spec.locations.paths import candidates, is_hub_id, job_of_path, local_path, readable, within
from app.domain.spec.locations.uploads import is_upload
from app.storage.beneath import RefusedFile, resolved
from workers.attempt_failed import AttemptFailed
from workers.fetching import cache_index
from workers.fetching.failures import FetchFailed, NotThere, Trouble, Unusable
from workers.fetching.fetch import fetch
from workers.fetching.items import FetchedFile, Item
from workers.fetching.listing import MAGIC, FileSelection, ListedPath, expand
from workers.fetching.local import CLAIMS, LocalLister, claimed
from workers.fetching.uris import scheme_of, shown
from workers.prepare.inputs.directories import (
    DATA,
    MODEL,
    find_code_bundle,
    find_uploaded_directory,
    is_uploaded_directory,
)
from workers.prepare.inputs.input_library import Library, LocalData, LocalDataFile, LocalModel
from workers.prepare.inputs.uploaded_data import find_uploaded

# Above this number, files are exposed by mounting their directories: each mount has a cost.
MOST_MOUNTS = 64

UNREADABLE = (
    "it lies outside every directory that jobs may read; move it below one of them, or have the administrator add "
    "the directory to TRAINYARD_STORAGE_ROOTS"
)

Allowed = Callable[[str], bool]  # whether jobs may read the resolved path


@dataclass(frozen=True, kw_only=True)
class DataRequest:
    """One of data_config.sources. ``custom``: a script reads it, so a directory is used as it is."""

    location: str
    format: str | None = None
    split: str | None = None
    custom: bool = False
    access: Access = NO_ACCESS


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """``source`` hub: never a local directory; local: never a hub."""

    model_id: str
    revision: str | None = None
    source: str | None = None
    without_weights: bool = False  # of what is fetched
    access: Access = NO_ACCESS


def find(
    library: Library, models: Sequence[ModelRequest], data: Sequence[DataRequest]
) -> tuple[list[LocalModel], list[LocalData]]:
    """Resolve all inputs of a job. Nothing is fetched unless all local inputs exist.

    Raises AttemptFailed.
    """
    local_models = [_local_model(library, request) for request in models]
    local_data = [_local_data(library, request) for request in data if not is_upload(request.location)]
    rest = iter(local_data)
    local_data = [_uploaded_data(library, each) if is_upload(each.location) else next(rest) for each in data]
    items = [_model_item(library, request) for request, here in zip(models, local_models, strict=True) if here is None]
    items += [_data_item(library, request) for request, here in zip(data, local_data, strict=True) if here is None]
    fetched = iter(_fetched(library, items))
    found_models = [here if here is not None else _fetched_model(*next(fetched)) for here in local_models]
    return found_models, [here if here is not None else _fetched_data(*next(fetched)) for here in local_data]


def find_model(library: Library, request: ModelRequest) -> LocalModel:
    """A local directory if there is one, else fetched by id or URI. Raises AttemptFailed."""
    return find(library, [request], [])[0][0]


def find_data(library: Library, request: DataRequest) -> LocalData:
    """Regular, readable, non-empty files. Raises AttemptFailed."""
    return find(library, [], [request])[1][0]


def find_script(library: Library, location: str, noun: str = "custom script") -> Path:
    """The user's script on this machine. Raises AttemptFailed."""
    found = _existing(library, location, "INVALID_CONFIG", noun)
    if found is None or not found.is_file():
        raise AttemptFailed("INVALID_CONFIG", f"{noun} {location} is not a file on this node")
    return found


def find_code(library: Library, location: str) -> Path:
    """A local code directory, fetched if a URI names it. Raises AttemptFailed."""
    if is_bundle(location):
        return find_code_bundle(library, location)
    if scheme_of(location) != "file":
        # ``visible`` holds the directory; the directory may contain a single file.
        return find_data(library, DataRequest(location=location, custom=True)).visible[0]
    found = _existing(library, location, "INVALID_CONFIG", "code directory")
    if found is None or not found.is_dir():
        raise AttemptFailed("INVALID_CONFIG", f"code directory {location} is not a directory on this node")
    return found


def find_image(library: Library, location: str) -> Path:
    """A file or directory with a container image. Raises AttemptFailed."""
    found = _existing(library, location, "INVALID_CONFIG", "image")
    if found is None:
        raise AttemptFailed(
            "INVALID_CONFIG", f"resource_config.image.reference: {location} does not exist on this node"
        )
    return found.resolve()


def _local_model(library: Library, request: ModelRequest) -> LocalModel | None:
    """None when it has to be fetched."""
    model_id = request.model_id
    if is_upload(model_id):
        without = library.without_weights or request.without_weights
        unpacked = find_uploaded_directory(library, model_id, MODEL, without_weights=without)
        return LocalModel(path=unpacked, visible=unpacked)
    if not _is_local(library, model_id, request.access) or (request.source == "hub" and is_hub_id(model_id)):
        return None
    _refuse_access(request.access, f"base model {model_id}", is_hub=scheme_of(model_id) == "file")
    found = _model_directory(library, model_id)
    if found is None:
        if is_hub_id(model_id) and request.source != "local":
            return None
        raise AttemptFailed("MODEL_NOT_FOUND", f"base model {model_id} does not exist on this node")
    if request.revision:
        raise AttemptFailed(
            "INVALID_CONFIG",
            f"base_model.revision is {request.revision}, but {model_id} is a local directory, which has no revisions; "
            "leave revision out",
        )
    if not found.is_dir():
        raise AttemptFailed("MODEL_NOT_FOUND", f"base model {model_id} is not a directory")
    if not os.access(found, os.R_OK | os.X_OK) or not any(found.iterdir()):
        raise AttemptFailed("MODEL_NOT_FOUND", f"base model directory {model_id} is empty or can't be read")
    return LocalModel(path=found, visible=_visible_model(library, found))


def _model_directory(library: Library, model_id: str) -> Path | None:
    if scheme_of(model_id) == "file":
        return _existing(library, model_id, "MODEL_NOT_FOUND", "base model")
    try:
        path, _ = _claimed(library, model_id)
    except FetchFailed as error:
        raise _failed(error, "MODEL_NOT_FOUND", f"base model {model_id}") from error
    return Path(path) if os.path.exists(path) else None  # noqa: PTH110 – never raises


def _uploaded_data(library: Library, request: DataRequest) -> LocalData:
    """A file as it is, and the files of a directory."""
    if not is_uploaded_directory(library, request.location):
        return find_uploaded(library, request.location)
    unpacked = find_uploaded_directory(library, request.location, DATA)
    try:
        return _data_at(library, request, str(unpacked), functools.partial(within, directory=str(unpacked)))
    except FetchFailed as error:
        raise _failed(error, "DATA_NOT_FOUND", f"data source {request.location}") from error


def _local_data(library: Library, request: DataRequest) -> LocalData | None:
    """None when it has to be fetched."""
    if not _is_local(library, request.location, request.access):
        return None
    _refuse_access(request.access, f"data source {request.location}")
    failure: FetchFailed = NotThere("it does not exist on this node")
    try:
        for path, allowed in _data_places(library, request.location):
            try:
                return _data_at(library, request, path, allowed)
            except NotThere as error:
                failure = error
        raise failure
    except FetchFailed as error:
        raise _failed(error, "DATA_NOT_FOUND", f"data source {request.location}") from error


def _data_places(library: Library, location: str) -> list[tuple[str, Allowed]]:
    """Candidate paths with the rule for their link targets. Raises FetchFailed and AttemptFailed."""
    if scheme_of(location) != "file":
        path, base = _claimed(library, location)
        return [(path, functools.partial(within, directory=base))]
    places = _readable_places(library, location, "DATA_NOT_FOUND", "data source")
    return [(real, functools.partial(may_read, library)) for real in places]


def _claimed(library: Library, location: str) -> tuple[str, str]:
    """As ``claimed``, noting a claim for those who read the path. Raises FetchFailed."""
    path, base = claimed(library.fetch, location, library.project)
    if scheme_of(location) == CLAIMS:
        library.claims.add(Path(base))
    return path, base


def _data_at(library: Library, request: DataRequest, path: str, allowed: Allowed) -> LocalData:
    """Raises FetchFailed."""
    lister = LocalLister(allowed)
    there = lister.info(path)
    if request.custom and there is not None and there.kind == "directory":
        return LocalData(location=request.location, files=(), path=Path(path), visible=(Path(path),))
    chosen = expand(lister, path, FileSelection(max_files=library.fetch.max_files, format=request.format))
    # Digests of a script's data are not compared, and the data may be large.
    digest = (lambda _: "") if request.custom else library.digests.of
    files = tuple(_data_file(name, found, digest, allowed) for name, found in chosen)
    if len(files) == 1:
        return LocalData(location=request.location, files=files, path=files[0].path, visible=(files[0].path,))
    visible = _visible_files(files, allowed)
    if request.custom:
        links = _links(library.new_directory(), files)
        return LocalData(location=request.location, files=files, path=links, visible=(links, *visible))
    return LocalData(location=request.location, files=files, path=Path(path).parent, visible=visible)


def _data_file(name: str, found: ListedPath, digest: Callable[[Path], str], allowed: Allowed) -> LocalDataFile:
    path = Path(resolved(found.path))
    if not allowed(str(path)):  # a link was exchanged since the file was found
        raise NotThere(f"{name} is a link to a place that jobs may not read")
    if not os.access(path, os.R_OK):
        raise NotThere(f"{name} can't be read: permission denied")
    if found.size == 0:
        raise Unusable(f"{name} is empty")
    try:
        return LocalDataFile(path=path, name=name, size_bytes=found.size, sha256=digest(path))
    except OSError as error:
        raise Trouble(f"{name} can't be read: {error.strerror}") from error
    except RefusedFile as error:
        raise Unusable(f"{name} can't be read: {error.message}") from error


def _links(directory: Path, files: Sequence[LocalDataFile]) -> Path:
    for file in files:
        link = directory / file.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file.path)
    return directory


def _visible_files(files: Sequence[LocalDataFile], allowed: Allowed) -> tuple[Path, ...]:
    paths = tuple(file.path for file in files)
    parents = tuple(dict.fromkeys(path.parent for path in paths))
    few_enough = len(paths) <= MOST_MOUNTS
    return paths if few_enough or not all(allowed(str(parent)) for parent in parents) else parents


def _model_item(library: Library, request: ModelRequest) -> Item:
    return Item(
        kind="model",
        location=request.model_id,
        target=str(library.new_directory()),
        tree=True,
        revision=request.revision,
        hub_id=scheme_of(request.model_id) == "file",
        without_weights=library.without_weights or request.without_weights,
        credentials=request.access.credentials,
        options=request.access.options,
        **_limit(library),
    )


def _data_item(library: Library, request: DataRequest) -> Item:
    return Item(
        kind="data",
        location=request.location,
        target=str(library.new_directory()),
        tree=request.custom,
        format=request.format,
        split=request.split,
        credentials=request.access.credentials,
        options=request.access.options,
        **_limit(library),
    )


def _limit(library: Library) -> dict[str, Any]:
    own, less = library.fetch.max_bytes, library.fetch_bytes
    if less is not None and less < own:
        return {"max_bytes": less, "limit_name": "TRAINYARD_PREFLIGHT_FETCH_BYTES"}
    return {"max_bytes": own, "limit_name": "TRAINYARD_FETCH_MAX_BYTES"}


def _fetched(library: Library, items: Sequence[Item]) -> Iterator[tuple[Item, list[FetchedFile]]]:
    """Fetched items in order. Hub items are fetched separately, because only a hub may be reached through the
    machine's proxy.
    """
    of_hub = [item for item in items if item.hub_id or scheme_of(item.location) == "hf"]
    others = [item for item in items if item not in of_hub]
    files = {item.target: found for part in (of_hub, others) for item, found in fetch(library.order, part)}
    for item in items:
        cache_index.note(library.order.root, item, files[item.target])
    return ((item, files[item.target]) for item in items)


def _fetched_model(item: Item, files: Sequence[FetchedFile]) -> LocalModel:
    if not files:
        raise AttemptFailed("MODEL_NOT_FOUND", f"base model {shown(item.location)} has no files")
    return LocalModel(path=Path(item.target), visible=Path(item.target), commit=files[0].commit)


def _fetched_data(item: Item, files: Sequence[FetchedFile]) -> LocalData:
    found = tuple(
        LocalDataFile(path=Path(file.path), name=file.name, size_bytes=file.size_bytes, sha256=file.sha256)
        for file in files
    )
    directory = Path(item.target)
    path = found[0].path if len(found) == 1 and not _names_folder(item, found[0].name) else directory
    commit = files[0].commit if files else ""
    return LocalData(location=item.location, files=found, path=path, visible=(directory,), commit=commit)


def _names_folder(item: Item, only: str) -> bool:
    """Whether a script requested a folder, which stays a folder even with a single file."""
    last = item.location.rpartition("/")[2]
    in_store = scheme_of(item.location) in ("s3", "oci", "obs")
    return item.tree and (not last or (in_store and last != only and not MAGIC.search(last)))


def _visible_model(library: Library, model: Path) -> Path:
    """In a hub cache, .../models--owner--name/snapshots/<commit>, the files are links to .../blobs."""
    repository = model.parents[1] if model.parent.name == "snapshots" else model
    return repository if repository.name.startswith("models--") and may_read(library, str(repository)) else model


def _existing(library: Library, location: str, error_type: str, noun: str) -> Path | None:
    """The resolved file or directory of a location; None when no readable one exists."""
    if scheme_of(location) != "file":
        raise AttemptFailed(error_type, f"{noun} {shown(location)}: this scheme is not supported; give a path")
    places = _readable_places(library, location, error_type, noun)
    return next((Path(path) for path in places if os.path.exists(path)), None)  # noqa: PTH110 – never raises


def _readable_places(library: Library, location: str, error_type: str, noun: str) -> list[str]:
    """The absolute paths that a local location may mean, limited to those that jobs may read. Raises AttemptFailed."""
    try:
        path = local_path(location, field="") or ""
    except BadSpec as error:
        raise AttemptFailed(error_type, f"{noun} {location}: {error.message}") from error
    places = [real for real in candidates(path, library.rules) if may_read(library, real)]
    if not places and Path(path).is_absolute():
        # The same answer whether or not it exists: it must not reveal files that the job may not read.
        raise AttemptFailed(error_type, f"{noun} {location} can't be used: {UNREADABLE}")
    return places


def may_read(library: Library, real_path: str) -> bool:
    """Whether jobs of the library's project may read this absolute, resolved path."""
    if not readable(real_path, library.rules):
        return False
    job_id = job_of_path(real_path, library.rules)
    return job_id is None or library.project_of_job(job_id) == library.project


def _is_local(library: Library, location: str, access: Access) -> bool:
    scheme = scheme_of(location)
    return scheme in ("file", "pvc") or (library.fetch.directory_of(scheme) is not None and not access.endpoint)


def _refuse_access(access: Access, what: str, *, is_hub: bool = False) -> None:
    """A directory of this node is opened by nothing; the id of a hub's model may be one, too, and have a token."""
    if not is_hub and (access.credentials or access.options):
        raise AttemptFailed(
            "INVALID_CONFIG",
            f"{what} is a directory of this installation, which takes neither credentials nor storage_options; leave "
            "them out, or name its service by endpoint_url",
        )


def _failed(error: FetchFailed, not_there: str, what: str) -> AttemptFailed:
    return AttemptFailed(error.error_type or not_there, f"{what}: {error.message}")
