"""Rules of ``training_config.evaluations``: evaluations that are made while a training runs, or when it has ended."""

from collections.abc import Iterator

from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.spec.document import benchmark_files, benchmark_judges, evaluates, is_custom
from app.domain.spec.model import BEST, CHECKPOINT, END, JobDocument
from app.domain.spec.rules.output import GGUF, ONNX, trains_adapter
from app.domain.spec.secrets import unsigned

MOST, MOST_BENCHMARKS = 16, 32
FIELD = "training_config.evaluations"
EVENTS = (END, CHECKPOINT, BEST)
_OF_USERS = ("scaidrive", "scaiatlas")  # opened with a token that only the submission has
_OWN = "submit it with POST /v1/evaluations when there is something to measure"
_NO_SECRET = f"planned evaluations read only places that need no secret of the user; {_OWN}"


def exports_adapter(document: JobDocument) -> bool:
    """Whether the result is an adapter. Raises InvalidHyperparameter."""
    output = document.output_config
    return trains_adapter(document) and not output.merge_lora and output.export_format != "merged"


def evaluations_have_a_model(document: JobDocument) -> None:
    """What is measured has to be weights that an engine loads."""
    for field, on in _planned(document):
        if is_custom(document):
            raise NotSupportedYet(
                f"what a custom script writes may be no model; leave evaluations out, and {_OWN}", field=field
            )
        form = document.output_config.export_format
        if on == END and form in (GGUF, ONNX):
            raise BadSpec(
                f"the result is exported as {form}, which no engine loads; export safetensors, or set on to "
                f"{CHECKPOINT}",
                field=f"{field}.on",
            )
        if (trains_adapter(document) if on != END else exports_adapter(document)) and _needs_secrets(document):
            raise BadSpec(
                f"the base model of the adapter is opened with secrets that no later job gets; {_OWN}", field=field
            )


def best_checkpoint_is_known(document: JobDocument) -> None:
    """A metric that is named was checked before."""
    if document.output_config.checkpoint.metric_for_best_model or evaluates(document):
        return
    for field, on in _planned(document):
        if on == BEST:
            raise BadSpec(
                "without evaluation no checkpoint is the best; set data_config.validation_split above 0 or give a "
                "source with split validation, and leave evaluation on, or name a training metric in "
                "output_config.checkpoint.metric_for_best_model",
                field=f"{field}.on",
            )


def evaluations_read_shared_places(document: JobDocument) -> None:
    """They are made without the user, whose tokens and credentials stay with the training."""
    for i, planned in enumerate(document.training_config.evaluations):
        for j, benchmark in enumerate(planned.benchmarks):
            place, field = benchmark.dataset, f"{FIELD}.{i}.benchmarks.{j}.dataset"
            if place is None:
                continue
            if not place.path.strip():
                raise BadSpec("path must not be empty", field=f"{field}.path")
            if place.credentials or _needs_user(place.path):
                raise BadSpec(_NO_SECRET, field=field)
    for location, field in (*benchmark_files(document), *benchmark_judges(document)):
        if _needs_user(location):
            raise BadSpec(_NO_SECRET, field=field)


def _planned(document: JobDocument) -> Iterator[tuple[str, str]]:
    for i, planned in enumerate(document.training_config.evaluations):
        yield f"{FIELD}.{i}", planned.on


def _needs_secrets(document: JobDocument) -> bool:
    base = document.training_config.base_model
    return bool(base.credentials) or _scheme(base.model_id) in _OF_USERS


def _needs_user(location: str) -> bool:
    return _scheme(location) in _OF_USERS or unsigned(location) != location


def _scheme(location: str) -> str:
    return location.partition("://")[0].lower()


RULES = (evaluations_have_a_model, best_checkpoint_is_known, evaluations_read_shared_places)
