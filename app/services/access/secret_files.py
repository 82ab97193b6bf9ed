"""Secrets provided by the operator as files, laid out as Kubernetes mounts them: `DIRECTORY/PROJECT/NAME/KEY`.

Documents of other dialects refer to them; a value is read at submission and stored encrypted like other job secrets.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from app.domain.errors import BadSpec

MAX_BYTES = 65_536
LOGINS = ".dockerconfigjson"  # the key with logins of registries, which no job gets
GIT_LOGINS = "git-logins"  # the secret with logins of Git servers, by host, which no job gets
_NAME = re.compile(r"\.?[A-Za-z0-9_][A-Za-z0-9._-]{0,251}")


class Reference(NamedTuple):
    """A reference to a key of a secret; ``field`` is its path in the document."""

    name: str
    key: str
    field: str


def value_of(directory: Path, project: str, reference: Reference) -> str:
    """The value without its trailing newline, for a job. Raises BadSpec if it is missing, not text, or not for jobs."""
    if reference.key == LOGINS:
        raise BadSpec(
            f"the secret {reference.name} has logins of registries, which no job gets; they open its images where "
            "imagePullSecrets names the secret",
            field=reference.field,
        )
    if reference.name == GIT_LOGINS:
        raise BadSpec(
            f"the secret {GIT_LOGINS} opens the repositories of jobs' code, and no job gets it; name another secret",
            field=reference.field,
        )
    try:
        return _read(directory / project, reference)
    except OSError as error:
        place = f"{project}/{reference.name}/{reference.key}"
        raise BadSpec(
            f"the project {project} has no secret {reference.name} with the key {reference.key}: the operator provides "
            f"it as the file {place} below TRAINYARD_SECURITY_SECRETS_DIR",
            field=reference.field,
        ) from error


def values_of(
    directory: Path, project: str, name: str, keys: Mapping[str, Sequence[str]], *, field: str
) -> dict[str, str]:
    """What a secret has of these keys: each by the first file of those that it may be called.

    Raises BadSpec for a secret that is not there, or a value that is no text.
    """
    found = present_values(directory, project, name, keys, field=field)
    if not found and not (directory / project / name).is_dir():
        raise BadSpec(
            f"the project {project} has no secret {name}: its operator makes the directory {project}/{name} below "
            "TRAINYARD_SECURITY_SECRETS_DIR, with a file for each key",
            field=field,
        )
    return found


def present_values(
    directory: Path, project: str, name: str, keys: Mapping[str, Sequence[str]], *, field: str
) -> dict[str, str]:
    """As ``values_of``, and empty for a secret that is not there.

    A file that is there and can't be read is not taken for a missing one, whose default may send a key elsewhere.
    Raises BadSpec for it, and for a value that is no text.
    """
    found = {}
    for key, files in keys.items():
        for file in files:
            try:
                found[key] = _read(directory / project, Reference(name, file, field))
                break
            except OSError as error:
                if not _is_missing(directory / project / name / file):
                    raise BadSpec(
                        f"the secret file {project}/{name}/{file} below TRAINYARD_SECURITY_SECRETS_DIR can't be read "
                        f"({error.strerror}): its operator lets the API servers read it, or removes it",
                        field=field,
                    ) from error
    return found


def _is_missing(path: Path) -> bool:
    """Whether there is no such name: a link that leads nowhere is there."""
    try:
        path.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def files_of(directory: Path, project: str, name: str, *, field: str) -> dict[str, str]:
    """All keys of a secret with their values, in the order of the keys. Raises BadSpec."""
    try:
        values_of(directory, project, name, {}, field=field)
        keys = sorted(path.name for path in (directory / project / name).iterdir() if _NAME.fullmatch(path.name))
    except OSError as error:
        raise BadSpec(
            f"the secret {name} of the project {project} can't be read ({error.strerror}): its operator lets the API "
            f"servers read the directory {project}/{name} below TRAINYARD_SECURITY_SECRETS_DIR",
            field=field,
        ) from error
    return {key: value_of(directory, project, Reference(name, key, field)) for key in keys}


def is_missing(directory: Path, project: str, name: str) -> bool:
    """Whether the project has no secret of this name. One that can't be read is there."""
    return _NAME.fullmatch(name) is not None and _is_missing(directory / project / name)


def _read(directory: Path, reference: Reference) -> str:
    """Raises BadSpec, OSError."""
    if not _NAME.fullmatch(reference.name) or not _NAME.fullmatch(reference.key):
        raise BadSpec(
            "name and key of a secret are of letters, digits, dots, dashes and underscores", field=reference.field
        )
    with (directory / reference.name / reference.key).open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or len(raw) > MAX_BYTES:
        raise BadSpec(f"the secret {reference.name} is not a text of at most {MAX_BYTES} bytes", field=reference.field)
    return text.removesuffix("\n")
