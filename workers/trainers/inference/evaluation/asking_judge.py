"""Asks the model that judges, several requests at a time, and tells a bad request from a judge that is away."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from app.domain.evaluations import verdicts
from app.domain.evaluations.judging import JUDGE, judge_of
from app.domain.evaluations.verdicts import JudgeVerdict, Search, VerdictForm
from workers.rank.run_context import NotAnswered
from workers.trainers.answer_statuses import Cause, cause_of
from workers.trainers.asking_in_order import in_order
from workers.trainers.failures import InvalidConfig, TrainingFailure
from workers.trainers.inference.engine.interface import LENGTH, Interrupted
from workers.trainers.inference.evaluation.measure import BenchmarkTask

_PATH = "/v1/chat/completions"
_SEEDS = 1 << 53  # as many as requests may name
_PROBE = "Reply with anything."


class JudgeUnavailable(TrainingFailure):
    """A later attempt may find the judge."""

    error_type = "NETWORK_ERROR"


class Judge:
    """The model that the benchmark names, asked without randomness."""

    def __init__(self, task: BenchmarkTask, form: VerdictForm, search: Search | None) -> None:
        values = task.parameters
        self._task, self._form, self._search = task, form, search
        self._name, self._at_once = judge_of(values), int(values["at_once"])
        self._options: dict[str, Any] = {"model": self._name, "temperature": 0, "max_tokens": values["max_tokens"]}
        if search is None:
            max_tokens, reasons = int(values["max_tokens"]), bool(values["reason"])
            self._options["response_format"] = form.response_format(reasons=reasons, max_tokens=max_tokens)

    def check(self) -> None:
        """Raise InvalidConfig where the judge takes no such requests, JudgeUnavailable where it does not answer.

        Raises Interrupted, too.
        """
        try:
            list(in_order([partial(self._answer, _PROBE, 0)], self._task.interrupted))
        except NotAnswered as error:
            raise self._is_wrong(error) from error

    def verdicts(self, requests: Sequence[tuple[str, int]]) -> Generator[JudgeVerdict]:
        """One for each (text, seed), in their order. Raises Interrupted, InvalidConfig and JudgeUnavailable."""
        work = [partial(self._verdict, *each) for each in requests]
        return in_order(work, self._task.interrupted, at_once=self._at_once)

    def _verdict(self, text: str, seed: int) -> JudgeVerdict:
        try:
            answer = self._answer(text, seed)
        except NotAnswered as error:
            if cause_of(error.http_status) in (Cause.NO_SUCH_MODEL, Cause.AWAY):
                raise self._is_wrong(error) from error
            return JudgeVerdict(problem=f"the request was refused: {error.message} ({error.http_status})")
        said, is_cut = _said(answer)
        found = verdicts.read(said, self._form, self._search, is_cut=is_cut)
        return replace(found, fingerprint=str(answer.get("system_fingerprint") or ""))

    def _answer(self, text: str, seed: int) -> dict[str, Any]:
        """Raises NotAnswered, and Interrupted when the run ends."""
        body = {**self._options, "messages": [{"role": "user", "content": text}], "seed": seed % _SEEDS}
        try:
            return self._task.ask(_PATH, body)
        except NotAnswered as error:
            if cause_of(error.http_status) is Cause.RUN_ENDS:
                raise Interrupted from error
            raise

    def _is_wrong(self, error: NotAnswered) -> TrainingFailure:
        message = f"benchmark {JUDGE}: {self._name} can't judge: {error.message} ({error.http_status})"
        if cause_of(error.http_status) in (Cause.AWAY, Cause.FAILED):
            return JudgeUnavailable(message)
        return InvalidConfig(message)


def _said(answer: Mapping[str, Any]) -> tuple[str, bool]:
    """The text of a chat completion, and whether it was cut off."""
    choices = answer.get("choices")
    choice: Any = choices[0] if isinstance(choices, list) and choices else {}
    message = choice.get("message") if isinstance(choice, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    text = content if isinstance(content, str) else ""
    # A lone surrogate, which JSON may hold, is none of what RE2 and UTF-8 read.
    return text.encode("utf-8", "replace").decode(), isinstance(choice, dict) and choice.get("finish_reason") == LENGTH
