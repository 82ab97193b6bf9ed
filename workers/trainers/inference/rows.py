"""Rows of the output: what a record's answer consists of, and why a record has none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.trainers.inference.engine.interface import RequestRefused
from workers.trainers.inference.inputs import InputRow

Array = NDArray[np.floating[Any]]
ID = "id"  # a column that is kept in any case
RECORD_INVALID = "RECORD_INVALID"  # RecordError.code of a record that the task can't use


@dataclass(frozen=True, kw_only=True)
class Answer:
    """``values`` are the columns of the task, ``vector`` the embedding, with pooling none one for each token.

    ``refused``: the values say that a request was refused, and why; the record counts as one without an answer.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    vector: Array | None = None
    refused: RequestRefused | None = None


@dataclass(frozen=True)
class RecordError:
    """Why a record has no answer."""

    code: str
    message: str
    where: str

    def to_json(self) -> dict[str, str]:
        # It may name a column of the data, which may have characters that no file can hold.
        message = self.message.encode("utf-8", "backslashreplace").decode()
        return {"code": self.code, "message": message, "where": self.where}


@dataclass(frozen=True)
class OutputRow:
    """One record in the output; it has an ``answer``, or an ``error``, or an answer that says its error."""

    index: int
    kept: Mapping[str, Any]  # id, if the record has one, and output.keep_columns
    answer: Answer | None = None
    error: RecordError | None = None
    line: int = 0  # as of its InputRow


def answered(row: InputRow, keep_columns: tuple[str, ...], answer: Answer | RecordError) -> OutputRow:
    kept = kept_of(row.values, keep_columns)
    if isinstance(answer, RecordError):
        return OutputRow(row.index, kept, error=answer, line=row.line)
    error = RecordError(answer.refused.code, answer.refused.message, row.where) if answer.refused else None
    return OutputRow(row.index, kept, answer=answer, error=error, line=row.line)


def kept_of(values: Mapping[str, Any], keep_columns: tuple[str, ...]) -> dict[str, Any]:
    """The columns that go to the output; None for one that a record omits."""
    kept = {ID: values[ID]} if ID in values else {}
    return kept | {name: values.get(name) for name in keep_columns}
