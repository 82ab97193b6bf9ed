"""The tokens of the assistant's messages that are not learned: those with weight 0.

A chat template marks the assistant's text without the message that it comes from. The marks before and within a message
are counted by rendering the conversation up to it. A template without marks must render a conversation so that it
begins as its beginnings do.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformers import BatchEncoding, PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import render_jinja_template

from workers.trainers.data import templates

Messages = Sequence[dict[str, Any]]
_Span = tuple[int, int]  # characters of the rendered conversation


@dataclass(frozen=True, kw_only=True)
class MaskedConversation:
    """``places``: of the messages that are not learned. ``options``: what else the template gets."""

    messages: Messages
    places: Sequence[int]
    tools: Any = None
    options: Mapping[str, Any]


def unlearned_tokens(
    tokenizer: PreTrainedTokenizerBase, conversation: MaskedConversation, template: str | None, ids: Sequence[int]
) -> set[int]:
    """The positions among ``ids``, to which this template renders it.

    Raises ValueError where a template's text can't be divided into messages.
    """
    text = _text(tokenizer, conversation, conversation.messages, template)
    encoded = tokenizer(text, add_special_tokens=False, verbose=False)
    if list(encoded["input_ids"]) != list(ids):
        raise ValueError("weight: the chat template renders the same messages in two ways")
    spans = [*_spans(tokenizer, conversation, text, template)]
    return {token for span in spans for token in _tokens(encoded, span)}


def _spans(
    tokenizer: PreTrainedTokenizerBase, conversation: MaskedConversation, text: str, template: str | None
) -> Iterator[_Span]:
    marking = template or templates.marking(tokenizer)
    rendered, marks = _marked(tokenizer, conversation, conversation.messages, marking) if marking else ("", [])
    for place in conversation.places:
        if marks and rendered == text:
            marked = [text[slice(*mark)] for mark in marks]
            first, end = (_marks_before(tokenizer, conversation, each, marking, marked) for each in (place, place + 1))
            if first == end:
                raise ValueError(f"weight: the chat template marks nothing in message {place + 1}")
            yield from marks[first:end]
        else:
            yield _between_beginnings(tokenizer, conversation, text, place, template)


def _marks_before(
    tokenizer: PreTrainedTokenizerBase,
    conversation: MaskedConversation,
    place: int,
    marking: str | None,
    marked: Sequence[str],
) -> int:
    """How many marks the messages before this place have, without those of the end of a conversation (Phi-3).

    Raises ValueError where the template joins messages of the assistant (Gemma), of whose marks some may be common.
    """
    messages = conversation.messages
    open_ended = replace(conversation, options={**conversation.options, "add_generation_prompt": True})
    text, marks = _marked(tokenizer, open_ended, messages[:place], marking)
    around = [message["role"] for message in messages[place - 1 : place + 1]] if place else []
    if around == ["assistant"] * 2 and [text[slice(*mark)] for mark in marks] != marked[: len(marks)]:
        raise ValueError(
            f"weight: the chat template joins the messages {place} and {place + 1} of the assistant; make them one, or "
            "leave out their weights"
        )
    return len(marks)


def _marked(
    tokenizer: PreTrainedTokenizerBase, conversation: MaskedConversation, messages: Messages, template: str | None
) -> tuple[str, list[_Span]]:
    """The text, and what is marked in it; as ``apply_chat_template`` renders it."""
    if not messages:
        return "", []
    rendered: Any = render_jinja_template(  # its annotation is not what it returns
        conversations=[list(messages)],
        tools=conversation.tools,
        chat_template=template,
        return_assistant_tokens_mask=True,
        **{**tokenizer.special_tokens_map, **conversation.options},
    )
    (text,), (marks,) = rendered
    return text, marks


def _between_beginnings(
    tokenizer: PreTrainedTokenizerBase, conversation: MaskedConversation, text: str, place: int, template: str | None
) -> _Span:
    messages = conversation.messages
    before = _text(tokenizer, conversation, messages[:place], template, add_generation_prompt=True) if place else ""
    after = _text(tokenizer, conversation, messages[: place + 1], template, add_generation_prompt=False)
    if not (text.startswith(after) and after.startswith(before)):
        raise ValueError(
            "weight 0 needs a chat template that marks what the assistant says; put {% generation %} and "
            "{% endgeneration %} around it in preprocess.chat_template"
        )
    return len(before), len(after)


def _text(
    tokenizer: PreTrainedTokenizerBase,
    conversation: MaskedConversation,
    messages: Messages,
    template: str | None,
    **options: Any,
) -> str:
    return str(
        tokenizer.apply_chat_template(
            list(messages),
            chat_template=template,
            tools=conversation.tools,
            tokenize=False,
            **{**conversation.options, **options},
        )
    )


def _tokens(encoded: BatchEncoding, span: _Span) -> range:
    """Some characters have no token, such as those that a tokenizer strips."""
    places = (encoded.char_to_token(0, character) for character in range(*span))
    found = [place for place in places if place is not None]
    return range(found[0], found[-1] + 1) if found else range(0)
