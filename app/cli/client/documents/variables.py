"""`${NAME}` in a document: the variables of the environment in which a command runs.

Programs are left alone, because their shells expand the same form where the job runs; `$(NAME)` is always the node's.
"""

import re
from collections.abc import Mapping
from typing import Any

import click

from config.environment import user_environment

# What shells of the job may expand: a program with its arguments.
LEFT_ALONE = frozenset({"custom_command", "custom_arguments"})
_REFERENCE = re.compile(r"(\$?)\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}", re.ASCII)


def expand(document: dict[str, Any], variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The document with its variables replaced. Raises ClickException for one that is not set."""
    known = user_environment() if variables is None else variables
    return {name: _expanded(value, known, name) for name, value in document.items()}


def _expanded(value: Any, known: Mapping[str, str], path: str) -> Any:  # noqa: ANN401 – JSON
    if isinstance(value, str):
        return _text(value, known, path) if "${" in value else value
    if isinstance(value, list):
        return [_expanded(each, known, f"{path}.{i}") for i, each in enumerate(value)]
    if isinstance(value, dict):
        return {
            name: each if name in LEFT_ALONE else _expanded(each, known, f"{path}.{name}")
            for name, each in value.items()
        }
    return value


def _text(text: str, known: Mapping[str, str], path: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        escaped, name, default = found.groups()
        if escaped:
            return found[0][1:]
        # As in a shell: the default also stands in for a variable that is empty.
        if default is not None:
            return known.get(name) or default
        if name not in known:
            raise click.ClickException(
                f"{path}: the variable {name} of ${{{name}}} is not set; export it, write ${{{name}:-default}}, or "
                f"$${{{name}}} if these characters themselves are meant"
            )
        return known[name]

    return _REFERENCE.sub(replaced, text)
