"""Record shapes: detected, mapped to our field names, validated.

Training records are messages, prompt and completion, or text; a preference is a chosen and a rejected answer to a
prompt; a prompt to complete stands alone or at the beginning of messages, beside columns for the reward. Records of
inference have the shapes that their task can use.
"""

import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any

from app.domain.spec.data.preprocessing import (
    EXAMPLES,
    MEASURED,
    PASSAGES,
    PREFERENCES,
    PROMPTS,
    ROLE_PREFIX,
    TEXTS,
    mapped_columns,
    records_of,
)
from app.domain.spec.hyperparameters.rlhf import ANSWER
from workers.trainers.failures import DataInvalid

Record = dict[str, Any]
Message = dict[str, Any]

MESSAGES, PROMPT_COMPLETION, TEXT = "messages", "prompt and completion", "text"
PROMPT = "prompt"
PREFERENCE, IMPLICIT_PROMPT = "prompt, chosen and rejected", "chosen and rejected"
_EXAMPLES = {MESSAGES: ("messages",), PROMPT_COMPLETION: ("prompt", "completion"), TEXT: ("text",)}
_ANSWERS = ("chosen", "rejected")
_PROMPTS = {PROMPT: ("prompt",), MESSAGES: ("messages",)}
_PASSAGES = {TEXT: ("text",), PROMPT: ("prompt",)}
# The shapes among which the columns of a record decide, by the kind of records.
_CHOICES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    PROMPTS: _PROMPTS,
    MEASURED: {PROMPT_COMPLETION: _EXAMPLES[PROMPT_COMPLETION], TEXT: _EXAMPLES[TEXT]},
    PASSAGES: _PASSAGES,
}
_COLUMNS = {**_EXAMPLES, **_PROMPTS, PREFERENCE: ("prompt", *_ANSWERS), IMPLICIT_PROMPT: _ANSWERS}
_SHARE_GPT = "conversations"
_SHARE_GPT_ROLES = {"human": "user", "gpt": "assistant"}
_FOR_TEMPLATES = {"tools": list, "chat_template_kwargs": dict}
# Preferences as OpenAI's API has them: its columns, and what they are here.
_ANSWERS_ELSEWHERE = ("preferred_output", "non_preferred_output")
_INPUT = "input"
_ELSEWHERE = {"prompt": "input.messages", **dict(zip(_ANSWERS, _ANSWERS_ELSEWHERE, strict=True))}
UNLEARNED = "unlearned"  # in a record: the places of the messages that are not learned, though the assistant's
_WEIGHT = "weight"  # of a message; never in a record
_NAMES_SHOWN = 50


class RecordMapper:
    """Converts row values to records by data_config.preprocess.field_mapping."""

    def __init__(self, mapping: Mapping[str, str], method: str) -> None:
        self._columns = mapped_columns(mapping)
        self._role_key = mapping.get("messages.role")
        self._content_key = mapping.get("messages.content")
        self._roles = {
            target.removeprefix(ROLE_PREFIX): role for target, role in mapping.items() if target.startswith(ROLE_PREFIX)
        }
        self._method = method
        self._kind = records_of(method)

    def record(self, values: Mapping[str, Any], where: str) -> tuple[str, Record]:
        """The shape and the record. Raises DataInvalid naming row and field."""
        names: Mapping[str, str] = {}
        if self._kind == PREFERENCES and self._is_from_elsewhere(values):
            values, names = _preference_of(values, where), _ELSEWHERE
        shape = self._shape(values, where)
        if self._kind == PROMPTS:
            return self._prompt(values, shape, where)
        record = {name: self._value(values, name, where) for name in _COLUMNS[shape]}
        if shape == TEXT or isinstance(record.get("prompt"), str):
            for name, value in record.items():
                _check_text(value, f"{where}: {name}")
            return shape, record
        weighted = {
            name: self._messages(value, f"{where}: {names.get(name, name)}", name) for name, value in record.items()
        }
        unlearned = [] if self._kind == PREFERENCES else _unlearned(weighted.values())
        record = {name: _unweighted(messages) for name, messages in weighted.items()}
        if shape == IMPLICIT_PROMPT:
            record = _with_prompt(record, where)
        return shape, record | ({UNLEARNED: unlearned} if unlearned else {}) | _for_template(values, where)

    def _is_from_elsewhere(self, values: Mapping[str, Any]) -> bool:
        has_own = any(self._columns.get(name, name) in values for name in _ANSWERS)
        return not has_own and all(values.get(name) is not None for name in (_INPUT, *_ANSWERS_ELSEWHERE))

    def _shape(self, values: Mapping[str, Any], where: str) -> str:
        if self._kind == PREFERENCES:
            return self._preference(values, where)
        if self._kind == TEXTS:
            if self._columns.get("text", "text") not in values:
                raise DataInvalid(
                    f"{where} has no column {self._columns.get('text', 'text')}; CONTINUED_PRETRAIN learns text only; "
                    f"name its column in preprocess.field_mapping.text; the row has {_names(values)}"
                )
            return TEXT
        return self._first_of(_CHOICES.get(self._kind, _EXAMPLES), values, where)

    def _first_of(self, shapes: Mapping[str, tuple[str, ...]], values: Mapping[str, Any], where: str) -> str:
        """The first shape of which the mapping names a column, or else whose columns the row has."""
        for shape, columns in shapes.items():
            if any(name in self._columns for name in columns):
                return shape
        for shape, columns in shapes.items():
            if all(values.get(name) is not None for name in columns):
                return shape
            if shape == MESSAGES and values.get(_SHARE_GPT) is not None:
                return shape
        raise DataInvalid(
            f"{where} has neither {', nor '.join(shapes)}; name their columns in preprocess.field_mapping; the row has "
            f"{_names(values)}"
        )

    def _prompt(self, values: Mapping[str, Any], shape: str, where: str) -> tuple[str, Record]:
        """The prompt, and in `columns` all other values of the row, for the reward."""
        name = _COLUMNS[shape][0]
        value = self._value(values, name, where)
        used = {self._columns.get(name, name), _SHARE_GPT, *_FOR_TEMPLATES}
        columns = {str(key): each for key, each in values.items() if key not in used}
        if shape == PROMPT and not _are_messages(value):
            _check_text(value, f"{where}: prompt")
            return PROMPT, {"prompt": value, "columns": columns}
        prompt = _unweighted(self._messages(value, f"{where}: {name}", "prompt"))
        if prompt[-1]["role"] == "assistant":
            # The assistant's reply there is the reference answer for comparison.
            columns.setdefault(ANSWER, prompt.pop()["content"])
        if not prompt:
            raise DataInvalid(f"{where}: {name} has no message before the assistant's, so there is nothing to answer")
        return MESSAGES, {"prompt": prompt, "columns": columns, **_for_template(values, where)}

    def _preference(self, values: Mapping[str, Any], where: str) -> str:
        columns = [self._columns.get(name, name) for name in _ANSWERS]
        if missing := [column for column in columns if column not in values]:
            raise DataInvalid(
                f"{where} has no column {', '.join(missing)}; {self._method} learns from a chosen and a "
                f"rejected answer to a prompt; name their columns in preprocess.field_mapping; the row has "
                f"{_names(values)}"
            )
        if "prompt" in self._columns or values.get("prompt") is not None:
            return PREFERENCE
        if any(isinstance(value := values[column], str) and isinstance(_parsed(value), str) for column in columns):
            raise DataInvalid(
                f"{where} has no column prompt; only chosen and rejected that are lists of messages need none; name "
                f"its column in preprocess.field_mapping.prompt; the row has {_names(values)}"
            )
        return IMPLICIT_PROMPT

    def _value(self, values: Mapping[str, Any], name: str, where: str) -> object:
        column = self._columns.get(name, name)
        if name == "messages" and column not in values and "messages" not in self._columns:
            column = _SHARE_GPT
        if column not in values:
            mapped = f" (preprocess.field_mapping.{name})" if name in self._columns else ""
            raise DataInvalid(f"{where} has no column {column}{mapped}; it has {_names(values)}")
        return values[column]

    def _messages(self, value: object, where: str, name: str) -> list[Message]:
        """The messages, with the weights that some have."""
        found = _parsed(value) if isinstance(value, str) else value
        if not isinstance(found, list) or not found:
            raise DataInvalid(f"{where} must be a list of messages that is not empty; it is {_shown(value)}")
        messages = [self._message(message, f"{where} {number}") for number, message in enumerate(found, start=1)]
        if name != "prompt" and not any(message["role"] == "assistant" for message in messages):
            roles = ", ".join(sorted({message["role"] for message in messages}))
            raise DataInvalid(
                f"{where} have no turn of the assistant to learn; their roles are {roles}: if one of them is the "
                "assistant under another name, map it in preprocess.field_mapping, for example roles.bot: assistant"
            )
        if self._kind == EXAMPLES and name != "prompt" and not any(map(_is_learned, messages)):
            raise DataInvalid(f"{where} have no turn of the assistant to learn: all of them have weight 0")
        return messages

    def _message(self, message: object, where: str) -> Message:
        if not isinstance(message, dict):
            raise DataInvalid(f"{where} must be an object with role and content; it is {_shown(message)}")
        is_share_gpt = self._role_key is None and "role" not in message and "from" in message
        role_key = self._role_key or ("from" if is_share_gpt else "role")
        content_key = self._content_key or ("value" if is_share_gpt and "content" not in message else "content")
        role = message.get(role_key)
        if not isinstance(role, str) or not role:
            raise DataInvalid(f"{where} needs a role, a text, in {role_key}; it has {_names(message)}")
        known = _SHARE_GPT_ROLES if is_share_gpt else {}
        others = {key: each for key, each in message.items() if key not in (role_key, content_key) and each is not None}
        content = _content(message.get(content_key), f"{where}: {content_key}", needed=not others.get("tool_calls"))
        found = {"role": self._roles.get(role, known.get(role, role)), "content": content, **others}
        _check_weight(found, where)
        return found


def _are_messages(value: object) -> bool:
    found = _parsed(value) if isinstance(value, str) else value
    return isinstance(found, list) and all(isinstance(each, dict) for each in found)


def _preference_of(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The row in our names. Raises DataInvalid."""
    given = values[_INPUT]
    given = _parsed(given) if isinstance(given, str) else given
    if not isinstance(given, dict):
        raise DataInvalid(f"{where}: {_INPUT} must be an object with messages; it is {_shown(given)}")
    answers = {name: values[theirs] for name, theirs in zip(_ANSWERS, _ANSWERS_ELSEWHERE, strict=True)}
    tools = given.get("tools") or values.get("tools")
    return {**values, "prompt": given.get("messages") or [], **answers, "tools": tools}


def _check_weight(message: Message, where: str) -> None:
    """Raises DataInvalid."""
    if _WEIGHT not in message:
        return
    if isinstance(message[_WEIGHT], bool) or message[_WEIGHT] not in (0, 1):
        raise DataInvalid(f"{where}: {_WEIGHT} must be 0 or 1; it is {_shown(message[_WEIGHT])}")
    if message["role"] != "assistant":
        raise DataInvalid(
            f"{where}: {_WEIGHT} is for messages of the assistant, and this is the {message['role']}'s; leave it out"
        )


def _is_learned(message: Message) -> bool:
    return message["role"] == "assistant" and bool(message.get(_WEIGHT, 1))


def _unlearned(parts: Iterable[list[Message]]) -> list[int]:
    """The places of messages with weight 0 in the whole conversation."""
    messages = itertools.chain.from_iterable(parts)
    return [place for place, message in enumerate(messages) if message.get(_WEIGHT, 1) == 0]


def _unweighted(messages: list[Message]) -> list[Message]:
    """As chat templates get them."""
    return [{key: value for key, value in message.items() if key != _WEIGHT} for message in messages]


def _with_prompt(record: Record, where: str) -> Record:
    """The common leading messages of both answers are the prompt, as in trl."""
    chosen, rejected = (record[name] for name in _ANSWERS)
    pairs = enumerate(zip(chosen, rejected, strict=False))
    begin = next((i for i, (one, other) in pairs if one != other), min(len(chosen), len(rejected)))
    if not begin:
        raise DataInvalid(
            f"{where}: chosen and rejected have no message in common that they begin with, which is the prompt; give "
            "it in a column prompt"
        )
    answers = {name: record[name][begin:] for name in _ANSWERS}
    for name, answer in answers.items():
        if not any(message["role"] == "assistant" for message in answer):
            raise DataInvalid(
                f"{where}: {name} has no turn of the assistant after the messages that both answers begin with"
            )
    return {"prompt": chosen[:begin], **answers}


def _for_template(values: Mapping[str, Any], where: str) -> Record:
    found = {}
    for name, kind in _FOR_TEMPLATES.items():
        value = values.get(name)
        value = _parsed(value) if isinstance(value, str) else value
        if value and not isinstance(value, kind):
            raise DataInvalid(f"{where}: {name} must be a JSON {'array' if kind is list else 'object'}")
        if value:
            found[name] = value
    return found


def _content(value: object, where: str, *, needed: bool) -> str:
    """A text; the joined texts of a list of parts; empty for a message with only tool calls."""
    if isinstance(value, str):
        return value
    if value is None and not needed:
        return ""
    if isinstance(value, list) and value:
        texts = [part.get("text") if isinstance(part, dict) else None for part in value]
        if all(isinstance(text, str) for text in texts):
            return "".join(str(text) for text in texts)
    raise DataInvalid(f"{where} must be a text; it is {_shown(value)}")


def _check_text(value: object, where: str) -> None:
    if not isinstance(value, str) or not value:
        way_out = "; leave such rows out with sources.filters" if value is None or value == "" else ""
        if isinstance(value, list):
            way_out = "; where the prompt is a text, what answers it is one, too"
        raise DataInvalid(f"{where} must be a text that is not empty; it is {_shown(value)}{way_out}")


def _parsed(text: str) -> object:
    """Messages in a text column, as in CSV, are JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _shown(value: object) -> str:
    if value is None or value in ("", [], {}):
        return "null" if value is None else f"empty ({type(value).__name__})"
    return f"{type(value).__name__} {str(value)[:40]!r}"


def _names(values: Mapping[str, Any]) -> str:
    names = [str(name) for name in values]
    return ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "") if names else "no columns"
