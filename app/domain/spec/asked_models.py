"""The models that a job may ask through the gateway: those that its document names, and no others."""

from collections.abc import Iterator, Mapping

from app.domain.spec.model import JobDocument

JUDGE = "judge"  # the benchmark
_OF_JUDGE = ("service", "model")  # its parameters
_GRADER = "grader"  # a parameter of benchmarks


def asked_models(document: JobDocument) -> frozenset[str]:
    """Names, as requests to the gateway say them; empty for most jobs."""
    return frozenset(_named(document))


def models_of_grader(grader: object) -> Iterator[str]:
    """The models that a grader, or those within it, ask."""
    if not isinstance(grader, Mapping):
        return
    if _is_name(model := grader.get("model")):
        yield str(model)
    inner = grader.get("graders")
    for each in (inner, *inner.values()) if isinstance(inner, Mapping) else ():  # by their names, or one alone
        yield from models_of_grader(each)


def _named(document: JobDocument) -> Iterator[str]:
    yield from models_of_grader(document.training_config.grader)
    inference = document.inference
    if inference is None:
        return
    if inference.model.service is not None:
        yield inference.model.service
    for benchmark in inference.benchmarks:
        yield from models_of_grader(benchmark.parameters.get(_GRADER))
        if benchmark.name == JUDGE:
            named = (benchmark.parameters.get(name) for name in _OF_JUDGE)
            yield from (str(each) for each in named if _is_name(each))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""
