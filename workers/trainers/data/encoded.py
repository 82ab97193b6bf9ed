"""Tokenized records, in the columns that trl's trainers expect."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.spec.data.preprocessing import PREFERENCES, PROMPTS, records_of

NOT_LEARNED = -100
_SEQUENCE = ("input_ids", "labels")
_PAIR = ("prompt_ids", "chosen_ids", "rejected_ids")
RECORD = "record"  # a column of JSON
_PROMPT = ("prompt_ids", RECORD)


Columns = dict[str, list[int] | str]


@dataclass(frozen=True, slots=True)
class Encoded:
    """One sequence. `labels` are -100 where nothing is learned; `full_length` is in tokens before truncation."""

    input_ids: list[int]
    labels: list[int]
    full_length: int

    @property
    def learns(self) -> bool:
        """Whether it has any labels: truncation may have left only the prompt."""
        return any(label != NOT_LEARNED for label in self.labels)

    @property
    def truncated(self) -> bool:
        return len(self.input_ids) < self.full_length

    @property
    def columns(self) -> Columns:
        return {"input_ids": self.input_ids, "labels": self.labels}

    @property
    def sequences(self) -> "tuple[Encoded, ...]":
        """The sequences that the model reads."""
        return (self,)


@dataclass(frozen=True, slots=True)
class EncodedPair:
    """A prompt and two answers; `full_length` is that of the prompt with the longer answer before truncation."""

    prompt_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]
    full_length: int

    @property
    def learns(self) -> bool:
        """Whether truncation left anything to compare."""
        return bool(self.chosen_ids and self.rejected_ids)

    @property
    def truncated(self) -> bool:
        return max(len(each.input_ids) for each in self.sequences) < self.full_length

    @property
    def columns(self) -> Columns:
        return {"prompt_ids": self.prompt_ids, "chosen_ids": self.chosen_ids, "rejected_ids": self.rejected_ids}

    @property
    def sequences(self) -> tuple[Encoded, ...]:
        """The sequences that the model reads."""
        unlearned = [NOT_LEARNED] * len(self.prompt_ids)
        answers = (self.chosen_ids, self.rejected_ids)
        return tuple(Encoded(self.prompt_ids + each, unlearned + each, self.full_length) for each in answers)


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt to complete: as tokens, and as in the record with its other columns; never truncated."""

    prompt_ids: list[int]
    record: Mapping[str, Any]  # `prompt` a text or messages, `columns` for the reward
    fits: bool

    @property
    def full_length(self) -> int:
        return len(self.prompt_ids)

    @property
    def learns(self) -> bool:
        """A truncated prompt would be a different one."""
        return self.fits

    @property
    def truncated(self) -> bool:
        return False

    @property
    def columns(self) -> Columns:
        return {"prompt_ids": self.prompt_ids, RECORD: json.dumps(self.record, default=str)}

    @property
    def sequences(self) -> tuple[Encoded, ...]:
        """The sequences that the model reads before it generates."""
        return (Encoded(self.prompt_ids, [NOT_LEARNED] * len(self.prompt_ids), self.full_length),)


AnyEncoded = Encoded | EncodedPair | EncodedPrompt


def columns_of(method: str) -> tuple[str, ...]:
    """The columns of all records for this method."""
    return {PREFERENCES: _PAIR, PROMPTS: _PROMPT}.get(records_of(method), _SEQUENCE)
