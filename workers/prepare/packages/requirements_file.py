"""The requirements file in the code of a job."""

from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from app.domain.errors import BadSpec
from app.domain.spec.locations.code import path_in_bundle
from app.domain.spec.packages import Packages
from app.domain.spec.quoting import quoted
from app.domain.spec.rules.requirement_lines import FILE_FIELD, LONGEST_LOCK, with_lines_of
from app.storage.beneath import RefusedFile, directory_opened, file_opened, located
from workers.attempt_failed import AttemptFailed


@dataclass(frozen=True, kw_only=True)
class InCode:
    """``packages`` with what the file names, without the file."""

    packages: Packages
    was_found: bool


def read_requirements_file(packages: Packages, code: Path | None, claim: Path | None = None) -> InCode:
    """What the job asks for with its requirements file. Raises AttemptFailed.

    ``claim``: the volume claim in which the code lies.
    """
    name = packages.requirements_file
    text = _text_of(code, name, claim) if code is not None and name else None
    if text is None:
        if packages.requirements_file and packages.requirements_file_required:
            raise _refused(f"{quoted(name)} is not in the code of the job; add it, or name packages in requirements")
        return InCode(packages=packages.changed(requirements_file=""), was_found=False)
    try:
        return InCode(packages=with_lines_of(packages, text, _is_requirement), was_found=True)
    except BadSpec as error:
        raise _refused(error.message) from error


def _text_of(code: Path, name: str, claim: Path | None) -> str | None:
    """None where there is no such file. Raises AttemptFailed."""
    path = path_in_bundle(name)
    if not path:  # an older API may have let it pass
        raise _refused(f"{quoted(name)} does not name a file in the code")
    try:
        # The code may have a link to a file of the node's: none is followed.
        directory = directory_opened(code.resolve()) if claim is None else located(code, claim)
        with directory as root, file_opened(root, path) as file:
            content = file.read(LONGEST_LOCK + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except RefusedFile as error:
        raise _refused(f"{error.message}; put the file itself into the code") from error
    except OSError as error:
        raise AttemptFailed("STORAGE_ERROR", f"{FILE_FIELD}: {quoted(name)} can't be read: {error.strerror}") from error
    if len(content) > LONGEST_LOCK:
        raise _refused(f"{quoted(name)} has more than {LONGEST_LOCK} bytes; name fewer packages")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(f"{quoted(name)} is not UTF-8; save it as text") from error


def _is_requirement(text: str) -> bool:
    try:
        Requirement(text)
    except (InvalidRequirement, RecursionError):
        return False
    return True


def _refused(message: str) -> AttemptFailed:
    return AttemptFailed("INVALID_CONFIG", f"{FILE_FIELD}: {message}")
