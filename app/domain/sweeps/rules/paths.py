"""Which fields of a job document may vary, by their dotted paths."""

import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from app.domain.errors import BadSpec
from app.domain.spec.model import JobDocument
from app.domain.spec.section import Section
from app.domain.suggestions import did_you_mean

FieldKind = Literal["number", "whole number", "text", "true or false"]
_KINDS: dict[object, FieldKind] = {int: "whole number", float: "number", str: "text", bool: "true or false"}

# Never vary: names, who pays, where results go, what opens something, and what the sweep itself decides. A part of a
# path at its end, or a whole path; of a section everything below it.
_DENIED_NAMES = frozenset({"name", "labels", "credentials", "storage_options", "hub_token", "content"})
_DENIED_PATHS = (
    "training_config.priority",
    "training_config.resume_from_checkpoint",
    "training_config.training_type",
    "training_config.framework.type",
    "training_config.framework.custom_code_credentials",
    "resource_config.user",
    "resource_config.mounts",
    "resource_config.registry_logins",
    "output_config.output_model_name",
    "output_config.output_path",
    "output_config.log_path",
    "output_config.push_to_hub",
    "output_config.hub_repo_id",
    "output_config.hub_private",
    "scheduling_config.queue",
    "scheduling_config.priority",
    "tracking",
)
_BARE = "training_config.hyperparameters"
_VARIABLES = "training_config.environment"


def kind_of(path: str, job: Mapping[str, Any]) -> FieldKind:
    """What the field of the document is. Raises BadSpec for one that does not exist or may not vary.

    A part of a list is named by its index, as in data_config.sources.0.weight, and has to be in ``job``.
    """
    field = f"parameters.{path}"
    parts = path.split(".")
    if path.startswith((f"{_BARE}.", f"{_VARIABLES}.")):
        short = path.removeprefix(f"{_BARE}.").replace(f"{_VARIABLES}.", "environment.", 1)
        raise BadSpec(f"has a shorter name, {short}; use that", field=field)
    if _DENIED_NAMES & set(parts) or any(f"{path}.".startswith(f"{denied}.") for denied in _DENIED_PATHS):
        raise BadSpec(
            "may not vary: names, labels, secrets, outputs, queue, priority and training type are the same for all "
            "trials; set it in job",
            field=field,
        )
    return _kind_below(JobDocument, parts, job, field)


def _kind_below(section: type[Section], parts: list[str], node: object, field: str) -> FieldKind:
    hints = _hints(section)
    name, *rest = parts
    if name not in hints:
        known = ", ".join(hints)
        raise BadSpec(f"{name[:80]!r} is no field here; known: {known}{did_you_mean(name, hints)}", field=field)
    inner = node.get(name) if isinstance(node, Mapping) else None
    choices = _alternatives(hints[name])
    if below := next((each for each in choices if isinstance(each, type) and issubclass(each, Section)), None):
        if rest:
            return _kind_below(below, rest, inner, field)
        known = ", ".join(_hints(below))
        raise BadSpec(f"is a section; name a field of it: {known}", field=field)
    if listed := next((each for each in map(_entry, choices) if each is not None), None):
        return _kind_of_entry(listed, rest, inner, field)
    kind = next((_KINDS[each] for each in choices if each in _KINDS), None)
    if kind is None or rest:
        raise BadSpec("is no number, text, or true or false; only these may vary", field=field)
    return kind


def _kind_of_entry(section: type[Section], parts: list[str], node: object, field: str) -> FieldKind:
    count = len(node) if isinstance(node, list) else 0
    index, *rest = parts or [""]
    if not (index.isascii() and index.isdecimal() and len(index) < 6 and int(index) < count and rest):
        raise BadSpec(f"names entries by index, from 0, and a field of each; job has {count} of them", field=field)
    inner = node[int(index)] if isinstance(node, list) else None
    return _kind_below(section, rest, inner, field)


def _entry(hint: object) -> type[Section] | None:
    """The section of which it is a list."""
    first = get_args(hint)[0] if get_origin(hint) is tuple else None
    return first if isinstance(first, type) and issubclass(first, Section) else None


def _alternatives(hint: object) -> list[object]:
    """The types that a field may have; a fixed choice of texts is text."""
    if get_origin(hint) in (types.UnionType, Union):
        return [each for part in get_args(hint) for each in _alternatives(part)]
    return [type(each) for each in get_args(hint)] if get_origin(hint) is Literal else [hint]


def _hints(section: type[Section]) -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(section).items() if name != "given"}
