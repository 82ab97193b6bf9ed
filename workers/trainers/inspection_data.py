"""Inspects data: the first records of each source, tokenized, and one batch as for training."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from app.domain.spec.data.preprocessing import EXAMPLES, PROMPTS, records_of
from app.domain.spec.hyperparameters.rlhf import REWARD, REWARD_METHOD, completes, reward_file, reward_model
from workers.rank.run_context import RunSpec, method_of
from workers.rank.spec_sections import data_config, training_config
from workers.trainers.data.encoded import NOT_LEARNED, Encoded
from workers.trainers.data.records import LocatedRecord, records
from workers.trainers.data.sources import TRAIN, VALIDATION, DataSource, sources_of
from workers.trainers.data.statistics import LengthStatistics, merged
from workers.trainers.data.tokenizing import RecordTokenizer
from workers.trainers.failures import DataInvalid, InvalidConfig
from workers.trainers.graders.reward import checked_grader
from workers.trainers.hf_trainer.model.tokenizer import base_model
from workers.trainers.inspection_sources import MOST_SHOWN, beginning, columns_of, described
from workers.trainers.rewards import reward_of

# A lower share is negligible.
TRUNCATED_WARNS = 0.01
UNLEARNED_WARNS = 0.01
FEW_TO_MEASURE = 10
# Time limit for reading; what is not read then is left to the node.
READ_SECONDS = 45.0

Findings = dict[str, Any]


@dataclass
class _Read:
    """What is known of one source after its first records."""

    source: DataSource
    count: int = 0
    complete: bool = False  # there are no more records than these
    conversational: bool = False
    whole: int = 0  # records that were not truncated
    ended: int = 0  # of these, the ones with an end-of-sequence label
    ties: int = 0  # pairs with identical answers
    columns: set[str] = field(default_factory=set)  # besides prompts, for the reward
    lengths: LengthStatistics = field(default_factory=LengthStatistics)
    batch: list[tuple[Encoded, ...]] = field(default_factory=list)  # the sequences of each record
    shown: list[dict[str, Any]] = field(default_factory=list)  # the beginnings of the first records


class _Reader:
    """Reads and tokenizes up to a number of records of each source, for a limited time."""

    def __init__(self, spec: RunSpec, tokenizer: PreTrainedTokenizerBase | None, most: int) -> None:
        self._spec = spec
        self._eos = tokenizer.eos_token_id if tokenizer is not None else None
        self.eos_token = tokenizer.eos_token if tokenizer is not None else None
        self.tokenizing = RecordTokenizer(tokenizer, spec) if tokenizer is not None else None
        self._most = most
        self._batch_size = data_config(spec).batch_size
        self._until = time.monotonic() + READ_SECONDS

    @property
    def marks_assistant(self) -> bool:
        return self.tokenizing is not None and self.tokenizing.marks_assistant

    def read(self, source: DataSource) -> _Read:
        """Raises DataNotFound, DataInvalid, InvalidConfig."""
        found = _Read(source)
        mapping = data_config(self._spec).preprocess.field_mapping
        for located in records(source, mapping, method_of(self._spec), one_pass=True):
            if found.count >= self._most or time.monotonic() > self._until:
                return found
            self._add(found, located)
        found.complete = True
        return found

    def _add(self, found: _Read, located: LocatedRecord) -> None:
        found.count += 1
        found.conversational |= located.conversational
        found.columns |= set(located.record.get("columns") or ())
        if self.tokenizing is None:
            _show(found, located, None)
            return
        encoded = self.tokenizing.encode(located)
        _show(found, located, encoded.full_length)
        found.lengths.add(encoded.full_length, truncated=encoded.truncated, dropped=not encoded.learns)
        found.whole += not encoded.truncated
        found.ended += not encoded.truncated and any(self._eos in each.labels for each in encoded.sequences)
        first, *others = encoded.sequences
        found.ties += first in others
        if encoded.learns and len(found.batch) < self._batch_size:
            found.batch.append(encoded.sequences)


def _show(found: _Read, located: LocatedRecord, tokens: int | None) -> None:
    if len(found.shown) < MOST_SHOWN:
        found.shown.append(beginning(located.record, tokens))


def inspect_data(spec: RunSpec, tokenizer: PreTrainedTokenizerBase | None, most: int, findings: Findings) -> None:
    """Add the findings about the first records of each source. Raises DataNotFound, DataInvalid, InvalidConfig."""
    reader = _Reader(spec, tokenizer, most)
    sources = []
    for source in sources_of(spec):
        columns = columns_of(source)
        sources.append(reader.read(source))
        findings["sources"].append(_shown(sources[-1], columns, tokenized=tokenizer is not None))
    train = [each for each in sources if each.source.split == TRAIN]
    if not train:
        raise InvalidConfig("data_config.sources has no source to train on: give at least one the split train")
    _check_reward(spec, sorted(set().union(*(each.columns for each in train))))
    if tokenizer is not None:
        _collate(spec, train, tokenizer, findings)
        findings["warnings"] += _token_warnings(spec, reader, sources)
        findings["warnings"] += _position_warnings(spec, sources, findings)
        findings |= _together(sources)
    findings["warnings"] += _amount_warnings(spec, sources, train)


def _check_reward(spec: RunSpec, columns: list[str]) -> None:
    """Raises InvalidConfig."""
    if given := training_config(spec).grader:
        checked_grader(given, columns)
        return
    judged = completes(spec.hyperparameters) and not reward_model(spec.hyperparameters)
    if judged and not reward_file(spec.hyperparameters):  # user code is left to the node
        reward_of(str(spec.hyperparameters[REWARD]), columns)


def collate(batch: list[Encoded], pad_id: int, *, left: bool) -> dict[str, torch.Tensor]:
    """input_ids, labels and attention_mask of shape (records, longest), as the trainer's own collator makes them.

    That collator is part of trl, whose import takes longer than the rest of an inspection.
    """
    longest = max(len(each.input_ids) for each in batch)

    def padded(values: list[list[int]], filler: int) -> torch.Tensor:
        filled = [[*row, *[filler] * (longest - len(row))] for row in values]
        if left:
            filled = [[*row[len(given) :], *given] for row, given in zip(filled, values, strict=True)]
        return torch.tensor(filled)

    return {
        "input_ids": padded([each.input_ids for each in batch], pad_id),
        "labels": padded([each.labels for each in batch], NOT_LEARNED),
        "attention_mask": padded([[1] * len(each.input_ids) for each in batch], 0),
    }


def _collate(spec: RunSpec, train: list[_Read], tokenizer: PreTrainedTokenizerBase, findings: Findings) -> None:
    """Collate the first batch; where records are packed, their beginnings."""
    size = data_config(spec).batch_size
    longest = _longest(spec)
    chosen = [sequences for each in train for sequences in each.batch][:size]
    first = [sequence for sequences in chosen for sequence in sequences]
    if not first:
        names = ", ".join(_name(each.source) for each in train)
        raise DataInvalid(
            f"no record of {names} has a token to learn: give records an answer of the assistant, a completion or a "
            f"pair of answers, and room for it in max_seq_length ({longest})"
        )
    cut = [Encoded(each.input_ids[:longest], each.labels[:longest], each.full_length) for each in first]
    batch = collate(cut, int(tokenizer.pad_token_id), left=tokenizer.padding_side == "left")
    filled = int(batch["attention_mask"].sum())
    findings["batch"] = {
        "shape": list(batch["input_ids"].shape),
        "padding_share": round(1 - filled / batch["attention_mask"].numel(), 4),
        "learned_share": round(int((batch["labels"] != NOT_LEARNED).sum()) / filled, 4),
    }


def _shown(read: _Read, columns: list[str], *, tokenized: bool) -> dict[str, Any]:
    shown = described(read.source, columns, read.count, read.shown, complete=read.complete)
    if not tokenized:
        return shown
    document = read.lengths.to_document()
    return {**shown, **{name: document[name] for name in ("truncated_share", "dropped", "lengths")}}


def _token_warnings(spec: RunSpec, reader: _Reader, sources: list[_Read]) -> Iterator[str]:
    for each in sources:
        document = each.lengths.to_document()
        if document["truncated_share"] > TRUNCATED_WARNS:
            yield (
                f"{document['truncated_share']:.1%} of the first {each.count} records of {_name(each.source)} are "
                f"longer than max_seq_length {_longest(spec)} and are cut; the longest has "
                f"{document['lengths']['max']} tokens"
            )
        if document["dropped"] > UNLEARNED_WARNS * each.count:
            yield (
                f"{document['dropped']} of the first {each.count} records of {_name(each.source)} have no token to "
                "learn and are skipped"
            )
        if each.ties:
            yield (
                f"{each.ties} of the first {each.count} records of {_name(each.source)} have the same tokens as chosen "
                "and rejected: nothing is learned from them"
            )
        if each.whole and not each.ended and _adds_end(spec) and _learns_to_stop(spec):
            yield (
                f"no record of {_name(each.source)} teaches the end of sequence {reader.eos_token!r}: the model will "
                "not learn to stop"
            )
    wants = spec.hyperparameters.get("assistant_only_loss", records_of(method_of(spec)) == EXAMPLES)
    if wants and any(each.conversational for each in sources) and not reader.marks_assistant:
        yield (
            "the chat template does not mark the assistant's turns ({% generation %}): questions are learned like "
            "answers; a template in data_config.preprocess.chat_template can mark them"
        )


def _position_warnings(spec: RunSpec, sources: list[_Read], findings: Findings) -> Iterator[str]:
    """Warn about sequences longer than the model's maximum, unless the job scales its positions."""
    positions = (findings.get("model") or {}).get("max_position_embeddings")
    if not positions or base_model(spec).model_kwargs.get("rope_scaling"):
        return
    read = max((max(each.lengths.counts, default=0) for each in sources), default=0)
    longest = _longest(spec) if spec.training_type == "CONTINUED_PRETRAIN" else min(read, _longest(spec))
    if longest > positions:
        yield (
            f"there are sequences of {longest} tokens, the model supports {positions} positions: lower "
            "max_seq_length, or set model_kwargs.rope_scaling"
        )


def _together(sources: list[_Read]) -> dict[str, Any]:
    document = merged(each.lengths for each in sources).to_document()
    return {"lengths": document["lengths"], "truncated_share": round(document["truncated_share"], 4)}


def _adds_end(spec: RunSpec) -> bool:
    return data_config(spec).preprocess.add_eos_token is not False


def _learns_to_stop(spec: RunSpec) -> bool:
    """Whether the model learns the end of sequence from records; generating methods and reward models do not."""
    return records_of(method_of(spec)) != PROMPTS and method_of(spec) != REWARD_METHOD


def _longest(spec: RunSpec) -> int:
    return data_config(spec).max_seq_length


def _amount_warnings(spec: RunSpec, sources: list[_Read], train: list[_Read]) -> Iterator[str]:
    """Only for sources that were read completely."""
    if all(each.complete for each in train):
        yield from _training_amount(spec, train)
    for each in sources:
        if each.source.split == VALIDATION and each.complete and each.count < FEW_TO_MEASURE:
            yield f"{_name(each.source)} has {each.count} records to measure on: a noisy measure"


def _training_amount(spec: RunSpec, train: list[_Read]) -> Iterator[str]:
    count, noun = sum(each.count - each.lengths.dropped for each in train), "records"
    share = data_config(spec).validation_split
    held_out = round(count * share)
    if share and held_out < FEW_TO_MEASURE:
        yield f"validation_split {share:g} of {count} records leaves {max(1, held_out)} to measure on: a noisy measure"
    if spec.training_type == "CONTINUED_PRETRAIN":
        tokens = sum(each.lengths.to_document()["tokens"] for each in train)
        count, noun, held_out = max(1, tokens // _longest(spec)), f"blocks of {_longest(spec)} tokens", 0
    batch = data_config(spec).batch_size
    accumulated = data_config(spec).gradient_accumulation_steps
    step = batch * spec.world_size * accumulated
    if count - held_out < step:
        yield (
            f"there are {count - held_out} {noun} to train on, fewer than the {step} of one step (batch_size {batch} × "
            f"{spec.world_size} ranks × gradient_accumulation_steps {accumulated})"
        )


def _name(source: DataSource) -> str:
    return source.files[0].name if len(source.files) == 1 else source.location
