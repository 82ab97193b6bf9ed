"""Scorers of completions: one line for each benchmark that has the model answer prompts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import re2

from app.domain.evaluations import answers
from app.domain.evaluations.catalog import CUSTOM, REWARD
from app.domain.evaluations.judging import JUDGE
from app.domain.evaluations.samples import Score
from app.domain.spec.hyperparameters.parsing import InvalidHyperparameter
from app.domain.spec.hyperparameters.rlhf import REGEX, REWARD_MODEL
from app.domain.text_metrics import bleu, rouge
from app.patterns.rewards import compiled
from workers.trainers.data.shapes import Record
from workers.trainers.inference.evaluation.dataset import Dataset
from workers.trainers.inference.evaluation.measure import BenchmarkTask
from workers.trainers.inference.evaluation.scoring import AnsweredRecord, Located, Scored, Scorer
from workers.trainers.inference.inputs import InputRow

_JSON_VALID = "json_valid"


def scorer_of(task: BenchmarkTask, dataset: Dataset) -> Scorer:
    """The scorer of a benchmark. Raises InvalidConfig, ModelNotFound, and RewardFailed for what can't be loaded."""
    family = task.benchmark.name.partition(":")[0]
    if family == REWARD and task.parameters[REWARD_MODEL] is not None:
        # A second model is loaded by its own module.
        from workers.trainers.inference.evaluation.reward_model import RewardModelScorer  # noqa: PLC0415

        return RewardModelScorer(task, dataset)
    if family == JUDGE:
        from workers.trainers.inference.evaluation.judge import JudgeScorer  # noqa: PLC0415  it imports this module

        return JudgeScorer(task, dataset)
    if family in (CUSTOM, REWARD):
        # User code is loaded by its own module, which only these two need.
        from workers.trainers.inference.evaluation.user_scorers import CustomScorer, RewardScorer  # noqa: PLC0415

        return CustomScorer(task, dataset) if family == CUSTOM else RewardScorer(task, dataset)
    return comparing(dataset, task.parameters)


def comparing(dataset: Dataset, parameters: Mapping[str, Any]) -> Scorer:
    """The scorer of one of the benchmarks `COMPARING`, which need neither a second model nor code of users."""
    name = dataset.benchmark.name
    if name == _JSON_VALID:
        return _Valid(object_only=parameters["object_only"])
    if name == REGEX:
        return _Matching(dataset, parameters)
    return _Compared(dataset, name, parameters)


def accepted_answers(value: object) -> tuple[str, ...]:
    """The texts of a column: one value, or a list of them; empty for anything else."""
    values = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(each, str | int | float) for each in values):
        return ()
    return tuple(str(each) for each in values)


class _Compared:
    """Compares with column `answer`."""

    def __init__(self, dataset: Dataset, name: str, parameters: Mapping[str, Any]) -> None:
        self._dataset = dataset
        self._name = name
        self._column = parameters["answer"]
        self._score = _COMPARISONS[name](parameters)

    def check(self, records: Sequence[Located]) -> None:
        for row, record in records:
            self._accepted(row, record)

    def __call__(self, answered: Sequence[AnsweredRecord]) -> list[Scored]:
        return [self._scored(each) for each in answered]

    def _scored(self, each: AnsweredRecord) -> Scored:
        accepted = self._accepted(each.row, each.record)
        return Scored({self._name: self._score(each.completion.text, accepted)}, list(accepted))

    def _accepted(self, row: InputRow, record: Record) -> tuple[str, ...]:
        found = accepted_answers(self._dataset.column(row, record, self._column))
        if not found:
            raise self._dataset.invalid(
                row, f"column {self._column} must be a text, a number, or a list of them that is not empty"
            )
        return found


class _Matching:
    """Searches for the pattern of the parameter, or of the record."""

    def __init__(self, dataset: Dataset, parameters: Mapping[str, Any]) -> None:
        self._dataset = dataset
        self._column = parameters["answer"]
        self._pattern: str | None = parameters["pattern"]

    def check(self, records: Sequence[Located]) -> None:
        for row, record in records:
            self._compiled(row, record)

    def __call__(self, answered: Sequence[AnsweredRecord]) -> list[Scored]:
        return [self._scored(each) for each in answered]

    def _scored(self, each: AnsweredRecord) -> Scored:
        text, pattern = self._compiled(each.row, each.record)
        return Scored({"regex": float(pattern.search(each.completion.text) is not None)}, text)

    def _compiled(self, row: InputRow, record: Record) -> tuple[str, "re2._Regexp"]:
        text = self._pattern
        if text is None:
            text = str(self._dataset.column(row, record, self._column))
        try:
            return text, compiled(text)
        except InvalidHyperparameter as error:
            raise self._dataset.invalid(row, error.message.removeprefix(f"{REWARD} ")) from error


class _Valid:
    """Whether answers are JSON."""

    def __init__(self, *, object_only: bool) -> None:
        self._object_only = object_only

    def check(self, records: Sequence[Located]) -> None:
        """Any record will do."""

    def __call__(self, answered: Sequence[AnsweredRecord]) -> list[Scored]:
        return [
            Scored({"json_valid": answers.json_valid(each.completion.text, object_only=self._object_only)})
            for each in answered
        ]


_Comparison = Callable[[str, Sequence[str]], Score]


def _normalized(score: Callable[[str, Sequence[str], str], float]) -> Callable[[Mapping[str, Any]], _Comparison]:
    return lambda parameters: lambda text, accepted: score(text, accepted, parameters["normalize"])


_COMPARISONS: Mapping[str, Callable[[Mapping[str, Any]], _Comparison]] = {
    "exact_match": _normalized(answers.exact_match),
    "contains": _normalized(answers.contains),
    "f1": _normalized(answers.f1),
    "rouge_l": lambda _: rouge.rouge_l,
    "bleu": lambda _: bleu.counts,
}
COMPARING = frozenset({_JSON_VALID, REGEX, *_COMPARISONS})
