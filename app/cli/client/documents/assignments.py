"""`--set PATH=VALUE`: sets one value of a document, named by a dotted path with the numbers of lists."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
Assignment = tuple[str, str]

_OF_A_JOB = (
    "labels",
    "training_config.hyperparameters",
    "training_config.environment",
    "training_config.framework.config",
)
# Their names may have dots, so what follows such a path is one name; their values are texts. Sweeps have a `job`.
TEXT_MAPS = (*_OF_A_JOB, *(f"job.{each}" for each in _OF_A_JOB))
# Versions look like numbers of JSON, and 3.10 would be read as 3.1.
_TEXTS = ("training_config.packages.python", "job.training_config.packages.python")
# Of sweeps: names of parameters are dotted paths, too, and a last name of these is a part of one.
_PARAMETERS, _OF_A_PARAMETER = "parameters", ("type", "min", "max", "step", "scale", "values", "only_if")
_ENVIRONMENT = "environment."
_EXAMPLE = "training_config.hyperparameters.max_steps=200"


def set_option_like(example: str) -> Callable[[Command], Command]:
    """``--set`` for a command, as (path, text) pairs in ``assignments``; its help and errors show the example."""

    def parsed(_context: click.Context, _parameter: click.Parameter, values: Iterable[str]) -> tuple[Assignment, ...]:
        return tuple(_pair(value, example) for value in values)

    return click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="PATH=VALUE",
        callback=parsed,
        help=f"Set a value of the document, such as {example}; repeatable.",
    )


def set_option(command: Command) -> Command:
    """``--set`` for a command that reads a job document."""
    return set_option_like(_EXAMPLE)(command)


def assign(document: dict[str, Any], assignments: Iterable[Assignment]) -> None:
    """Set each value in the document. Raises ClickException for a path that leads through no object or list."""
    for path, text in assignments:
        names = _names(path)
        place: Any = document
        for depth, name in enumerate(names[:-1]):
            place = _inner(place, name, path, ".".join(names[:depth]), is_of_list=_starts_a_list(names, depth))
        _put(place, names[-1], _value(path, text), path, ".".join(names[:-1]))


def _pair(text: str, example: str) -> Assignment:
    path, equals, value = text.partition("=")
    path = path.strip()
    if not equals or not all(path.split(".")):
        raise click.BadParameter(f"{text!r:.200} is not PATH=VALUE; write for example {example}")
    return path, value


def _names(path: str) -> list[str]:
    if path.startswith(f"{_PARAMETERS}."):
        return [_PARAMETERS, *_parameter(path[len(_PARAMETERS) + 1 :])]
    parent = next((each for each in TEXT_MAPS if path.startswith(f"{each}.")), "")
    return [*parent.split("."), path[len(parent) + 1 :]] if parent else path.split(".")


def _parameter(path: str) -> list[str]:
    """The name of a sweep's parameter, and the part of it that is meant, if one is."""
    name, _, part = path.rpartition(".")
    is_part = bool(name) and part in _OF_A_PARAMETER and f"{name}." != _ENVIRONMENT
    return [name, part] if is_part else [path]


def _starts_a_list(names: Sequence[str], depth: int) -> bool:
    """Whether what the name leads to is a list where it is missing: the next name is its first number."""
    return names[depth + 1] == "0" and ".".join(names[: depth + 1]) not in TEXT_MAPS


def _inner(place: object, name: str, path: str, at: str, *, is_of_list: bool) -> object:
    """The object or list that a name leads to; what is not there yet is made, in a list as its next item."""
    made: object = [] if is_of_list else {}
    if isinstance(place, list):
        if name == str(len(place)):
            place.append(made)
        return place[_index(place, name, path, at)]
    if not isinstance(place, dict):
        raise _no_way(path, at, place)
    if place.get(name) is None:
        place[name] = made
    return place[name]


def _put(place: object, name: str, value: object, path: str, at: str) -> None:
    if isinstance(place, list):
        if name == str(len(place)):
            place.append(value)
        else:
            place[_index(place, name, path, at)] = value
    elif isinstance(place, dict):
        place[name] = value
    else:
        raise _no_way(path, at, place)


def _index(place: list[Any], name: str, path: str, at: str) -> int:
    if name.isdecimal() and int(name) < len(place):
        return int(name)
    has = f"its {len(place)} items have the numbers 0 to {len(place) - 1}" if place else "it has no items"
    has += f", and {len(place)} appends one"
    raise click.ClickException(f"--set {path}: {at} is a list, and {name!r} is no item of it; {has}")


def _no_way(path: str, at: str, place: object) -> click.ClickException:
    shown = json.dumps(place, ensure_ascii=False)[:60]
    return click.ClickException(
        f"--set {path}: {at} is {shown}, which is neither an object nor a list; set {at} itself, or correct the path"
    )


def _value(path: str, text: str) -> object:
    """A value of JSON where the text is one, else the text; in maps of texts always the text."""
    if path.startswith(tuple(f"{each}." for each in TEXT_MAPS)):
        return text
    try:
        value = json.loads(text, parse_constant=lambda _: text)
        json.dumps(value, allow_nan=False)  # 1e400 is read as infinity
    except (ValueError, RecursionError):
        return text
    return text if path in _TEXTS and isinstance(value, int | float) else value
