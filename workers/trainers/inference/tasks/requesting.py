"""Task requests: each record is a request to one of OpenAI's endpoints, answered as a replica answers it.

Nothing of an answer is drawn or depends on the time, so that an interrupted job makes the same bytes again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from app.domain.spec.inference import InferenceTask
from workers.rank.run_context import RunSpec
from workers.trainers.data.shapes import Record
from workers.trainers.failures import DataInvalid, InvalidConfig
from workers.trainers.inference.engine.interface import Engine, RequestRefused
from workers.trainers.inference.engine.transformers_engine import TransformersEngine
from workers.trainers.inference.rows import Answer
from workers.trainers.inference.section import inference_of
from workers.trainers.inference.serving.openai.chance import Chance, derived
from workers.trainers.inference.serving.openai.problems import INVALID, AnswerProblem
from workers.trainers.inference.serving.openai.served_model import served_model
from workers.trainers.inference.tasks.request_answers import AnsweredRequest, TextAnswers, VectorAnswers
from workers.trainers.inference.tasks.request_bodies import Body, check_body
from workers.trainers.inference.tasks.task import Interrupted, Task

CUSTOM_ID = "custom_id"
_METHOD = "POST"
Prepared = TypeVar("Prepared")
# What bodies raise that are none of their endpoint's, deeper than they are checked.
_REFUSALS = (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError)


class Answers(Protocol[Prepared]):
    """How the bodies of an endpoint are answered."""

    def prepare(self, body: Body, chance: Chance) -> Prepared:
        """What the engine is asked. Raises AnswerProblem."""

    def answered(self, prepared: Sequence[Prepared], interrupted: Interrupted) -> list[AnsweredRequest | AnswerProblem]:
        """In one call of the engine. Raises Interrupted."""


@dataclass(frozen=True)
class RecordRequest(Generic[Prepared]):
    """``prepared`` None: there is a ``problem``."""

    id: str
    prepared: Prepared | None = None
    problem: AnswerProblem | None = None


class Requesting(Generic[Prepared]):
    """Column ``response``: status, ID of the request, and the body, which for a refused request is its error."""

    def __init__(self, task: InferenceTask, answers: Answers[Prepared]) -> None:
        self._task = task
        self._answers = answers

    def request(self, index: int, record: Record) -> RecordRequest[Prepared]:
        """Raises DataInvalid for a record that is no request."""
        body = self._body(record)
        chance = derived(f"{self._task.seed}/{self._task.only_model}/{index}", self._task.created)
        name = f"req_{chance.id}"
        try:
            check_body(self._task.endpoint, body)
            return RecordRequest(name, self._answers.prepare(body, chance))
        except AnswerProblem as problem:
            return RecordRequest(name, problem=problem)
        except _REFUSALS as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            return RecordRequest(name, problem=AnswerProblem(f"the body is none of {self._task.endpoint}: {reason}"))

    def answers(
        self, requests: Sequence[RecordRequest[Prepared]], interrupted: Interrupted
    ) -> list[Answer | RequestRefused]:
        prepared = [each.prepared for each in requests if each.prepared is not None]
        found = iter(self._answers.answered(prepared, interrupted) if prepared else ())
        return [_answer(each.id, each.problem or next(found)) for each in requests]

    def _body(self, record: Record) -> Body:
        if not isinstance(record.get(CUSTOM_ID), str):
            raise DataInvalid(f"the request has no {CUSTOM_ID}; give it a text")
        for name, wanted in (("method", _METHOD), ("url", self._task.endpoint)):
            if record.get(name) != wanted:
                raise DataInvalid(f"{name} is {record.get(name)!r:.100}; in this job it is {wanted!r}")
        body = record.get("body")
        if not isinstance(body, dict):
            raise DataInvalid("body is no object; give it that of a single request")
        return body


def requesting(spec: RunSpec, engine: Engine) -> Task[Any]:
    """Raises InvalidConfig."""
    if not isinstance(engine, TransformersEngine):
        raise InvalidConfig("training_config.framework.type: this engine answers no requests; use TRANSFORMERS")
    task, model = inference_of(spec).task, served_model(spec, engine)
    if task.makes_vectors:
        return Requesting(task, VectorAnswers(model))
    return Requesting(task, TextAnswers(model, task.endpoint))


def _answer(name: str, found: AnsweredRequest | AnswerProblem) -> Answer:
    if isinstance(found, AnswerProblem):
        refused = RequestRefused(code=(found.code or INVALID).upper(), message=found.message)
        return Answer(values=_response(name, found.http_status, found.body()), refused=refused)
    return Answer(
        values=_response(name, 200, found.body),
        prompt_tokens=found.prompt_tokens,
        completion_tokens=found.completion_tokens,
    )


def _response(name: str, status: int, body: Body) -> dict[str, Any]:
    return {"response": {"status_code": status, "request_id": name, "body": body}}
