"""Shapes of the records of uploaded files: which one a record has, and what is wrong with it.

A problem is ``(field, what it must be)``; the field is written as a path: ``messages.1.content``.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from app.domain.files import messages, purposes
from app.domain.openai_paths import OPENAI_ENDPOINTS

MESSAGES = "messages"  # {"messages": […]} with at least one assistant turn
PROMPTS = "prompts"  # {"messages": […]} without one: what is asked, for reinforcement
PROMPT_COMPLETION = "prompt_completion"  # {"prompt": text, "completion": text}
PREFERENCE = "preference"  # {"input": {"messages", "tools"?}, "preferred_output": […], "non_preferred_output": […]}
TEXT = "text"  # {"text": text}
BATCH = "batch"  # {"custom_id", "method", "url", "body"}
SHAPES = (MESSAGES, PROMPTS, PROMPT_COMPLETION, PREFERENCE, TEXT, BATCH)

BATCH_URLS = OPENAI_ENDPOINTS
LONGEST_CUSTOM_ID = 512

Record = Mapping[str, Any]
Problem = tuple[str, str]

# The columns of which a record has one or more; the first shape counts.
_COLUMNS = {
    MESSAGES: ("messages",),
    PREFERENCE: ("preferred_output", "non_preferred_output"),
    PROMPT_COMPLETION: ("prompt", "completion"),
    TEXT: ("text",),
}
_KNOWN = "messages, or prompt and completion, or input, preferred_output and non_preferred_output, or text"
_NAMES_SHOWN, _LONGEST_NAME = 10, 40


def shape_of(record: Record, purpose: str = purposes.FINE_TUNE) -> str | None:
    """The shape that a record's columns say; None for others. Whether it is valid, ``problems`` says."""
    if purpose == purposes.BATCH:
        return BATCH
    for shape, columns in _COLUMNS.items():
        if any(name in record for name in columns):
            return PROMPTS if shape == MESSAGES and not messages.has_answer(record["messages"]) else shape
    return None


def is_either(record: Record) -> bool:
    """Whether messages may be an example or a prompt: the assistant speaks in them, and another role ends them."""
    return not messages.ends_with_answer(record["messages"]) and messages.has_answer(record["messages"])


def problems(record: Record, shape: str | None) -> Iterator[Problem]:
    """What is wrong with a record of this shape."""
    if shape is None:
        names = ", ".join(name[:_LONGEST_NAME] for name in list(record)[:_NAMES_SHOWN])
        yield "", f"must have {_KNOWN}; it has {names or 'nothing'}"
        return
    yield from _RULES[shape](record)


def _chat(record: Record) -> Iterator[Problem]:
    yield from messages.of_conversation(record["messages"], "messages")
    yield from messages.of_tools(record.get("tools"), "tools")
    calls = record.get("parallel_tool_calls")
    if calls is not None and not isinstance(calls, bool):
        yield "parallel_tool_calls", "must be true or false"


def _prompt_completion(record: Record) -> Iterator[Problem]:
    for name in ("prompt", "completion"):
        yield from _text(record, name)


def _only_text(record: Record) -> Iterator[Problem]:
    yield from _text(record, "text")


def _text(record: Record, name: str) -> Iterator[Problem]:
    value = record.get(name)
    if name not in record:
        yield name, "is missing"
    elif not isinstance(value, str) or not value:
        yield name, "must be a text that is not empty"


def _preference(record: Record) -> Iterator[Problem]:
    given = record.get("input")
    if isinstance(given, dict):
        yield from messages.of_conversation(given.get("messages"), "input.messages")
        yield from messages.of_tools(given.get("tools"), "input.tools")
    else:
        yield "input", "must be an object with messages" if "input" in record else "is missing"
    for name in ("preferred_output", "non_preferred_output"):
        if name in record:
            yield from messages.of_answer(record[name], name)
        else:
            yield name, "is missing"


def _batch(record: Record) -> Iterator[Problem]:
    custom_id = record.get("custom_id")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= LONGEST_CUSTOM_ID:
        yield "custom_id", f"must be a text of 1 to {LONGEST_CUSTOM_ID} characters"
    if record.get("method") != "POST":
        yield "method", "must be POST"
    if record.get("url") not in BATCH_URLS:
        yield "url", f"must be one of {', '.join(BATCH_URLS)}"
    body = record.get("body")
    if not isinstance(body, dict):
        yield "body", "must be an object"
    elif not isinstance(body.get("model"), str) or not body["model"]:
        yield "body.model", "must name a model"


_RULES: Mapping[str, Callable[[Record], Iterator[Problem]]] = {
    MESSAGES: _chat,
    PROMPTS: _chat,
    PROMPT_COMPLETION: _prompt_completion,
    PREFERENCE: _preference,
    TEXT: _only_text,
    BATCH: _batch,
}
