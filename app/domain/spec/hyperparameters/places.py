"""Where a field belongs: the dotted paths of a job document by the last name, for users who gave it elsewhere."""

import types
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Union, get_args, get_origin, get_type_hints

from app.domain.spec.hyperparameters.tables import TABLES
from app.domain.spec.model import JobDocument, Source
from app.domain.spec.section import Section
from app.domain.suggestions import near, same

_HYPERPARAMETERS = "training_config.hyperparameters"
_NOT_SUBMITTED = ("kind", "inference")
_ANYWHERE = ("name", "labels")  # of many things, so that the document's own are not what is meant
_MOST_PLACES = 2  # of a name that means something in more places, none is the likely one
_MOST_KNOWN = 12


def unknown_field(name: str, fields: Collection[str], *, of_job: bool = True) -> str:
    """What to say about a field that its object, which has ``fields``, does not know.

    ``of_job``: the object is a part of a job document, in which the field may belong elsewhere.
    """
    if meant := same(name, fields):
        return f"unknown field (did you mean {meant}?)"
    if of_job and (place := place_of(name)):
        return f"unknown field; it belongs at {place}"
    if meant := near(name, fields):
        return f"unknown field (did you mean {meant}?)"
    listed = ", ".join(list(fields)[:_MOST_KNOWN]) + (", …" if len(fields) > _MOST_KNOWN else "")
    return f"unknown field; known: {listed}" if fields else "unknown field; none is known here"


def place_of(name: str) -> str | None:
    """The dotted path of the field that a name means, unless it means several."""
    places = _places()
    meant = same(name, places)
    found = places[meant] if meant is not None else ()
    return " or ".join(found) if 0 < len(found) <= _MOST_PLACES else None


@cache
def _places() -> Mapping[str, tuple[str, ...]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in _paths(JobDocument, ""):
        if path not in _ANYWHERE:
            found[path.rpartition(".")[2]].append(path if "." in path else "the top level of the document")
    for name in {item.name for table in TABLES.values() for item in table}:
        found[name].append(f"{_HYPERPARAMETERS}.{name}")
    return {name: tuple(paths) for name, paths in found.items()}


def _paths(section: type[Section], before: str) -> Iterator[str]:
    for name, hint in get_type_hints(section).items():
        if name == "given" or (not before and name in _NOT_SUBMITTED):
            continue
        yield f"{before}{name}"
        if name == "sources":
            yield from _paths(Source, f"{before}{name}.0.")
        for inner in _sections(hint):
            yield from _paths(inner, f"{before}{name}.")


def _sections(hint: object) -> Iterator[type[Section]]:
    if get_origin(hint) in (types.UnionType, Union):
        for each in get_args(hint):
            yield from _sections(each)
    elif isinstance(hint, type) and issubclass(hint, Section):
        yield hint
