"""Directories that arrive as archives: uploaded ones, and commits of Git repositories, unpacked for one attempt."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from app.domain.files.purposes import DIRECTORY
from app.domain.spec.locations.code import MOST_BYTES, MOST_FILES, is_git
from app.domain.spec.locations.outbound_proxy import SETTING
from app.domain.spec.secrets import CODE_LOGIN
from workers.attempt_failed import AttemptFailed
from workers.fetching.cache import FREE_BYTES, stored_bytes
from workers.fetching.child.client import machine_has_proxy, run_child
from workers.fetching.failures import FetchFailed
from workers.fetching.fetch import TooLargeHere, fetch
from workers.fetching.items import NOT_NEEDED, WEIGHTS, Item
from workers.fetching.uris import shown
from workers.prepare.inputs.input_library import Library
from workers.prepare.inputs.uploaded_data import content_of


@dataclass(frozen=True, kw_only=True)
class Purpose:
    """What an archive is for: the noun of messages, and the error types of one that is missing or unusable."""

    noun: str
    not_there: str
    unusable: str


_HERE = "TRAINYARD_PREFLIGHT_FETCH_BYTES"
_OF_NETWORK = ("STORAGE_ERROR", "HUB_UNREACHABLE")
_NO_PROXY = (
    "git does not use the proxy of this machine's variables, which could reach private addresses; where it is the only "
    f"way out, have the administrator name it in {SETTING}, or upload the code with `trainyard submit --code DIR`"
)
CODE = Purpose(noun="code directory", not_there="INVALID_CONFIG", unusable="INVALID_CONFIG")
MODEL = Purpose(noun="base model", not_there="MODEL_NOT_FOUND", unusable="INVALID_CONFIG")
DATA = Purpose(noun="data source", not_there="DATA_NOT_FOUND", unusable="DATA_INVALID")


def is_uploaded_directory(library: Library, file_id: str) -> bool:
    file = library.uploads(file_id)
    return file is not None and file.purpose == DIRECTORY


def find_code_bundle(library: Library, location: str) -> Path:
    """The unpacked code. Raises AttemptFailed."""
    if not is_git(location):
        return find_uploaded_directory(library, location, CODE)
    item = Item(
        kind="code",
        location=location,
        target=str(library.new_directory()),
        max_bytes=_most_bytes(library, MOST_BYTES),
        limit_name="the most that code may have" if library.fetch_bytes is None else _HERE,
        credentials={
            path.removeprefix(f"{CODE_LOGIN}."): value
            for path, value in library.secrets.items()
            if path.startswith(f"{CODE_LOGIN}.")
        },
    )
    try:
        [(_, files)] = fetch(library.order, [item])
    except AttemptFailed as error:
        if error.error_type not in _OF_NETWORK or library.fetch.proxy or not machine_has_proxy():
            raise
        raise AttemptFailed(error.error_type, f"{error.message}; {_NO_PROXY}") from error
    return _unpacked(library, Path(files[0].path), f"{CODE.noun} {shown(location)}", CODE)


def find_uploaded_directory(library: Library, file_id: str, purpose: Purpose, *, without_weights: bool = False) -> Path:
    """The unpacked directory of an uploaded archive. Raises AttemptFailed."""
    what = f"{purpose.noun} {file_id}"
    file = library.uploads(file_id)
    if file is None:
        raise AttemptFailed(purpose.not_there, f"{what}: the project {library.project} has no such file; upload it")
    if file.purpose != DIRECTORY:
        raise AttemptFailed(
            purpose.unusable,
            f"{what} was uploaded for {file.purpose} and is no directory; upload it with `trainyard data push DIR`",
        )
    if library.fetch_bytes is not None and file.size_bytes > library.fetch_bytes:
        raise TooLargeHere(
            purpose.unusable, f"{what}: its {file.size_bytes} bytes are more than {library.fetch_bytes} ({_HERE})"
        )
    directory = library.new_directory()
    directory.mkdir(parents=True)
    archive = content_of(library, file, directory / "archive", what, purpose.not_there)
    return _unpacked(library, archive, what, purpose, without_weights=without_weights)


def _unpacked(library: Library, archive: Path, what: str, purpose: Purpose, *, without_weights: bool = False) -> Path:
    """The directory. While the disk is full, what the cache does not need makes room. Raises AttemptFailed."""
    is_code = purpose is CODE
    most = MOST_BYTES if is_code else library.fetch.max_bytes
    allowed = _most_bytes(library, most)
    request = {
        "archive": str(archive),
        "max_bytes": allowed,
        "max_files": MOST_FILES if is_code else library.fetch.max_files,
        "skip": [*NOT_NEEDED, *WEIGHTS] if without_weights else [],
    }
    room, is_full = archive.stat().st_size, False
    while True:
        try:
            library.file_cache.make_room(room)
        except FetchFailed as error:
            reason = "DISK_FULL" if is_full else error.error_type or purpose.unusable
            raise AttemptFailed(reason, f"{what}: {error.message}") from error
        target = library.new_directory()
        answer = run_child(
            "workers.fetching.code.unpack",
            {**request, "target": str(target)},
            what=what,
            stalled_seconds=library.fetch.stalled_seconds,
        )
        failure, error_type = answer.get("failure"), answer.get("error_type", purpose.unusable)
        if not failure:
            return target
        room, is_full = max(2 * room, 2 * stored_bytes(target), FREE_BYTES), True
        shutil.rmtree(target, ignore_errors=True)
        if error_type != "DISK_FULL":
            is_here = answer.get("too_large") and allowed < most
            raise (TooLargeHere if is_here else AttemptFailed)(error_type, f"{what}: {failure}")


def _most_bytes(library: Library, most: int) -> int:
    """In a preflight its lower limit."""
    return most if library.fetch_bytes is None else min(most, library.fetch_bytes)
