"""What is wrong with a JSON document, by the dotted paths of its fields."""

import re
from collections.abc import Sized
from typing import Any, NamedTuple

from app.domain.spec.quoting import kind_of, quoted

_MARSHMALLOW_KEYS = ("_schema", "key", "value")
_ABSENT = object()
_TYPES = {  # marshmallow's messages about a wrong type, and ours
    "Not a valid string.": "must be a string",
    "Not a valid list.": "must be a list",
    "Not a valid mapping type.": "must be an object",
    "Invalid input type.": "must be an object",
}
_BOUNDS = (  # marshmallow's messages about sizes, and ours
    (re.compile(r"Must be greater than or equal to (\S+) and less than or equal to (\S+)\."), "must be from {} to {}"),
    (re.compile(r"Must be greater than or equal to (\S+)\."), "must be at least {}"),
    (re.compile(r"Length must be between (\d+) and (\d+)\."), "must have {} to {} {unit}, not {size}"),
    (re.compile(r"Longer than maximum length (\d+)\."), "must have at most {} {unit}, not {size}"),
    (re.compile(r"Shorter than minimum length (\d+)\."), "must have at least {} {unit}, not {size}"),
)
_UNITS = ((str, "characters"), (list, "entries"), (dict, "fields"))
_WORDS = {
    "Missing data for required field.": "is required",
    "Field may not be null.": "must not be null",
    "Unknown field.": "unknown field",
}
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class ContentProblem(NamedTuple):
    """``path`` None: it is about the whole document, which no schema can read."""

    path: str | None
    message: str


def content_problem(document: object, *, max_nesting: int) -> ContentProblem | None:
    """Nesting beyond the limit, or the first text with characters that a database cannot store."""
    todo: list[tuple[str, Any, int]] = [("", document, 1)]
    while todo:
        path, node, depth = todo.pop()
        if isinstance(node, str):
            if _UNSTORABLE.search(node):
                return _unstorable(path)
        elif isinstance(node, dict | list):
            if depth > max_nesting:
                return ContentProblem(None, f"the JSON is nested deeper than {max_nesting} levels")
            items = node.items() if isinstance(node, dict) else enumerate(node)
            for key, child in items:
                if isinstance(key, str) and _UNSTORABLE.search(key):
                    return _unstorable(path)
                todo.append((f"{path}.{key}".lstrip("."), child, depth + 1))
    return None


def _unstorable(path: str) -> ContentProblem:
    return ContentProblem(path, "contains a NUL character or a lone surrogate")


def flat(messages: object, found: object, path: str = "") -> list[tuple[str, str]]:
    """Nested messages as (dotted field, message), which begins with the wrong value where it says what that must be.

    Removes marshmallow's own path elements (`_schema`, `key`, `value`), unless the value ``found`` at that path has a
    field of that name.
    """
    if isinstance(messages, dict):
        pairs = []
        for name, inner in messages.items():
            is_ours = name not in _MARSHMALLOW_KEYS or (isinstance(found, dict) and name in found)
            below = f"{path}.{name}".lstrip(".") if is_ours else path
            # Of a key that is wrong the message is about the key, not its value.
            value = _at(found, name) if is_ours else path.rpartition(".")[2] if name == "key" else found
            pairs += flat(inner, value, below)
        return pairs
    if isinstance(messages, list):
        return [pair for inner in messages for pair in flat(inner, found, path)]
    return [(path, _said(str(messages), found, path))]


def _said(message: str, value: object, path: str) -> str:
    if message in _TYPES:
        message = f"{_TYPES[message]}, not {kind_of(value)}"
    text = _WORDS.get(message) or _of_bounds(message, value)
    if not text.startswith("must ") or value in ("", _ABSENT):
        return text
    return f"{quoted(value, field=path)} {text}".lstrip()


def _of_bounds(message: str, value: object) -> str:
    """A message about the size of a value in our words; others as they are."""
    for form, words in _BOUNDS:
        if match := form.fullmatch(message):
            unit = next((unit for kind, unit in _UNITS if isinstance(value, kind)), "")
            return words.format(*match.groups(), unit=unit, size=len(value) if isinstance(value, Sized) else 0)
    return message


def _at(found: object, name: object) -> object:
    if isinstance(found, dict):
        return found.get(name, _ABSENT)
    return found[name] if isinstance(found, list) and isinstance(name, int) and name < len(found) else _ABSENT
