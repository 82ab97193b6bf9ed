"""How benchmarks that generate draw their answers: the parameters, and the limits that batches have, too."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.errors import BadSpec
from app.domain.evaluations.parameters import BadBenchmark, BenchmarkParameter
from app.domain.spec.inference import LONGEST_ANSWER, InferenceTask
from app.domain.spec.rules.inference import (
    HOTTEST,
    LARGEST_PENALTY,
    MOST_ANSWER_TOKENS,
    MOST_TOP_K,
    check_sampling,
    without_effect,
)

SAMPLING = (
    BenchmarkParameter(
        "max_new_tokens", "int", LONGEST_ANSWER, "Where an answer is cut off, in tokens", 1, MOST_ANSWER_TOKENS
    ),
    BenchmarkParameter(
        "temperature", "float", 0.0, "Answers are drawn from logits divided by it; 0 = likeliest token", 0, HOTTEST
    ),
    BenchmarkParameter(
        "top_p", "float", 1.0, "Only from the likeliest tokens that have this probability together", 0, 1
    ),
    BenchmarkParameter("top_k", "int", 0, "Only from this many of the likeliest tokens; 0 = from all", 0, MOST_TOP_K),
    BenchmarkParameter(
        "min_p", "float", 0.0, "Only from tokens with this share of the likeliest one's probability", 0, 1
    ),
    BenchmarkParameter(
        "repetition_penalty", "float", 1.0, "Divides the logits of tokens that were there before", 0, LARGEST_PENALTY
    ),
    BenchmarkParameter("stop", "texts", (), "Texts that end an answer, which does not include them"),
)
_NAMES = tuple(each.name for each in SAMPLING)
_FIELD = "parameters"


def check(parameters: Mapping[str, Any]) -> None:
    """Refuse sampling that leaves no token, as for batches; each value is of its kind. Raises BadBenchmark."""
    try:
        check_sampling(_task(parameters), _FIELD)
    except BadSpec as error:
        raise BadBenchmark(error.field or _FIELD, error.message) from error


def warnings(parameters: Mapping[str, Any], field: str) -> Sequence[str]:
    """``field.parameters.NAME: reason`` of each parameter that has no effect beside the others."""
    return without_effect(_task(parameters), f"{field}.{_FIELD}")


def _task(parameters: Mapping[str, Any]) -> InferenceTask:
    return InferenceTask.from_json({name: value for name, value in parameters.items() if name in _NAMES})
