"""The columns that a task adds to its output."""

from app.domain.spec.inference import EMBED, GENERATE, LOGLIKELIHOOD, REQUESTS, SCORE, InferenceTask
from workers.trainers.failures import InvalidConfig

_COLUMNS = {
    LOGLIKELIHOOD: ("logprob", "tokens", "perplexity", "is_greedy"),
    SCORE: ("score", "label", "probabilities"),
    EMBED: ("embedding",),
    REQUESTS: ("line", "custom_id", "response"),
}


def columns_of(task: InferenceTask) -> tuple[str, ...]:
    """In the order of the output. Raises InvalidConfig for an unknown type."""
    if task.type != GENERATE:
        if task.type not in _COLUMNS:
            raise InvalidConfig(f"task.type {task.type!r} is not one of {', '.join((GENERATE, *_COLUMNS))}")
        return _COLUMNS[task.type]
    if task.n > 1:
        return ("outputs",)
    return ("output", "finish_reason", "logprobs") if task.logprobs else ("output", "finish_reason")
