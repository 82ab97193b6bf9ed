"""The task of a job by its type."""

from collections.abc import Callable, Mapping
from typing import Any

from app.domain.spec.inference import EMBED, GENERATE, LOGLIKELIHOOD, REQUESTS, SCORE
from workers.rank.run_context import RunSpec
from workers.trainers.inference.engine.interface import Engine
from workers.trainers.inference.pooling import pooling_of
from workers.trainers.inference.section import inference_of
from workers.trainers.inference.tasks.embedding import Embedding
from workers.trainers.inference.tasks.generating import Generating
from workers.trainers.inference.tasks.measuring import Measuring
from workers.trainers.inference.tasks.requesting import requesting
from workers.trainers.inference.tasks.scoring import Scoring
from workers.trainers.inference.tasks.task import Task
from workers.trainers.inference.tokens import TaskTokens


def task_of(spec: RunSpec, engine: Engine) -> Task[Any]:
    """Raises InvalidConfig."""
    if inference_of(spec).task.type == REQUESTS:
        return requesting(spec, engine)
    tokens = TaskTokens(engine.tokenizer, spec, engine.context_length)
    return _TASKS[inference_of(spec).task.type](spec, engine, tokens)


def _generating(spec: RunSpec, engine: Engine, tokens: TaskTokens) -> Task[Any]:
    return Generating(engine, tokens, inference_of(spec).task)


def _measuring(_spec: RunSpec, engine: Engine, tokens: TaskTokens) -> Task[Any]:
    return Measuring(engine, tokens)


def _scoring(_spec: RunSpec, engine: Engine, tokens: TaskTokens) -> Task[Any]:
    return Scoring(engine, tokens)


def _embedding(spec: RunSpec, engine: Engine, tokens: TaskTokens) -> Task[Any]:
    return Embedding(engine, tokens, inference_of(spec).task.dtype, pooling_of(spec))


_TASKS: Mapping[str, Callable[[RunSpec, Engine, TaskTokens], Task[Any]]] = {
    GENERATE: _generating,
    LOGLIKELIHOOD: _measuring,
    SCORE: _scoring,
    EMBED: _embedding,
}
