"""What scorers of benchmarks are given and answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from app.domain.evaluations.samples import Score
from workers.trainers.data.shapes import Record
from workers.trainers.inference.engine.interface import Completion
from workers.trainers.inference.inputs import InputRow

Located = tuple[InputRow, Record]


@dataclass(frozen=True)
class AnsweredRecord:
    """A record with columns ``prompt`` and ``columns``, and what the model has answered."""

    row: InputRow
    record: Record
    completion: Completion


@dataclass(frozen=True)
class Scored:
    """The scores of an answer by metric, and the right answer, if there is one; ``more`` is kept in the sample."""

    scores: Mapping[str, Score]
    target: Any = None
    more: Mapping[str, Any] = field(default_factory=dict)


class Scorer(Protocol):
    """Judges the answers of all records of a benchmark."""

    def check(self, records: Sequence[Located]) -> None:
        """Before any answer is generated. Raises DataInvalid and InvalidConfig."""

    def __call__(self, answered: Sequence[AnsweredRecord]) -> list[Scored]:
        """In the order of the answers. Raises DataInvalid, RewardFailed, JudgeUnavailable and Interrupted."""
        ...
