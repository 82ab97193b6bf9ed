"""A grader as the reward function of trl's trainers."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from app.domain.errors import InvalidRequest
from app.domain.graders.document import Grader, Multi, Python, columns_of, models_of, parse, singles
from app.domain.graders.grading import MODEL_SERVER, SAMPLE_PARSE, Graded, GradeError, NoGrade, grade, sample_of
from app.domain.spec import metrics
from app.patterns.fuzzy_match import fuzzy_match
from workers.rank.run_context import NotAnswered, RunContext
from workers.trainers.answer_statuses import Cause, cause_of
from workers.trainers.asking_in_order import in_order
from workers.trainers.failures import InvalidConfig, TrainingFailure
from workers.trainers.graders.python_graders import TIME_LIMIT, PythonGraders
from workers.trainers.inference.engine.interface import Interrupted
from workers.trainers.rewards import Completion, RewardFailed, Scores, text_of

NAME = "grader"  # in the names of metrics
FAILED = "GRADER_FAILED"  # a note in the job's history
MOST_FAILED = 0.5  # share of a step's completions without a reward beyond which the job fails
_QUESTIONS = 16  # to models at a time
_MOST_PROCESSES = 8
_CHAT = "/v1/chat/completions"


class ModelUnreachable(TrainingFailure):
    """A model did not answer for minutes; a later attempt may find it."""

    error_type = "NETWORK_ERROR"


def checked_grader(given: Mapping[str, Any], columns: Sequence[str]) -> Grader:
    """The grader of a document, for records with these columns beside the prompt. Raises InvalidConfig."""
    try:
        grader = parse(given)
    except InvalidRequest as error:
        raise InvalidConfig(f"{error.field} {error.message}") from error
    if missing := sorted(columns_of(grader) - {*columns, "prompt", "messages"}):
        known = ", ".join(columns) or "none beside the prompt"
        raise InvalidConfig(f"grader: the records have no column {missing[0]}; they have {known}")
    return grader


def item_of(prompt: object, columns: Mapping[str, Any]) -> dict[str, Any]:
    """``item`` of templates and of python graders: the record, with its prompt."""
    return {"messages" if isinstance(prompt, list) else "prompt": prompt, **columns}


class GraderReward:
    """Called once a step; a completion for which the grader fails counts 0. To be closed."""

    def __init__(self, context: RunContext, grader: Grader, *, seconds: float = TIME_LIMIT) -> None:
        self.__name__ = NAME
        self._context = context
        self._grader = grader
        self._asks = bool(models_of(grader))
        self._parts = tuple(grader.graders) if isinstance(grader, Multi) else ()
        self._noted = False
        self._threads = _QUESTIONS if self._asks else 1
        processes = 1
        if any(isinstance(each, Python) for each in singles(grader)):
            processes = min(_MOST_PROCESSES, max(1, context.spec.threads_per_rank), os.cpu_count() or 1)
            self._threads = max(self._threads, processes)
        self._python = PythonGraders(processes=processes, seconds=seconds)

    def __call__(
        self,
        *,
        prompts: Sequence[Any],
        completions: Sequence[Completion],
        columns: Sequence[Mapping[str, Any]],
        log_metric: Callable[[str, float], None] = lambda *_: None,
        **_: Any,
    ) -> Scores:
        """One reward per completion; once the run is cancelled, 0 for each: the step is its last one.

        Raises RewardFailed, InvalidConfig and ModelUnreachable.
        """
        records = [item_of(prompt, each) for prompt, each in zip(prompts, columns, strict=True)]
        samples = [sample_of(text_of(each), _tools(each)) for each in completions]
        failures = _Failures(len(samples))

        def graded(item: Mapping[str, Any], sample: Mapping[str, Any]) -> Graded:
            found = grade(
                self._grader,
                item=item,
                sample=sample,
                ask=self._ask,
                run_python=self._python.run,
                fuzzy_match=fuzzy_match,
            )
            failures.add(found)
            return found

        work = [partial(graded, item, sample) for item, sample in zip(records, samples, strict=True)]
        try:
            with self._context.section("grading"):
                found = list(in_order(work, self._is_cancelled, at_once=self._threads))
        except Interrupted:
            # Other ranks wait for these rewards; with them they, too, come to the step's end, where all stop.
            found = [Graded(0.0, dict.fromkeys(self._parts))] * len(samples)
        if failures.said and not self._noted:
            self._noted = True
            self._context.note(FAILED, f"{failures.said}; it counts 0, as others will")
        self._measure(found, log_metric)
        return [each.reward for each in found]

    def close(self) -> None:
        """End the processes of python graders."""
        self._python.close()

    def _ask(self, model: str, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._context.ask(_CHAT, body)
        except NotAnswered as error:
            cause = cause_of(error.http_status)
            if cause is Cause.RUN_ENDS:
                raise Interrupted from error
            if cause is Cause.AWAY:
                raise ModelUnreachable(f"the grader's model {model} does not answer: {error.message}") from error
            if cause is Cause.NO_SUCH_MODEL:
                raise InvalidConfig(f"the grader can't ask its model {model}: {error.message}") from error
            raise NoGrade(MODEL_SERVER, f"{model}: {error.message} ({error.http_status})") from error

    def _is_cancelled(self) -> bool:
        """A stop that can wait is followed at the step's end, which these rewards lead to."""
        return self._context.stop is not None and self._context.stop.kind == "cancel"

    def _measure(self, found: Sequence[Graded], log_metric: Callable[[str, float], None]) -> None:
        """The same names on every rank, as trl wants it."""
        if self._asks or any(isinstance(each, Python) for each in singles(self._grader)):
            log_metric(metrics.GRADER_ERRORS, sum(bool(_failed(each)) for each in found) / len(found))
        for name in self._parts:
            mean = sum(each.sub_rewards[name] or 0.0 for each in found) / len(found)
            log_metric(metrics.OF_GRADERS + name, mean)


class _Failures:
    """Those of one step, added by several threads."""

    def __init__(self, completions: int) -> None:
        self.said = ""  # of the first one
        self._completions = completions
        self._count = 0
        self._lock = threading.Lock()

    def add(self, graded: Graded) -> None:
        """Raises RewardFailed once they are too many, without waiting for the other completions."""
        errors = _failed(graded)
        if not errors:
            return
        with self._lock:
            self._count += 1
            self.said = (
                self.said or f"the grader {errors[0].grader} gave no reward for a completion: {errors[0].message}"
            )
            if self._count > MOST_FAILED * self._completions:
                raise RewardFailed(
                    f"{self.said}; nor for most of a rank's {self._completions} completions of this step"
                )


def _failed(graded: Graded) -> list[GradeError]:
    """Its errors. A completion that is not of the form that the grader reads is worth 0, which is none."""
    return [error for error in graded.errors if error.kind != SAMPLE_PARSE]


def _tools(completion: Completion) -> list[Any]:
    return [] if isinstance(completion, str) else list(completion[-1].get("tool_calls") or [])
