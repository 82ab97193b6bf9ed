"""What is wrong with a JSON document, by the dotted paths of its fields."""

import re
from typing import Any, NamedTuple

_MARSHMALLOW_KEYS = ("_schema", "key", "value")
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
    """Nested messages as (dotted field, message). Removes marshmallow's own path elements (`_schema`, `key`, `value`),
    unless the value ``found`` at that path has a field of that name.
    """
    if isinstance(messages, dict):
        pairs = []
        for name, inner in messages.items():
            is_ours = name not in _MARSHMALLOW_KEYS or (isinstance(found, dict) and name in found)
            below = f"{path}.{name}".lstrip(".") if is_ours else path
            pairs += flat(inner, _at(found, name) if is_ours else found, below)
        return pairs
    if isinstance(messages, list):
        return [pair for inner in messages for pair in flat(inner, found, path)]
    return [(path, str(messages))]


def _at(found: object, name: object) -> object:
    if isinstance(found, dict):
        return found.get(name)
    return found[name] if isinstance(found, list) and isinstance(name, int) and name < len(found) else None
