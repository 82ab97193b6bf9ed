"""Tokenizes records: templates, BOS and EOS, label masks, truncation.

With default settings the result equals that of trl's trainers for the same record: SFTTrainer's ids and labels for a
training record, DPOTrainer's prompt, chosen and rejected ids for a preference.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import jinja2
from transformers import PreTrainedTokenizerBase

from app.domain.spec.data.preprocessing import PROMPTS, records_of
from app.domain.spec.data.tokens import hyperparameters_of_tokens
from app.domain.spec.hyperparameters.parameter import InvalidHyperparameter
from app.domain.spec.hyperparameters.rlhf import REWARD_METHOD, check_lengths, longest_prompt
from workers.rank.run_context import RunSpec, method_of
from workers.rank.spec_sections import data_config
from workers.trainers.data import templates
from workers.trainers.data.encoded import NOT_LEARNED, AnyEncoded, Encoded, EncodedPair, EncodedPrompt
from workers.trainers.data.records import LocatedRecord
from workers.trainers.data.shapes import UNLEARNED, Record
from workers.trainers.data.unlearned import MaskedConversation, unlearned_tokens
from workers.trainers.failures import DataInvalid, InvalidConfig

_BATCH = 64
# What a template or a tokenizer raises for content that it cannot process, such as a lone surrogate.
_REFUSALS = (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError)


# Token ids, and for each whether it is learned.
_Tokens = tuple[list[int], list[bool]]
_Processed = Mapping[str, Any]


class RecordTokenizer:
    """Created once per process. Sets the job's chat template on the tokenizer, or ours when conversational records
    need one.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, spec: RunSpec) -> None:
        preprocess = data_config(spec).preprocess
        values = hyperparameters_of_tokens(spec.hyperparameters)
        self._tokenizer = tokenizer
        self._max_length = data_config(spec).max_seq_length
        self._longest_prompt = 0
        if records_of(method_of(spec)) == PROMPTS:
            self._longest_prompt = _longest_prompt(values, self._max_length)
        self._truncates = preprocess.truncation
        self._keeps_end = preprocess.tokenizer_config.get("truncation_side") == "left"
        self._add_bos = preprocess.add_bos_token
        self._add_eos = preprocess.add_eos_token
        # A reward model scores texts as they are generated, which trl passes without special tokens.
        self._judges = method_of(spec) == REWARD_METHOD
        self._assistant_only = bool(values.get("assistant_only_loss", True))
        self._completion_only = bool(values.get("completion_only_loss", True))
        self._is_pretraining = spec.training_type == "CONTINUED_PRETRAIN"
        # Packing cuts records itself, at other positions.
        self._packs = self._is_pretraining or bool(values.get("packing"))
        if self._add_bos and tokenizer.bos_token_id is None:
            raise InvalidConfig(
                "preprocess.add_bos_token: the tokenizer has no BOS token; name one in tokenizer_config"
            )
        templates.use_own(tokenizer, preprocess.chat_template)

    @cached_property
    def marks_assistant(self) -> bool:
        """Whether only the assistant's turns are learned: it is configured and the template marks them."""
        return self._marking is not None

    def encode(self, located: LocatedRecord) -> AnyEncoded:
        """Raises DataInvalid naming the row, also for a row that is too long if truncation is off."""
        try:
            (tokens,) = self._tokens([located.record])
        except _REFUSALS as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DataInvalid(f"{located.where} can't be tokenized: {reason}") from error
        return self._encoded(located, tokens)

    def encode_all(self, located: Iterable[LocatedRecord]) -> Iterator[tuple[LocatedRecord, AnyEncoded]]:
        """As `encode` for each, in batches, which the tokenizer processes on its threads."""
        rest = iter(located)
        while batch := list(itertools.islice(rest, _BATCH)):
            try:
                tokens = self._tokens([each.record for each in batch])
            except _REFUSALS:
                # Encoding one by one identifies the failing record.
                yield from ((each, self.encode(each)) for each in batch)
                continue
            for each, of_it in zip(batch, tokens, strict=True):
                yield each, self._encoded(each, of_it)

    @cached_property
    def _marking(self) -> str | None:
        templates.ensure(self._tokenizer)
        return templates.marking(self._tokenizer) if self._assistant_only else None

    def _tokens(self, batch: Sequence[Record]) -> list[list[_Tokens]]:
        """For each record of one shape: its sequence, or those of the chosen and the rejected answer."""
        if self._longest_prompt:
            return [[(ids, [False] * len(ids))] for ids in self._prompts(batch)]
        if "chosen" in batch[0]:
            return self._pairs(batch)
        return [[each] for each in self._sequences(batch)]

    def _sequences(self, batch: Sequence[Record]) -> list[_Tokens]:
        if "messages" in batch[0]:
            return self._chats(batch)
        if "prompt" in batch[0]:
            return self._completions(batch)
        return [(ids, [True] * len(ids)) for ids in self._ids([self._ended(record["text"]) for record in batch])]

    def _chats(self, batch: Sequence[Record]) -> list[_Tokens]:
        marks = self._marking is not None
        options = {"return_assistant_tokens_mask": True} if marks else {}
        found = self._rendered(batch, [record["messages"] for record in batch], self._marking, **options)
        ids = [list(each["input_ids"]) for each in found]
        learned = [
            [bool(bit) for bit in each["assistant_masks"]] if marks else [True] * len(each["input_ids"])
            for each in found
        ]
        return [self._weighed(*each, template=self._marking) for each in zip(batch, ids, learned, strict=True)]

    def _completions(self, batch: Sequence[Record]) -> list[_Tokens]:
        """The completion begins where the tokens of the prompt alone and of both differ."""
        prompts, ids = self._prompts(batch), self._answered(batch, "completion")
        begins = [0] * len(ids)
        if self._completion_only:
            begins = [_common_prefix(prompt, each) for prompt, each in zip(prompts, ids, strict=True)]
        found = [_learned_from(each, begin) for each, begin in zip(ids, begins, strict=True)]
        return [self._weighed(record, *each, template=None) for record, each in zip(batch, found, strict=True)]

    def _weighed(self, record: Record, ids: list[int], learned: list[bool], *, template: str | None) -> _Tokens:
        """Without learning the messages that have weight 0."""
        if UNLEARNED not in record:
            return ids, learned
        conversation = MaskedConversation(
            messages=record["messages"] if "messages" in record else record["prompt"] + record["completion"],
            places=record[UNLEARNED],
            tools=record.get("tools"),
            options=_kwargs(record),
        )
        unlearned = unlearned_tokens(self._tokenizer, conversation, template, ids)
        return ids, [learns and place not in unlearned for place, learns in enumerate(learned)]

    def _pairs(self, batch: Sequence[Record]) -> list[list[_Tokens]]:
        """Both answers begin where the tokens of the prompt alone differ from those with either answer."""
        answered = [self._answered(batch, name) for name in ("chosen", "rejected")]
        found = []
        for prompt, *both in zip(self._prompts(batch), *answered, strict=True):
            begin = min(_common_prefix(prompt, each) for each in both)
            found.append([_learned_from(each, begin) for each in both])
        return found

    def _prompts(self, batch: Sequence[Record]) -> list[list[int]]:
        prompts = [record["prompt"] for record in batch]
        if not isinstance(prompts[0], list):
            return self._ids(prompts)
        templates.ensure(self._tokenizer)
        return [list(each["input_ids"]) for each in self._rendered(batch, prompts, None, add_generation_prompt=True)]

    def _answered(self, batch: Sequence[Record], name: str) -> list[list[int]]:
        """The prompts with the answers in the field of this name."""
        if not isinstance(batch[0]["prompt"], list):
            return self._ids([record["prompt"] + self._ended(record[name]) for record in batch])
        templates.ensure(self._tokenizer)
        both = [record["prompt"] + record[name] for record in batch]
        return [list(each["input_ids"]) for each in self._rendered(batch, both, None)]

    def _rendered(
        self, batch: Sequence[Record], messages: list[Any], template: str | None, **options: Any
    ) -> list[_Processed]:
        """The rendered template of each conversation, as tokens."""
        if len(batch) > 1 and not any("tools" in record or "chat_template_kwargs" in record for record in batch):
            processed = self._apply_template(messages, template, **options)
            return [{name: processed[name][i] for name in processed} for i in range(len(batch))]
        return [
            self._apply_template(each, template, tools=record.get("tools"), **_kwargs(record), **options)
            for record, each in zip(batch, messages, strict=True)
        ]

    def _apply_template(self, messages: list[Any], template: str | None, **options: Any) -> _Processed:
        processed = self._tokenizer.apply_chat_template(
            messages, chat_template=template, tokenize=True, return_dict=True, **options
        )
        return cast("_Processed", processed)

    def _ids(self, texts: list[str]) -> list[list[int]]:
        # Not verbose: the warning that a long text does not fit the model is irrelevant, because it is cut or rejected
        # here.
        return [
            list(ids)
            for ids in self._tokenizer(
                text=texts, verbose=False, return_attention_mask=False, add_special_tokens=not self._judges
            )["input_ids"]
        ]

    def _ended(self, text: str) -> str:
        eos = str(self._tokenizer.eos_token or "")
        ends = self._add_eos is not False and not self._judges
        return text + eos if ends and not text.endswith(eos) else text

    def _encoded(self, located: LocatedRecord, tokens: list[_Tokens]) -> AnyEncoded:
        if not all(ids for ids, _ in tokens):
            raise DataInvalid(f"{located.where} has no tokens")
        if len(tokens) > 1:
            return self._pair(located.where, *(self._with_ends(*each) for each in tokens))
        if self._longest_prompt:
            return self._prompt(located, tokens[0][0])
        return self._sequence(located, *tokens[0])

    def _sequence(self, located: LocatedRecord, ids: list[int], learned: list[bool]) -> Encoded:
        if "messages" in located.record and not any(learned):
            raise DataInvalid(
                f"{located.where}: the chat template marks no assistant turn; correct its generation "
                "block, or set assistant_only_loss to false"
            )
        ids, learned = self._with_ends(ids, learned)
        labels = [token if learns else NOT_LEARNED for token, learns in zip(ids, learned, strict=True)]
        return self._cut(ids, labels, located.where)

    def _with_ends(self, ids: list[int], learned: list[bool]) -> _Tokens:
        bos, eos = self._tokenizer.bos_token_id, self._tokenizer.eos_token_id
        if self._add_bos and ids[0] != bos:
            ids, learned = [bos, *ids], [learned[0], *learned]
        elif self._add_bos is False and bos is not None and ids[0] == bos and len(ids) > 1:
            ids, learned = ids[1:], learned[1:]
        if self._add_eos and ids[-1] != eos:
            ids, learned = [*ids, eos], [*learned, True]
        elif self._add_eos is False and ids[-1] == eos and len(ids) > 1:
            ids, learned = ids[:-1], learned[:-1]
        return ids, learned

    def _cut(self, ids: list[int], labels: list[int], where: str) -> Encoded:
        length = len(ids)
        if length <= self._max_length or self._is_pretraining:
            return Encoded(ids, labels, length)
        self._check_may_be_cut(length, where)
        if self._packs:
            return Encoded(ids, labels, length)
        kept = slice(-self._max_length, None) if self._keeps_end else slice(self._max_length)
        return Encoded(ids[kept], labels[kept], length)

    def _pair(self, where: str, chosen: _Tokens, rejected: _Tokens) -> EncodedPair:
        """Both answers follow the same part of the prompt, however much of them is cut."""
        begin, room = chosen[1].count(False), self._max_length
        prompt, one, other = chosen[0][:begin], chosen[0][begin:], rejected[0][begin:]
        length = begin + max(len(one), len(other))
        if length <= room:
            return EncodedPair(prompt, one, other, length)
        self._check_may_be_cut(length, where)
        if self._keeps_end:
            one, other = one[-room:], other[-room:]
            kept = min(begin, room - max(len(one), len(other)))
            return EncodedPair(prompt[begin - kept :], one, other, length)
        left = max(0, room - begin)
        return EncodedPair(prompt[:room], one[:left], other[:left], length)

    def _prompt(self, located: LocatedRecord, ids: list[int]) -> EncodedPrompt:
        if self._add_bos and ids[0] != self._tokenizer.bos_token_id:
            ids = [int(self._tokenizer.bos_token_id), *ids]
        elif self._add_bos is False and ids[0] == self._tokenizer.bos_token_id and len(ids) > 1:
            ids = ids[1:]
        fits = len(ids) <= self._longest_prompt
        if not fits and not self._truncates:
            raise DataInvalid(
                f"{located.where} has {len(ids)} tokens, the longest prompt {self._longest_prompt}; raise "
                "max_prompt_length and data_config.max_seq_length, or leave preprocess.truncation on, which leaves "
                "such prompts out"
            )
        return EncodedPrompt(ids, located.record, fits)

    def _check_may_be_cut(self, length: int, where: str) -> None:
        if not self._truncates:
            raise DataInvalid(
                f"{where} has {length} tokens, data_config.max_seq_length is {self._max_length}; raise it, or leave "
                "preprocess.truncation on"
            )


def _longest_prompt(values: Mapping[str, Any], max_length: int) -> int:
    try:
        check_lengths(values, max_length)
    except InvalidHyperparameter as error:
        raise InvalidConfig(error.message) from error
    return longest_prompt(values, max_length)


def _kwargs(record: Record) -> dict[str, Any]:
    return dict(record.get("chat_template_kwargs") or {})


def _learned_from(ids: list[int], begin: int) -> _Tokens:
    return ids, [False] * begin + [True] * (len(ids) - begin)


def _common_prefix(some: list[int], others: list[int]) -> int:
    pairs = zip(some, others, strict=False)
    return next((i for i, (one, other) in enumerate(pairs) if one != other), min(len(some), len(others)))
