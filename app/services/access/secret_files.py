"""Secrets that an operator lays down for a project as files, as Kubernetes mounts them: `DIRECTORY/PROJECT/NAME/KEY`.

Documents of other vocabularies name them; a value is read once, when the job is submitted, and kept as all its secrets.
"""

import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from app.domain.errors import BadSpec

MOST_BYTES = 65_536
_NAME = re.compile(r"\.?[A-Za-z0-9_][A-Za-z0-9._-]{0,251}")


class Reference(NamedTuple):
    """Which key of which secret; ``field`` of the document says so."""

    name: str
    key: str
    field: str


def value_of(directory: Path, project: str, wanted: Reference) -> str:
    """Without the line break at its end. Raises BadSpec for what is not there, or is no text."""
    try:
        return _read(directory / project, wanted)
    except OSError as error:
        place = f"{project}/{wanted.name}/{wanted.key}"
        raise BadSpec(
            f"the project {project} has no secret {wanted.name} with the key {wanted.key}: its operator writes "
            f"it to the file {place} below TRAINYARD_SECURITY_SECRETS_DIR", field=wanted.field,
        ) from error  # fmt: skip


def values_of(
    directory: Path, project: str, name: str, keys: Mapping[str, Sequence[str]], *, field: str
) -> dict[str, str]:
    """What a secret has of these keys: each by the first file of those that it may be called.

    Raises BadSpec for a secret that is not there, or a value that is no text.
    """
    found = {}
    for key, files in keys.items():
        for file in files:
            with contextlib.suppress(OSError):
                found[key] = _read(directory / project, Reference(name, file, field))
                break
    if not found and not (directory / project / name).is_dir():
        raise BadSpec(
            f"the project {project} has no secret {name}: its operator makes the directory {project}/{name} below "
            "TRAINYARD_SECURITY_SECRETS_DIR, with a file for each key", field=field,
        )  # fmt: skip
    return found


def _read(directory: Path, wanted: Reference) -> str:
    """Raises BadSpec, OSError."""
    if not _NAME.fullmatch(wanted.name) or not _NAME.fullmatch(wanted.key):
        raise BadSpec(
            "name and key of a secret are of letters, digits, dots, dashes and underscores", field=wanted.field
        )
    with (directory / wanted.name / wanted.key).open("rb") as file:
        raw = file.read(MOST_BYTES + 1)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or len(raw) > MOST_BYTES:
        raise BadSpec(f"the secret {wanted.name} is no text of at most {MOST_BYTES} bytes", field=wanted.field)
    return text.removesuffix("\n")
