"""Asks the model that judges, several requests at a time, and tells a bad request from a judge that is away."""

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

from app.domain.evaluations import verdicts
from app.domain.evaluations.judging import JUDGE, judge_of
from app.domain.evaluations.verdicts import Form, Search, Verdict
from workers.rank.run_context import RUN_ENDS, NotAnswered
from workers.trainers.failures import InvalidConfig, TrainingFailure
from workers.trainers.inference.engine.interface import LENGTH, Interrupted
from workers.trainers.inference.evaluation.measure import Task

_PATH = "/v1/chat/completions"
_POLL_SECONDS = 0.5  # between questions whether the evaluation is to stop
_NO_SUCH_JUDGE = (401, 403, 404)
_AWAY = (408, 409, 429, 502, 503, 504)  # for minutes already: `RunContext.ask` repeats such requests
_SEEDS = 1 << 53  # as many as requests may name
_PROBE = "Reply with anything."


class JudgeUnavailable(TrainingFailure):
    """A later attempt may find the judge."""

    error_type = "NETWORK_ERROR"


class Judge:
    """The model that the benchmark names, asked without randomness."""

    def __init__(self, task: Task, form: Form, search: Search | None) -> None:
        values = task.parameters
        self._task, self._form, self._search = task, form, search
        self._name, self._at_once = judge_of(values), int(values["at_once"])
        self._options: dict[str, Any] = {"model": self._name, "temperature": 0, "max_tokens": values["max_tokens"]}
        if search is None:
            max_tokens, reasons = int(values["max_tokens"]), bool(values["reason"])
            self._options["response_format"] = form.response_format(reasons=reasons, max_tokens=max_tokens)

    def check(self) -> None:
        """Raise InvalidConfig where the judge takes no such requests, JudgeUnavailable where it does not answer."""
        try:
            self._answer(_PROBE, 0)
        except NotAnswered as error:
            raise self._is_wrong(error) from error

    def verdicts(self, requests: Sequence[tuple[str, int]]) -> Generator[Verdict]:
        """One for each (text, seed), in their order. Raises Interrupted, InvalidConfig and JudgeUnavailable."""
        pool = ThreadPoolExecutor(self._at_once, thread_name_prefix=JUDGE)
        try:
            futures = [pool.submit(self._verdict, *each) for each in requests]
            for future in futures:
                yield self._waited(future)
        finally:
            pool.shutdown(cancel_futures=True)

    def _waited(self, future: Future[Verdict]) -> Verdict:
        while not self._task.interrupted():
            if wait([future], timeout=_POLL_SECONDS).done:
                return future.result()
        raise Interrupted

    def _verdict(self, text: str, seed: int) -> Verdict:
        try:
            answer = self._answer(text, seed)
        except NotAnswered as error:
            if error.status in (*_NO_SUCH_JUDGE, *_AWAY):
                raise self._is_wrong(error) from error
            return Verdict(problem=f"the request was refused: {error.message} ({error.status})")
        said, is_cut = _said(answer)
        found = verdicts.read(said, self._form, self._search, is_cut=is_cut)
        return replace(found, fingerprint=str(answer.get("system_fingerprint") or ""))

    def _answer(self, text: str, seed: int) -> dict[str, Any]:
        """Raises NotAnswered, and Interrupted when the run ends."""
        body = {**self._options, "messages": [{"role": "user", "content": text}], "seed": seed % _SEEDS}
        try:
            return self._task.ask(_PATH, body)
        except NotAnswered as error:
            if error.status == RUN_ENDS:
                raise Interrupted from error
            raise

    def _is_wrong(self, error: NotAnswered) -> TrainingFailure:
        message = f"benchmark {JUDGE}: {self._name} can't judge: {error.message} ({error.status})"
        if error.status in _AWAY or error.status >= 500:
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
