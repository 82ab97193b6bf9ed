"""Converts records to token ids for an engine: chat templates, special tokens, limits, truncation."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import jinja2
from transformers import PreTrainedTokenizerBase

from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import data_config
from workers.trainers.data import templates
from workers.trainers.data.shapes import Record
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.engine.interface import Continuation, Pair
from workers.trainers.inference.section import inference_of

NOT_TOKENIZABLE, NO_TOKENS, RECORD_TOO_LONG = "NOT_TOKENIZABLE", "NO_TOKENS", "RECORD_TOO_LONG"
# What a template or a tokenizer raises for content that it cannot process, such as a lone surrogate.
_REFUSALS = (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError)


class Unanswerable(Exception):
    """A record that gets no answer: ``code`` in capitals identifies the reason, the message says the numbers."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class TaskTokens:
    """Of one job. Sets its chat template on the tokenizer, or ours when messages come and it has none.

    All methods raise Unanswerable.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, spec: RunSpec, context_length: int) -> None:
        preprocess = data_config(spec).preprocess
        task = inference_of(spec).task
        self._tokenizer = tokenizer
        self._add_bos, self._add_eos = preprocess.add_bos_token, preprocess.add_eos_token
        self._max_tokens = task.max_tokens
        self._truncates = task.truncate
        self._limit = min(task.max_tokens or context_length, context_length)
        # An answer needs room behind its prompt.
        self._prompt_room = min(self._limit, context_length - task.max_new_tokens)
        for name, adds in (("bos", self._add_bos), ("eos", self._add_eos)):
            if adds and getattr(tokenizer, f"{name}_token_id") is None:
                raise InvalidConfig(
                    f"preprocess.add_{name}_token: the tokenizer has no {name.upper()} token; name one in "
                    "tokenizer_config"
                )
        templates.use_own(tokenizer, preprocess.chat_template)

    def prompt(self, record: Record) -> list[int]:
        """A text, or messages that the assistant is to answer."""
        prompt = record["prompt"]
        ids = self._chat(record, prompt, add_generation_prompt=True) if _is_chat(prompt) else self._text(prompt)
        return self._cut(self._with_bos(ids), self._prompt_room)

    def whole(self, record: Record, *, special: bool = True) -> list[int]:
        """All of a record: its text, its messages, or its prompt with the completion, if any."""
        return self._cut(self._with_ends(self._whole(record, special=special)), self._limit)

    def judged(self, record: Record) -> list[int]:
        """For a sequence classifier. Encoders need the frame of special tokens that they were trained with; decoders
        are trained on texts as they are generated, as trl passes them, unless preprocess.add_bos_token is set.
        """
        return self.whole(record, special=self._tokenizer.cls_token_id is not None)

    def pair(self, query: str, document: str, most: int | None) -> Pair:
        """A query with a document, of which at most so many tokens are read. An encoder reads them as a pair, a decoder
        as a prompt with its completion, as reward models are trained.
        """
        document = self._shortened(document, most)
        if self._tokenizer.cls_token_id is None:
            return Pair(tokens=tuple(self.judged({"prompt": query, "completion": document})))
        found = encoded(
            lambda: self._tokenizer(text=query, text_pair=document, verbose=False, return_attention_mask=False)
        )
        segments = found.get("token_type_ids")
        tokens = self._cut([int(each) for each in found["input_ids"]], self._limit)
        return Pair(tokens=tuple(tokens), segments=tuple(segments[: len(tokens)]) if segments is not None else None)

    def _shortened(self, text: str, most: int | None) -> str:
        if most is None:
            return text
        ids = self._text(text, special=False)
        return text if len(ids) <= most else str(self._tokenizer.decode(ids[:most]))

    def continuation(self, record: Record) -> Continuation:
        """The completion after its prompt: from where the tokens of the prompt alone and of both differ."""
        if "completion" not in record:
            return Continuation(context=(), tokens=tuple(self.whole(record)))
        both = self._with_ends(self._whole(record))
        alone = record["prompt"]
        prompt = self._chat(record, alone, add_generation_prompt=True) if _is_chat(alone) else self._text(alone)
        begin = _common_prefix(self._with_bos(prompt), both)
        context, tokens = both[:begin], both[begin:]
        if not tokens:
            raise Unanswerable(NO_TOKENS, "the completion adds no tokens to the prompt; leave such rows out")
        self._check_length(len(both), self._max_tokens)
        if self._truncates and 0 < len(tokens) < self._limit:
            # What directly precedes the completion decides most of its likelihood.
            context = context[-(self._limit - len(tokens)) :]
        return Continuation(context=tuple(context), tokens=tuple(tokens))

    def _whole(self, record: Record, *, special: bool = True) -> list[int]:
        if "messages" in record:
            return self._chat(record, record["messages"])
        if "text" in record:
            return self._text(record["text"], special=special)
        completion = record.get("completion")
        if not _is_chat(record["prompt"]):
            return self._text(record["prompt"] + (completion or ""), special=special)
        return self._chat(record, record["prompt"] + (completion or []))

    def _chat(self, record: Record, messages: list[dict[str, Any]], **options: Any) -> list[int]:
        templates.ensure(self._tokenizer)
        given = {**(record.get("chat_template_kwargs") or {}), **options}

        def rendered() -> Mapping[str, Any]:
            found = self._tokenizer.apply_chat_template(
                messages, tools=record.get("tools"), tokenize=True, return_dict=True, **given
            )
            return cast("Mapping[str, Any]", found)

        return ids_of(rendered)

    def _text(self, text: str, *, special: bool = True) -> list[int]:
        # Not verbose: the warning that a long text does not fit the model is irrelevant, because lengths are checked.
        return ids_of(
            lambda: self._tokenizer(text=text, verbose=False, return_attention_mask=False, add_special_tokens=special)
        )

    def _with_ends(self, ids: list[int]) -> list[int]:
        eos = self._tokenizer.eos_token_id
        ids = self._with_bos(ids)
        return [*ids, int(eos)] if self._add_eos and ids and ids[-1] != eos else ids

    def _with_bos(self, ids: list[int]) -> list[int]:
        bos = self._tokenizer.bos_token_id
        if self._add_bos and ids[:1] != [bos]:
            return [int(bos), *ids]
        if self._add_bos is False and bos is not None and ids[:1] == [bos]:
            return ids[1:]
        return ids

    def _cut(self, ids: list[int], room: int) -> list[int]:
        if not ids:
            raise Unanswerable(NO_TOKENS, "the record has no tokens; leave such rows out with sources.filters")
        if not self._truncates:
            self._check_length(len(ids), self._max_tokens)
        elif 0 < room < len(ids):
            return ids[-room:] if self._tokenizer.truncation_side == "left" else ids[:room]
        return ids

    def _check_length(self, length: int, most: int | None) -> None:
        if most is not None and length > most and not self._truncates:
            raise Unanswerable(
                RECORD_TOO_LONG,
                f"the record has {length} tokens, task.max_tokens is {most}; raise it, or set task.truncate",
            )


def ids_of(tokenize: Callable[[], Mapping[str, Any]]) -> list[int]:
    """The token ids of a record. Raises Unanswerable for what its template or tokenizer refuses."""
    return [int(each) for each in encoded(tokenize)["input_ids"]]


def encoded(tokenize: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """What a tokenizer makes of a record. Raises Unanswerable for what it refuses."""
    try:
        return tokenize()
    except _REFUSALS as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Unanswerable(NOT_TOKENIZABLE, f"the record can't be tokenized: {reason}") from error


def _is_chat(prompt: object) -> bool:
    return isinstance(prompt, list)


def _common_prefix(some: list[int], others: list[int]) -> int:
    pairs = zip(some, others, strict=False)
    return next((i for i, (one, other) in enumerate(pairs) if one != other), min(len(some), len(others)))
