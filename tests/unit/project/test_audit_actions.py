"""The documentation names every action that the audit trail may hold, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
ACTION = re.compile(r"(?:auth|db|file|job|key|model|node|port|project|queue|session|upload|webhook)\.[a-z_]+")
WRITERS = {"record", "entry", "_note", "_record"}


def written() -> Iterator[str]:
    """Every action that stands in a call that writes a line, or in a constant of that name."""
    for path in sorted((ROOT / "app" / "services").rglob("*.py")):
        tree = ast.parse(path.read_text())
        if "audit" not in path.read_text():
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in WRITERS:
                texts = [*node.args, *(keyword.value for keyword in node.keywords)]
                yield from (
                    str(text.value) for text in texts if isinstance(text, ast.Constant) and _is_action(text.value)
                )
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and _is_action(node.value.value):
                yield str(node.value.value)


def _is_action(value: object) -> bool:
    return isinstance(value, str) and ACTION.fullmatch(value) is not None


def test_documented_actions_are_those_that_are_written() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    (row,) = re.findall(r"^\| `action` \|(.*)\|$", page, re.MULTILINE)
    documented = {text for text in re.findall(r"`([^`]+)`", row) if _is_action(text)}

    # These four are put together from a verb.
    assert documented == {*written(), "key.create", "key.patch", "key.rotate", "key.revoke"}
