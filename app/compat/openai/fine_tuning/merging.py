"""Merges what a client says in OpenAI's fields with the parts of a job document in `trainyard`. Pure."""

from collections.abc import Mapping
from typing import Any

from app.compat.openai.fine_tuning.naming import REST
from app.domain.errors import BadSpec
from app.domain.suggestions import did_you_mean

SECTIONS = (
    "name",
    "labels",
    "training_config",
    "data_config",
    "resource_config",
    "output_config",
    "scheduling_config",
    "tracking",
)
_NO_OBJECTS = ("name", "tracking")


def document_of(extra: Mapping[str, Any]) -> dict[str, Any]:
    """A job document with these parts. Raises BadSpec for an unknown section."""
    for name, section in extra.items():
        if name not in SECTIONS:
            known = ", ".join(SECTIONS)
            raise BadSpec(
                f"{name[:64]} is no section of a job document{did_you_mean(name, SECTIONS)}; known: {known}",
                field=f"{REST}.{name[:64]}",
            )
        if name not in _NO_OBJECTS and not isinstance(section, Mapping):
            raise BadSpec("must be an object", field=f"{REST}.{name}")
    return {name: _copied(section) for name, section in extra.items()}


def say(document: dict[str, Any], path: str, value: object, field: str) -> None:
    """Set the value of the client's ``field`` at the path. Raises BadSpec where `trainyard` has set it, too."""
    place, last = _place(document, path)
    if last in place:
        raise BadSpec(f"{path} is set by {field}; leave it out of {REST}", field=f"{REST}.{path}")
    place[last] = value


def fill(document: dict[str, Any], path: str, value: object) -> None:
    """Set the value at the path unless it is set."""
    place, last = _place(document, path)
    place.setdefault(last, value)


def found_at(document: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401 – as sent
    """The value at the path, None where there is none."""
    value: Any = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _place(document: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    *parents, last = path.split(".")
    place, above = document, REST
    for name in parents:
        above = f"{above}.{name}"
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise BadSpec("must be an object", field=above)
    return place, last


def _copied(value: object) -> Any:  # noqa: ANN401 – as sent
    """Without fields that are null: those are omitted; so that nothing of the request is changed."""
    if isinstance(value, Mapping):
        return {name: _copied(each) for name, each in value.items() if each is not None}
    return value
