"""The columns of the benchmark `choices`: several answers to a prompt, and which of them is right."""

from collections.abc import Mapping, Sequence
from typing import Any

from workers.trainers.data.shapes import Record
from workers.trainers.inference.evaluation.dataset import Dataset
from workers.trainers.inference.inputs import InputRow

_FEWEST = 2


class ChoiceColumns:
    """Reads them, by the names that the parameters give."""

    def __init__(self, dataset: Dataset, values: Mapping[str, Any]) -> None:
        self._dataset = dataset
        self._choices, self._answer = values["choices"], values["answer"]

    def read(self, row: InputRow, record: Record) -> tuple[tuple[str, ...], int]:
        """The choices, and the number of the right one. Raises DataInvalid."""
        choices = self._dataset.column(row, record, self._choices)
        if (
            not isinstance(choices, list)
            or len(choices) < _FEWEST
            or not all(isinstance(c, str) and c for c in choices)
        ):
            raise self._dataset.invalid(row, f"column {self._choices} must be a list of two or more texts")
        return tuple(choices), self._right(row, record, choices)

    def _right(self, row: InputRow, record: Record, choices: Sequence[str]) -> int:
        answer = self._dataset.column(row, record, self._answer)
        if isinstance(answer, str) and answer in choices:
            return choices.index(answer)
        if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(choices):
            return answer
        raise self._dataset.invalid(
            row, f"column {self._answer} must be one of the choices, or the number of one from 0 to {len(choices) - 1}"
        )
