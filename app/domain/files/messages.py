"""Rules for the messages of a conversation in uploaded files, in the form of OpenAI's API."""

from collections.abc import Iterator
from typing import Any

ASSISTANT, TOOL = "assistant", "tool"
ROLES = ("system", "developer", "user", ASSISTANT, TOOL, "function")
ANSWER_ROLES = (ASSISTANT, TOOL)
WEIGHTS = (0, 1)
_PLAIN_ROLES = ("user", ASSISTANT, "system", "developer")

Problem = tuple[str, str]


def has_answer(messages: object) -> bool:
    """Whether any turn is the assistant's; True for what are no messages, which is another problem."""
    if not isinstance(messages, list):
        return True
    # the last one, mostly
    return any(isinstance(each, dict) and each.get("role") == ASSISTANT for each in reversed(messages))


def ends_with_answer(messages: object) -> bool:
    if not isinstance(messages, list) or not messages:
        return True
    return isinstance(messages[-1], dict) and messages[-1].get("role") == ASSISTANT


def of_conversation(messages: object, field: str) -> Iterator[Problem]:
    """What is wrong with a list of messages; whether the assistant has to speak in it is not judged here."""
    if not isinstance(messages, list) or not messages:
        yield field, "must be a list of messages that is not empty"
        return
    for number, message in enumerate(messages):
        if not _is_plain(message):
            yield from _message(message, f"{field}.{number}", ROLES)


def of_answer(messages: object, field: str) -> Iterator[Problem]:
    """What is wrong with a preferred or non-preferred output: messages of the assistant and of tools."""
    if not isinstance(messages, list) or not messages:
        yield field, "must be a list of messages of the assistant that is not empty"
        return
    for number, message in enumerate(messages):
        yield from _message(message, f"{field}.{number}", ANSWER_ROLES)
    if not has_answer(messages):
        yield field, "has no turn of the assistant"


def of_tools(tools: object, field: str) -> Iterator[Problem]:
    """What is wrong with the tools that a conversation may call."""
    if tools is None:
        return
    if not isinstance(tools, list):
        yield field, "must be a list"
        return
    for number, tool in enumerate(tools):
        where = f"{field}.{number}"
        if not isinstance(tool, dict) or tool.get("type") != "function":
            yield where, 'must be an object of type "function"'
        elif not isinstance(tool.get("function"), dict) or not _is_name(tool["function"].get("name")):
            yield f"{where}.function.name", "must be a text that is not empty"


def _is_plain(message: object) -> bool:
    """Whether it is a role and a text only, as most messages are: that is quick to see."""
    return (
        type(message) is dict
        and len(message) == len(("role", "content"))
        and type(message.get("content")) is str
        and message.get("role") in _PLAIN_ROLES
    )


def _message(message: object, where: str, roles: tuple[str, ...]) -> Iterator[Problem]:
    if not isinstance(message, dict):
        yield where, "must be an object with role and content"
        return
    role = message.get("role")
    if role not in roles:
        yield f"{where}.role", f"must be one of {', '.join(roles)}"
    content = message.get("content")
    if type(content) is not str:
        yield from _content(message, content, f"{where}.content")
    yield from _further(message, where)


def _content(message: dict[str, Any], content: object, where: str) -> Iterator[Problem]:
    """Rules for content that is not a plain text."""
    if content is None:
        if message.get("role") != ASSISTANT or not message.get("tool_calls"):
            yield where, "must be a text; only an assistant's message with tool_calls needs none"
    elif not isinstance(content, list) or not content:
        yield where, "must be a text"
    else:
        for number, part in enumerate(content):
            yield from _part(part, f"{where}.{number}")


def _part(part: object, where: str) -> Iterator[Problem]:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str):
        yield where, 'must be an object such as {"type": "text", "text": "…"}'
    elif kind != "text":
        yield f"{where}.type", f"is {kind[:40]}; only text is supported, no images, audio or files"
    elif not isinstance(part.get("text"), str):
        yield f"{where}.text", "must be a text"


def _further(message: dict[str, Any], where: str) -> Iterator[Problem]:
    """Rules for what stands in a message beside role and content."""
    role = message.get("role")
    if "weight" in message:
        yield from _weight(message["weight"], role, f"{where}.weight")
    if message.get("audio") is not None:
        yield f"{where}.audio", "audio is not supported"
    name = message.get("name")
    if name is not None and not isinstance(name, str):
        yield f"{where}.name", "must be a text"
    calls = message.get("tool_calls")
    if calls is not None:
        yield from _calls(calls, role, f"{where}.tool_calls")
    if role == TOOL and not _is_name(message.get("tool_call_id")):
        yield f"{where}.tool_call_id", "must be a text that is not empty"


def _weight(weight: object, role: object, where: str) -> Iterator[Problem]:
    if role != ASSISTANT:
        yield where, "is allowed on messages of the assistant only"
    elif isinstance(weight, bool) or not isinstance(weight, int | float) or weight not in WEIGHTS:
        yield where, "must be 0 or 1"


def _calls(calls: object, role: object, where: str) -> Iterator[Problem]:
    if role != ASSISTANT:
        yield where, "is allowed on messages of the assistant only"
    elif not isinstance(calls, list) or not calls:
        yield where, "must be a list that is not empty"
    else:
        for number, call in enumerate(calls):
            yield from _call(call, f"{where}.{number}")


def _call(call: object, where: str) -> Iterator[Problem]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        yield where, "must be an object with id, type and function"
        return
    if call.get("type", "function") != "function":
        yield f"{where}.type", "must be function"
    if not _is_name(call.get("id")):
        yield f"{where}.id", "must be a text that is not empty"
    if not _is_name(function.get("name")):
        yield f"{where}.function.name", "must be a text that is not empty"
    if not isinstance(function.get("arguments"), str):
        yield f"{where}.function.arguments", "must be a text of JSON"


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)
