"""Environment variables whose values are secrets of a project."""

from collections.abc import Mapping

from app.http.context import backend
from app.services.access.secret_files import Reference, value_of


def secret_values(project: str, references: Mapping[str, Reference]) -> dict[str, str]:
    """The values by variable. Raises BadSpec for a missing secret."""
    directory = backend().settings.security.secrets_dir
    return {} if directory is None else {name: value_of(directory, project, each) for name, each in references.items()}
