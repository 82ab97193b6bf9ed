"""Benchmark `judge`: another model's verdict on each answer, or on the answer and another one with sides swapped."""

import contextlib
from collections.abc import Sequence
from itertools import islice
from typing import Any

from app.domain.evaluations import judge_prompts, verdicts
from app.domain.evaluations.judge_prompts import ANSWER, ANSWER_A, ANSWER_B, PROMPT, REFERENCE
from app.domain.evaluations.judging import JUDGE, UNJUDGED, is_pairwise, judge_of
from app.domain.evaluations.verdicts import JudgeVerdict, Search
from app.domain.spec.hyperparameters.parsing import InvalidHyperparameter
from app.patterns.benchmarks import NO_GROUP
from app.patterns.rewards import compiled
from workers.trainers.data.shapes import Record
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.evaluation.asking_judge import Judge
from workers.trainers.inference.evaluation.dataset import Dataset
from workers.trainers.inference.evaluation.measure import BenchmarkTask
from workers.trainers.inference.evaluation.scoring import AnsweredRecord, Located, Scored
from workers.trainers.inference.inputs import InputRow
from workers.trainers.inference.seeds import sample_seed

_BASELINE, _CRITERIA = "baseline", "criteria"
_OF_MARKS = 2  # in place of the order, 0 or 1, of a request


class JudgeScorer:
    """Asks the judge once for each answer, or twice where there is a baseline. Raises InvalidConfig."""

    def __init__(self, task: BenchmarkTask, dataset: Dataset) -> None:
        values = task.parameters
        self._dataset, self._seed, self._values = dataset, task.seed, values
        self._form = verdicts.form_of(values)
        self._is_pairwise = is_pairwise(values)
        self._names = judge_prompts.placeholders(judge_prompts.template_of(values, ""))
        self._asks_for_form = "" if values["pattern"] else f"\n\n{self._form.request(reasons=values['reason'])}"
        self._judge = Judge(task, self._form, _search(values["pattern"]))

    def check(self, records: Sequence[Located]) -> None:
        """Also whether the judge answers, before there are hours of answers that it could not judge."""
        for row, record in records:
            self._requests(row, record, "")
        self._judge.check()

    def __call__(self, answered: Sequence[AnsweredRecord]) -> list[Scored]:
        requests = [
            (text, sample_seed(self._seed, each.row.index, order))
            for each in answered
            for order, text in enumerate(self._requests(each.row, each.record, each.completion.text))
        ]
        found, unjudged = [], 0
        with contextlib.closing(self._judge.verdicts(requests)) as given:
            for each in answered:
                scored = self._scored(each, list(islice(given, 2 if self._is_pairwise else 1)))
                found.append(scored)
                unjudged += int(scored.scores[UNJUDGED] == 1.0)
                self._refuse_many(found, answered, unjudged)
        return found

    def _scored(self, each: AnsweredRecord, given: Sequence[JudgeVerdict]) -> Scored:
        target = self._values[_BASELINE] or self._values[REFERENCE]
        return Scored(
            verdicts.scores(self._form, given),
            self._dataset.column(each.row, each.record, target) if target is not None else None,
            {"judge": judge_of(self._values), "verdicts": [verdict.to_json() for verdict in given]},
        )

    def _refuse_many(self, found: Sequence[Scored], answered: Sequence[AnsweredRecord], unjudged: int) -> None:
        """Raise DataInvalid once too many samples have no verdict: a mean over the rest would flatter the model."""
        most = float(self._values["max_share"]) * len(answered)
        if unjudged <= most and unjudged < len(answered):
            return
        first = next(place for place, scored in enumerate(found) if scored.scores[UNJUDGED])
        verdict = next(each for each in found[first].more["verdicts"] if "value" not in each)
        said = f" in {verdict['text'][:80]!r}" if "text" in verdict else ""
        raise self._dataset.invalid(
            answered[first].row,
            f"{judge_of(self._values)} gave no verdict: {verdict['problem']}{said}; of {len(found)} samples "
            f"{unjudged} have none, above parameters.max_share {self._values['max_share']:g} of all {len(answered)}",
        )

    def _requests(self, row: InputRow, record: Record, answer: str) -> list[str]:
        """The text for the judge, or both with the answer as A and then as B. Raises DataInvalid."""
        if not self._is_pairwise:
            return [self._filled(row, record, {ANSWER: answer})]
        other = self._dataset.column(row, record, self._values[_BASELINE])
        if not isinstance(other, str):
            raise self._dataset.invalid(row, f"column {self._values[_BASELINE]} must be a text: the other answer")
        sides = ((answer, other), (other, answer))
        return [self._filled(row, record, {ANSWER_A: one, ANSWER_B: two}) for one, two in sides]

    def _filled(self, row: InputRow, record: Record, answers: dict[str, str]) -> str:
        values = {PROMPT: judge_prompts.shown(record["prompt"]), _CRITERIA: self._values[_CRITERIA], **answers}
        for name in self._names:
            if name not in values:
                column = self._values[REFERENCE] or name if name == REFERENCE else name
                values[name] = judge_prompts.shown(self._dataset.column(row, record, column))
        number = f"{sample_seed(self._seed, row.index, _OF_MARKS) % 65536:04x}"  # short: judges may have little context
        return judge_prompts.filled(judge_prompts.template_of(self._values, number), values) + self._asks_for_form


def _search(pattern: str | None) -> Search | None:
    """Group 1 of the last match: judges reason first."""
    if pattern is None:
        return None
    try:
        found: Any = compiled(pattern)
    except InvalidHyperparameter as error:
        raise InvalidConfig(f"benchmark {JUDGE}: pattern {error.message.removeprefix('reward ')}") from error
    if not found.groups:
        raise InvalidConfig(f"benchmark {JUDGE}: {NO_GROUP}")

    def search(text: str) -> str | None:
        last = None
        for match in found.finditer(text):
            last = match.group(1)
        return last.strip() if last is not None else None

    return search
