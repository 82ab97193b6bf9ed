"""The option --resource KEY=VALUE of `retry`."""

import re
from collections.abc import Mapping
from typing import Any

import click

_TEXTS = ("gpu_type", "device_type")
_NUMBER = re.compile("[0-9]{1,18}")
_DECIMAL = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}")


def _parsed(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """Values become numbers, except device types, which may look like one (4090). Validation is left to the command."""
    found: dict[str, Any] = {}
    for text in values:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{text!r} is not a resource; write KEY=VALUE, as in gpu_count=2")
        found[name] = _value(name.rpartition(".")[2], value)
    return found


def by_role(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(fields of the job's resource_config, changes of its roles): ``trainer.gpu_count`` is a field of a role."""
    of_job: dict[str, Any] = {}
    roles: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        role, _, name = key.rpartition(".")
        if not role:
            of_job[name] = value
            continue
        change = roles.setdefault(role, {"role": role})
        (change if name == "count" else change.setdefault("resource_config", {}))[name] = value
    return of_job, [*roles.values()]


def _value(name: str, text: str) -> str | float | list[str]:
    """The typed value; several types are separated by commas."""
    if name in _TEXTS:
        return text.split(",") if "," in text else text
    if _DECIMAL.fullmatch(text):
        return float(text)
    return int(text) if _NUMBER.fullmatch(text) else text


resource_option = click.option(
    "--resource",
    "resources",
    multiple=True,
    callback=_parsed,
    metavar="KEY=VALUE",
    help="Override a field of resource_config, as in gpu_count=2, or of a role, as in trainer.gpu_count=2 or "
    "trainer.count=2; repeatable.",
)
