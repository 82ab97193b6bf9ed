"""Secrets provided by the operator as files, laid out as Kubernetes mounts them: `DIRECTORY/PROJECT/NAME/KEY`.

Documents of other dialects refer to them; a value is read at submission and stored encrypted like other job secrets.
"""

import re
from pathlib import Path
from typing import NamedTuple

from app.domain.errors import BadSpec

MAX_BYTES = 65_536
_NAME = re.compile(r"\.?[A-Za-z0-9_][A-Za-z0-9._-]{0,251}")


class Reference(NamedTuple):
    """A reference to a key of a secret; ``field`` is its path in the document."""

    name: str
    key: str
    field: str


def value_of(directory: Path, project: str, wanted: Reference) -> str:
    """The value without its trailing newline. Raises BadSpec if it is missing or not text."""
    if not _NAME.fullmatch(wanted.name) or not _NAME.fullmatch(wanted.key):
        raise BadSpec(
            "name and key of a secret must consist of letters, digits, dots, dashes and underscores",
            field=wanted.field,
        )
    try:
        with (directory / project / wanted.name / wanted.key).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        place = f"{project}/{wanted.name}/{wanted.key}"
        raise BadSpec(
            f"the project {project} has no secret {wanted.name} with the key {wanted.key}: the operator provides "
            f"it as the file {place} below TRAINYARD_SECURITY_SECRETS_DIR", field=wanted.field,
        ) from error  # fmt: skip
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or len(raw) > MAX_BYTES:
        raise BadSpec(f"the secret {wanted.name} is not a text of at most {MAX_BYTES} bytes", field=wanted.field)
    return text.removesuffix("\n")
