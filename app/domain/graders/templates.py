"""Templates of graders: `{{ item.COLUMN }}` of the record and `{{ sample.output_text }}` of the completion."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

ITEM, SAMPLE = "item", "sample"
OUTPUT_TEXT, OUTPUT_JSON, OUTPUT_TOOLS = "output_text", "output_json", "output_tools"
VARIABLES = (OUTPUT_TEXT, OUTPUT_JSON, OUTPUT_TOOLS)  # of sample

LONGEST = 256 * 1024  # characters of a filled template

_PLACE = re.compile(r"\{\{([^{}]*)\}\}")
_STEP = re.compile(r"\.([^.\[\]\s{}]+)|\[(\d{1,9})\]|\[(?:'([^']*)'|\"([^\"]*)\")\]")
_UNPAIRED = re.compile(r"\{\{\s*(?:item|sample)\b[^{}]{0,64}")  # of what _PLACE leaves
_KNOWN = f"{{{{item.COLUMN}}}} or {{{{sample.{OUTPUT_TEXT}}}}}"

Step = str | int


class InvalidTemplate(Exception):
    """A template names what there never is."""


class MissingVariable(Exception):
    """A record or a completion lacks what the template names; ``namespace`` says which of them."""

    def __init__(self, message: str, namespace: str) -> None:
        super().__init__(message)
        self.namespace = namespace


class TooLong(Exception):
    """A filled template is too long to be compared."""


def check(template: str) -> None:
    """Raises InvalidTemplate."""
    for namespace, steps, said in _variables(template):
        if namespace == SAMPLE and steps[0] not in VARIABLES:
            raise InvalidTemplate(f"{{{{{said}}}}}: sample has {', '.join(VARIABLES)}")
    if (unpaired := _UNPAIRED.search(_PLACE.sub("{}", template))) is not None:
        raise InvalidTemplate(f"{unpaired[0].rstrip()!r} is no variable, as its braces have no end: write {_KNOWN}")


def columns(template: str) -> frozenset[str]:
    """Columns of the record that it reads."""
    return frozenset(str(steps[0]) for namespace, steps, _ in _variables(template) if namespace == ITEM)


def render(template: str, item: Mapping[str, Any], sample: Mapping[str, Any]) -> str:
    """The text, with values that are none as JSON. Raises MissingVariable and TooLong."""
    values = {ITEM: item, SAMPLE: sample}
    parts, length, at = [], len(template), 0
    for found in _PLACE.finditer(template):
        namespace, steps = _parsed(found[1])
        try:
            value = _text(_followed(values[namespace], steps))
        except (KeyError, IndexError) as error:
            raise MissingVariable(f"{{{{{found[1].strip()[:64]}}}}}: there is no such value", namespace) from error
        length += len(value)
        if length > LONGEST:
            raise TooLong(f"a template makes a text of more than {LONGEST:,} characters")
        parts += [template[at : found.start()], value]
        at = found.end()
    return "".join((*parts, template[at:]))


def _variables(template: str) -> Iterator[tuple[str, tuple[Step, ...], str]]:
    """(namespace, path, as written) of each variable. Raises InvalidTemplate."""
    for found in _PLACE.finditer(template):
        namespace, steps = _parsed(found[1])
        yield namespace, steps, found[1].strip()


def _parsed(said: str) -> tuple[str, tuple[Step, ...]]:
    said = said.strip()
    namespace = re.match(r"\w*", said)[0]  # type: ignore[index]  # it matches nothing at least
    steps: list[Step] = []
    at = len(namespace)
    while at < len(said):
        step = _STEP.match(said, at)
        if step is None:
            break
        steps.append(
            int(step[2]) if step[2] else next(name for name in (step[1], step[3], step[4]) if name is not None)
        )
        at = step.end()
    if at < len(said) or namespace not in (ITEM, SAMPLE) or not steps or not isinstance(steps[0], str):
        raise InvalidTemplate(f"{{{{{said[:64]}}}}} is no variable: write {_KNOWN}")
    return namespace, tuple(steps)


def _followed(value: object, steps: tuple[Step, ...]) -> object:
    for step in steps:
        match value, step:
            case Mapping(), str():
                value = value[step]
            case list(), int():
                value = value[step]
            case _:
                raise KeyError(step)
    return value


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
