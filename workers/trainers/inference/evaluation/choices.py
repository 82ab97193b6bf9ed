"""Benchmark `choices`: the likeliest of several answers, by its log-probability and by that for each character."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.evaluations.samples import Sample, digest
from app.domain.spec.inference import GENERATE
from workers.trainers.data.shapes import Record
from workers.trainers.inference.engine.interface import Continuation, Likelihood
from workers.trainers.inference.evaluation.choice_columns import ChoiceColumns
from workers.trainers.inference.evaluation.dataset import Dataset
from workers.trainers.inference.evaluation.measure import BenchmarkTask, Measurement
from workers.trainers.inference.inputs import InputRow
from workers.trainers.inference.tokens import TaskTokens, Unanswerable


@dataclass(frozen=True)
class _Question:
    row: InputRow
    record: Record
    choices: tuple[str, ...]
    right: int
    continuations: tuple[Continuation, ...]


def measure(task: BenchmarkTask) -> Measurement:
    """As `measure.Measure`."""
    dataset = Dataset(task.spec, task.benchmark)
    asking = _Asking(task, dataset)
    questions = [asking.question(row, record) for row, record in dataset.records(GENERATE)]
    requests = [each for question in questions for each in question.continuations]
    answers = iter(task.engine.likelihoods(requests, task.interrupted))
    found = [[dataset.accepted(each.row, next(answers)) for _ in each.continuations] for each in questions]
    prompts = task.engine.tokenizer.batch_decode([list(each.continuations[0].context) for each in questions])
    return Measurement(
        samples=[_sample(*each) for each in zip(questions, found, prompts, strict=True)],
        prompt_tokens=sum(len(each.context) + len(each.tokens) for each in requests),
    )


class _Asking:
    """Makes questions of records."""

    def __init__(self, task: BenchmarkTask, dataset: Dataset) -> None:
        values = task.parameters
        self._dataset = dataset
        self._columns, self._separator = ChoiceColumns(dataset, values), values["separator"]
        self._tokenizer = task.engine.tokenizer
        self._tokens = TaskTokens(task.engine.tokenizer, task.spec, task.engine.context_length)

    def question(self, row: InputRow, record: Record) -> _Question:
        """Raises DataInvalid."""
        choices, right = self._columns.read(row, record)
        try:
            continuations = tuple(self._continuation(record, choice) for choice in choices)
        except Unanswerable as error:
            raise self._dataset.invalid(row, error.message) from error
        return _Question(row, record, choices, right, continuations)

    def _continuation(self, record: Record, choice: str) -> Continuation:
        if isinstance(record["prompt"], str):
            return self._tokens.continuation({"prompt": record["prompt"], "completion": self._separator + choice})
        # After what begins the assistant's answer; the template may end messages with more than the choice.
        tokens = self._tokenizer(text=choice, add_special_tokens=False, verbose=False)["input_ids"]
        return Continuation(context=tuple(self._tokens.prompt(record)), tokens=tuple(tokens))


def _sample(question: _Question, found: Sequence[Likelihood], prompt: str) -> Sample:
    logprobs = [each.logprob for each in found]
    by_length = [each.logprob / len(choice) for each, choice in zip(found, question.choices, strict=True)]
    likeliest, by_character = _first_largest(logprobs), _first_largest(by_length)
    return Sample(
        index=question.row.index,
        document=question.record,
        doc_hash=digest(question.record),
        prompt_hash=digest(prompt),
        target_hash=digest(question.choices[question.right]),
        answer=question.choices[likeliest],
        scores={
            "accuracy": float(likeliest == question.right),
            "accuracy_by_length": float(by_character == question.right),
        },
        more={"logprobs": logprobs, "target": question.right},
    )


def _first_largest(values: Sequence[float]) -> int:
    return max(range(len(values)), key=lambda place: (values[place], -place))
