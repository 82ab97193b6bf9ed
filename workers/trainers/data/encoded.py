"""What a record becomes: lists of token ids, in the columns that trl's trainers take."""

from dataclasses import dataclass

from app.domain.preprocessing import PREFERENCES, records_of

NOT_LEARNED = -100
_SEQUENCE = ("input_ids", "labels")
_PAIR = ("prompt_ids", "chosen_ids", "rejected_ids")


@dataclass(frozen=True, slots=True)
class Encoded:
    """One sequence. `labels` are -100 where nothing is learned; `full_length` is in tokens before truncation."""

    input_ids: list[int]
    labels: list[int]
    full_length: int

    @property
    def learns(self) -> bool:
        """Whether it is of any use: truncation may have left the prompt alone."""
        return any(label != NOT_LEARNED for label in self.labels)

    @property
    def truncated(self) -> bool:
        return len(self.input_ids) < self.full_length

    @property
    def columns(self) -> dict[str, list[int]]:
        return {"input_ids": self.input_ids, "labels": self.labels}

    @property
    def sequences(self) -> "tuple[Encoded, ...]":
        """What the model reads of it."""
        return (self,)


@dataclass(frozen=True, slots=True)
class EncodedPair:
    """A prompt and two answers to it; `full_length` is that of the prompt with the longer one before truncation."""

    prompt_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]
    full_length: int

    @property
    def learns(self) -> bool:
        """Whether there is something left to compare."""
        return bool(self.chosen_ids and self.rejected_ids)

    @property
    def truncated(self) -> bool:
        return max(len(each.input_ids) for each in self.sequences) < self.full_length

    @property
    def columns(self) -> dict[str, list[int]]:
        return {"prompt_ids": self.prompt_ids, "chosen_ids": self.chosen_ids, "rejected_ids": self.rejected_ids}

    @property
    def sequences(self) -> tuple[Encoded, ...]:
        """What the model reads of it."""
        unlearned = [NOT_LEARNED] * len(self.prompt_ids)
        answers = (self.chosen_ids, self.rejected_ids)
        return tuple(Encoded(self.prompt_ids + each, unlearned + each, self.full_length) for each in answers)


def columns_of(training_type: str) -> tuple[str, ...]:
    """The columns of all records that a training of this type learns from."""
    return _PAIR if records_of(training_type) == PREFERENCES else _SEQUENCE
