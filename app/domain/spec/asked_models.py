"""The models that a job may ask through the gateway: those that its document names, and no others."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.domain.errors import InvalidRequest
from app.domain.graders.document import models_of, parse
from app.domain.spec.model import JobDocument

JUDGE = "judge"  # the benchmark
_OF_JUDGE = ("service", "model")  # its parameters


def asked_models(document: JobDocument) -> frozenset[str]:
    """Names, as requests to the gateway say them; empty for most jobs."""
    return frozenset(_named(document))


def _named(document: JobDocument) -> Iterator[str]:
    if document.training_config.grader:
        yield from _of_grader(document.training_config.grader)
    inference = document.inference
    if inference is None:
        return
    if inference.model.service is not None:
        yield inference.model.service
    for benchmark in inference.benchmarks:
        if benchmark.name == JUDGE:
            named = (benchmark.parameters.get(name) for name in _OF_JUDGE)
            yield from (str(each) for each in named if _is_name(each))


def _of_grader(grader: Mapping[str, Any]) -> frozenset[str]:
    try:
        return models_of(parse(grader))
    except InvalidRequest:
        return frozenset()  # the job says what is wrong with it


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""
