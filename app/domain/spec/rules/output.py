"""Rules of ``output_config``: export format, destination, and the metric for the best checkpoint."""

import re

from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.spec import metrics
from app.domain.spec.document import evaluates, is_custom, method, trainer, typed_hyperparameters
from app.domain.spec.hyperparameters import parsing
from app.domain.spec.hyperparameters.rlhf import REWARD_METHOD
from app.domain.spec.metrics import EVAL_PREFIX
from app.domain.spec.model import JobDocument
from app.domain.suggestions import did_you_mean

SAFETENSORS, PYTORCH, GGUF, ONNX = "safetensors", "pytorch", "gguf", "onnx"
_WHOLE = (SAFETENSORS, PYTORCH, GGUF, ONNX)  # forms of a whole model
EXPORT_FORMATS = (*_WHOLE, "merged", "adapter")
_CONVERTED = (PYTORCH, GGUF, ONNX)
LORA_TYPES = ("LORA", "QLORA")
_ADAPTERS = f"adapters, which {' and '.join(LORA_TYPES)} train, and other types with {parsing.USE_LORA}"

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_REPOSITORY = re.compile(rf"{_NAME}/{_NAME}")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_BEST = "output_config.checkpoint.metric_for_best_model"


def export_formats(framework: str, training_type: str) -> tuple[str, ...]:
    """Valid values of ``export_format``; the first is the default, which for adapter training is the adapter."""
    table = parsing.TABLES.get((framework, training_type), ())
    merges = framework != "CUSTOM" and training_type in LORA_TYPES
    return EXPORT_FORMATS if merges or any(item.name == parsing.USE_LORA for item in table) else _WHOLE


def trains_adapter(document: JobDocument) -> bool:
    """Whether the job trains an adapter instead of the model's weights. Raises InvalidHyperparameter."""
    if is_custom(document):
        return False
    return trainer(document)[1] in LORA_TYPES or bool(typed_hyperparameters(document).get(parsing.USE_LORA))


def export_is_possible(document: JobDocument) -> None:
    output, field = document.output_config, "output_config.export_format"
    form, merge, possible = (
        output.export_format,
        output.merge_lora,
        EXPORT_FORMATS if trains_adapter(document) else _WHOLE,
    )
    if form and form not in EXPORT_FORMATS:
        known = ", ".join(EXPORT_FORMATS) + did_you_mean(form, EXPORT_FORMATS)
        raise BadSpec(f"unknown export_format {form!r}; known: {known}", field=field)
    if is_custom(document) and (merge or (form and form != SAFETENSORS)):
        name = "merge_lora" if merge else "export_format"
        raise BadSpec(
            f"a custom script writes its model itself, in the form it likes; leave {name} out",
            field=f"output_config.{name}",
        )
    if form and form not in possible:
        raise BadSpec(f"export_format {form} is for {_ADAPTERS}; say safetensors, or leave it out", field=field)
    if merge and possible == _WHOLE:
        raise BadSpec(f"merge_lora is for {_ADAPTERS}; leave it out", field="output_config.merge_lora")
    if merge and form == "adapter":
        raise BadSpec(
            "merge_lora asks for the merged model, export_format for the adapter; leave one of them out",
            field="output_config.merge_lora",
        )


def form_fits_the_model(document: JobDocument) -> None:
    output, field = document.output_config, "output_config.export_format"
    form = output.export_format
    if form in _CONVERTED and trains_adapter(document) and not output.merge_lora:
        raise BadSpec(
            f"export_format {form} is a form of a whole model, and what is trained is an adapter; set merge_lora to "
            "true, or leave export_format out",
            field=field,
        )
    if form in (GGUF, ONNX) and method(document) == REWARD_METHOD:
        raise NotSupportedYet(
            f"{form} is for models that generate text, and a reward model does not; say {SAFETENSORS} or {PYTORCH}",
            field=field,
        )


def hub_upload_is_complete(document: JobDocument) -> None:
    output = document.output_config
    repository, token = output.hub_repo_id, output.hub_token
    if token and _TOKEN.fullmatch(token) is None:
        raise BadSpec("a token has no spaces and only ASCII characters", field="output_config.hub_token")
    if repository and not _is_repository(repository):
        raise BadSpec(
            "hub_repo_id has the form owner/name, of letters, digits and ._- with neither -- nor ..",
            field="output_config.hub_repo_id",
        )
    if output.push_to_hub:
        if not repository:
            raise BadSpec(
                "push_to_hub needs hub_repo_id, the repository to push to, as owner/name",
                field="output_config.hub_repo_id",
            )
        return
    for name in ("hub_repo_id", "hub_private"):  # a hub_token alone is taken: clients send it by habit
        if name in output.given and getattr(output, name) not in (None, ""):
            raise BadSpec(
                f"{name} has no effect without push_to_hub; set that to true, or leave {name} out",
                field=f"output_config.{name}",
            )


def _is_repository(name: str) -> bool:
    return bool(_REPOSITORY.fullmatch(name)) and "--" not in name and ".." not in name and not name.endswith(".git")


def best_metrics(method: str) -> tuple[str, ...]:
    """Valid values of ``metric_for_best_model`` for a built-in trainer."""
    return (*(EVAL_PREFIX + name for name in metrics.evaluated(method)), *metrics.trained(method))


def best_checkpoint_has_a_metric(document: JobDocument) -> None:
    checkpoint = document.output_config.checkpoint
    metric = checkpoint.metric_for_best_model
    if checkpoint.greater_is_better and not metric:
        raise BadSpec(
            "greater_is_better has no effect without metric_for_best_model; name the metric",
            field="output_config.checkpoint.greater_is_better",
        )
    if is_custom(document):
        return
    needs = "set data_config.validation_split above 0 or give a source with split validation, and leave evaluation on"
    if metric:
        known = best_metrics(method(document))
        if metric not in known:
            meant = did_you_mean(metric, known)
            raise BadSpec(f"no checkpoint has a metric {metric[:64]!r}{meant}; known: {', '.join(known)}", field=_BEST)
        if metric.startswith(EVAL_PREFIX) and not evaluates(document):
            raise BadSpec(
                f"{metric} is a metric of the evaluation; {needs}, or choose a training metric such as loss",
                field=_BEST,
            )
    elif checkpoint.resume_from_best and not evaluates(document):
        raise BadSpec(
            f"without evaluation no checkpoint is the best; {needs}, or name a training metric in "
            "metric_for_best_model",
            field="output_config.checkpoint.resume_from_best",
        )


RULES = (export_is_possible, form_fits_the_model, hub_upload_is_complete, best_checkpoint_has_a_metric)
