"""One mistake that users make, and the message that it must give."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.builders.factories import make_document

LEFT_OUT = object()


@dataclass(frozen=True)
class Mistake:
    """``given`` maps dotted paths of a job document to what stands there; ``message`` has … for any text."""

    given: Mapping[str, Any]
    field: str
    message: str

    def __str__(self) -> str:
        return ", ".join(self.given)

    def document(self, **base: Any) -> dict[str, Any]:
        """A good document with the mistake."""
        document = make_document(**base)
        for path, value in self.given.items():
            _put(document, path, value)
        return document


def says(message: str, expected: str) -> bool:
    """Whether a message is the expected one, in which … stands for any text."""
    return re.fullmatch(".*".join(map(re.escape, expected.split("…"))), message, re.DOTALL) is not None


def _put(node: Any, path: str, value: object) -> None:
    *parents, last = path.split(".")
    for name in parents:
        node = node[int(name)] if isinstance(node, list) else node.setdefault(name, {})
    key: Any = int(last) if isinstance(node, list) else last
    if value is LEFT_OUT:
        del node[key]
    else:
        node[key] = value
