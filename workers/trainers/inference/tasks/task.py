"""The interface of a task, and how the rows of a shard are answered by one."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from workers.trainers.data.shapes import Record
from workers.trainers.failures import DataInvalid
from workers.trainers.inference.engine.interface import RequestRefused
from workers.trainers.inference.inputs import InputRow, Inputs
from workers.trainers.inference.rows import RECORD_INVALID, Answer, OutputRow, RecordError, answered
from workers.trainers.inference.tokens import Unanswerable

Request = TypeVar("Request")
Interrupted = Callable[[], bool]


class Task(Protocol[Request]):
    """One type of `inference.task`; its answers depend on the document and the record alone."""

    def request(self, index: int, record: Record) -> Request:
        """What the engine is asked for record number ``index``. Raises Unanswerable."""

    def answers(self, requests: Sequence[Request], interrupted: Interrupted) -> list[Answer | RequestRefused]:
        """The answers in the order of ``requests``. Raises Interrupted."""


def answer_shard(
    task: Task[Request],
    inputs: Inputs,
    rows: Sequence[InputRow],
    keep_columns: tuple[str, ...],
    interrupted: Interrupted,
) -> list[OutputRow]:
    """All rows of a shard answered, in their order, in one call of the engine, so that nothing but the shard decides
    which requests share a batch. Raises Interrupted.
    """
    found: dict[int, Answer | RecordError] = {}
    requests: list[tuple[InputRow, Request]] = []
    for row in rows:
        try:
            requests.append((row, task.request(row.index, inputs.record(row))))
        except DataInvalid as error:
            found[row.index] = RecordError(RECORD_INVALID, str(error), row.where)
        except Unanswerable as error:
            found[row.index] = RecordError(error.code, error.message, row.where)
    answers = task.answers([request for _, request in requests], interrupted) if requests else []
    for (row, _), answer in zip(requests, answers, strict=True):
        if isinstance(answer, RequestRefused):
            found[row.index] = RecordError(answer.code, answer.message, row.where)
        else:
            found[row.index] = answer
    return [answered(row, keep_columns, found[row.index]) for row in rows]
