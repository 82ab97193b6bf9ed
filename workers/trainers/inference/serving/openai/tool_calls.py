"""Tools of a chat: which of them the model must call, and the calls that its text contains."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.spec.response_formats import JSON_SCHEMA

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_TAGGED, _JSON, _PLAIN = "tagged", "json", "plain"  # forms in which a text has calls
_NAMED = ("$defs", "definitions")  # schemas that references of a schema name from its root


@dataclass(frozen=True)
class ToolCall:
    """``arguments`` is JSON."""

    name: str
    arguments: str

    def to_json(self, id_: str) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": id_, "type": "function", "function": function}


class ToolText:
    """Divides the text of an answer, as it comes, into what is content and what are calls.

    What may be a call is held back until the end shows what it is.
    """

    def __init__(self, names: Collection[str] = (), form: str = _PLAIN, *, several: bool = True) -> None:
        self._names = names
        self._several = several
        self._form = form if names else _PLAIN
        self._held = ""
        self._is_content = False  # the beginning has shown that a text in the form _JSON has no calls

    def add(self, text: str) -> str:
        """The content that can be passed on."""
        if self._form == _PLAIN or self._is_content:
            return text
        self._held += text
        return self._released(self._held.find(_OPEN) if self._form == _TAGGED else self._first_brace())

    def end(self) -> tuple[str, list[ToolCall]]:
        """The rest of the content, and the calls."""
        held, self._held = self._held, ""
        found = self._tagged(held) if self._form == _TAGGED else _calls(held, self._names)
        return ("", found if self._several else found[:1]) if found else (held, [])

    def _released(self, begin: int) -> str:
        if begin < 0:
            begin = len(self._held) - (_overlap(self._held, _OPEN) if self._form == _TAGGED else 0)
        content, self._held = self._held[:begin], self._held[begin:]
        return content

    def _first_brace(self) -> int:
        begin = self._held.lstrip()
        if not begin or begin[0] in "[{":
            return 0
        self._is_content = True
        return len(self._held)

    def _tagged(self, text: str) -> list[ToolCall]:
        """Calls between tags; the last one may lack its end. Empty when any of them is none."""
        parts = [part.partition(_CLOSE)[0] for part in text.split(_OPEN)[1:]]
        found = [_calls(part, self._names) for part in parts]
        return [call for calls in found for call in calls] if all(found) else []


@dataclass(frozen=True)
class Tools:
    """``given`` is for the chat template; ``response_format`` holds the answer to the form of a call, if one is
    required.
    """

    given: Sequence[Mapping[str, Any]] = ()
    response_format: Mapping[str, Any] | None = None
    names: frozenset[str] = frozenset()
    form: str = _PLAIN
    several: bool = True  # calls in one answer

    def text(self) -> ToolText:
        """For a new answer."""
        return ToolText(self.names, self.form, several=self.several)


def tools_of(body: Mapping[str, Any], template: str) -> Tools:
    """The tools of a request, for a model with this chat template."""
    choice = body.get("tool_choice") or "auto"
    tools = [tool for tool in body.get("tools") or () if tool.get("type") == "function"]
    if not tools or choice == "none":
        return Tools()
    names = frozenset(tool["function"]["name"] for tool in tools)
    if choice == "auto":
        several = body.get("parallel_tool_calls") is not False
        return Tools(given=tools, names=names, form=_form(template), several=several)
    wanted = {choice["function"]["name"]} if isinstance(choice, Mapping) else names
    required = [tool["function"] for tool in tools if tool["function"]["name"] in wanted]
    form = {"type": JSON_SCHEMA, "schema": _schema(required)}
    return Tools(given=tools, response_format=form, names=names, form=_JSON)


def _form(template: str) -> str:
    if _OPEN in template:
        return _TAGGED
    return _JSON if "tools" in template else _PLAIN


def _schema(functions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of a call of one of these functions."""
    shared: dict[str, Any] = {}
    calls = []
    for function in functions:
        parameters = dict(function.get("parameters") or {"type": "object"})
        for name in _NAMED:
            if name in parameters:
                shared[name] = {**shared.get(name, {}), **parameters.pop(name)}
        properties = {"name": {"enum": [function["name"]]}, "arguments": parameters}
        required = ["name", "arguments"]
        calls.append({"type": "object", "properties": properties, "required": required, "additionalProperties": False})
    return {**(calls[0] if len(calls) == 1 else {"anyOf": calls}), **shared}


def _calls(text: str, names: Collection[str]) -> list[ToolCall]:
    """The calls that a text consists of, as JSON: one, or a list of them."""
    try:
        found = json.loads(text)
    except ValueError:
        return []
    calls = [_call(each, names) for each in (found if isinstance(found, list) else [found])]
    return [call for call in calls if call is not None] if all(calls) else []


def _call(found: object, names: Collection[str]) -> ToolCall | None:
    if not isinstance(found, dict) or found.get("name") not in names:
        return None
    arguments = found.get("arguments", found.get("parameters", {}))
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(found["name"], arguments)


def _overlap(text: str, marker: str) -> int:
    """How many characters at the end of the text may begin the marker."""
    sizes = range(min(len(text), len(marker) - 1), 0, -1)
    return next((size for size in sizes if text.endswith(marker[:size])), 0)
