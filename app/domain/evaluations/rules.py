"""Rules of the benchmarks in a document: known, complete, and of something that the model can do."""

from collections.abc import Iterator, Sequence

from app.domain.errors import BadSpec
from app.domain.evaluations import catalog, requirements, sampling
from app.domain.evaluations.catalog import PREFERENCE, BadBenchmark
from app.domain.spec.document import is_custom, method
from app.domain.spec.hyperparameters.rlhf import REWARD_METHOD
from app.domain.spec.inference import Benchmark, Requirement
from app.domain.spec.model import END, JobDocument, PlannedBenchmark
from app.domain.spec.rules.evaluations import FIELD

OF_EVALUATIONS, REQUIRE = "benchmarks", "require"


def refuse_bad_benchmarks(document: JobDocument) -> None:
    """Check the benchmarks of an evaluation, or those that a training plans. Raises BadSpec."""
    for field, benchmarks in benchmarks_of(document):
        try:
            catalog.check_all(benchmarks)
        except BadBenchmark as error:
            raise BadSpec(error.message, field=f"{field}.{error.field}") from error
    for field, required, benchmarks in required_of(document):
        try:
            requirements.check(required, benchmarks)
        except BadBenchmark as error:
            raise BadSpec(error.message, field=f"{field}.{error.field}") from error
    for i, planned in enumerate(document.training_config.evaluations):
        refuse_unfit(document, "the training", planned.benchmarks, f"{FIELD}.{i}.benchmarks")
    _refuse_measured_twice(document)
    _refuse_what_no_service_answers(document)


def _refuse_what_no_service_answers(document: JobDocument) -> None:
    """A service gives texts, and neither likelihoods nor scores."""
    inference = document.inference
    if inference is None or inference.model.service is None:
        return
    for number, benchmark in enumerate(inference.benchmarks):
        if not catalog.find(benchmark.name).generates:
            raise BadSpec(
                f"{benchmark.name} needs the model itself, and the service {inference.model.service} gives texts "
                "alone; name the model by job_id or model_uri",
                field=f"{OF_EVALUATIONS}.{number}.name",
            )


def _refuse_measured_twice(document: JobDocument) -> None:
    """Two plans of one checkpoint, or of the result, with one benchmark would replace each other's points."""
    plans: dict[tuple[bool, str], int] = {}
    for i, planned in enumerate(document.training_config.evaluations):
        for j, benchmark in enumerate(planned.benchmarks):
            label = catalog.label(benchmark.name)
            # Each checkpoint that is the best so far is a checkpoint, too.
            first = plans.setdefault((planned.on == END, label), i)
            if first != i:
                raise BadSpec(
                    f"evaluations {first} and {i} both measure {label} of the same "
                    f"{'result' if planned.on == END else 'checkpoints'}, and one value would replace the other in "
                    "the metrics of this job; leave it out of one of them",
                    field=f"{FIELD}.{i}.{OF_EVALUATIONS}.{j}.name",
                )


def refuse_unfit(
    trained: JobDocument, noun: str, benchmarks: Sequence[PlannedBenchmark], field: str = OF_EVALUATIONS
) -> None:
    """Raise BadSpec for a benchmark of text when what was trained is a reward model; ``noun``: who trained it."""
    if is_custom(trained) or method(trained) != REWARD_METHOD:
        return
    for number, benchmark in enumerate(benchmarks):
        if benchmark.name != PREFERENCE:
            raise BadSpec(
                f"{noun} makes a reward model, which gives numbers instead of text, and {benchmark.name} needs text; "
                f"measure {PREFERENCE}",
                field=f"{field}.{number}.name",
            )


def without_effect(document: JobDocument) -> list[str]:
    """``FIELD.N.parameters.NAME: reason`` for parameters of checked benchmarks without effect beside the others."""
    return [
        warning
        for field, benchmarks in benchmarks_of(document)
        for number, each in enumerate(benchmarks)
        for warning in sampling.warnings(each.parameters, f"{field}.{number}")
    ]


def benchmarks_of(document: JobDocument) -> Iterator[tuple[str, Sequence[Benchmark]]]:
    """(field, benchmarks) of the evaluation that the document is, and of those that it plans."""
    if document.inference is not None and document.inference.benchmarks:
        yield OF_EVALUATIONS, document.inference.benchmarks
    for i, planned in enumerate(document.training_config.evaluations):
        yield f"{FIELD}.{i}.{OF_EVALUATIONS}", [_numbered(j, each) for j, each in enumerate(planned.benchmarks)]


def required_of(document: JobDocument) -> Iterator[tuple[str, Sequence[Requirement], Sequence[Benchmark]]]:
    """(field, requirements, benchmarks) of the evaluation that the document is, and of those that it plans."""
    sections = [each.require for each in document.training_config.evaluations]
    if document.inference is not None and document.inference.benchmarks:
        sections.insert(0, document.inference.require)
    for (field, benchmarks), required in zip(benchmarks_of(document), sections, strict=True):
        if required:
            yield f"{field.removesuffix(OF_EVALUATIONS)}{REQUIRE}", required, benchmarks


def _numbered(number: int, planned: PlannedBenchmark) -> Benchmark:
    return Benchmark(
        name=planned.name,
        dataset=number if planned.dataset is not None else None,
        num_samples=planned.num_samples,
        parameters=planned.parameters,
    )
