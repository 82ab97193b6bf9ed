"""What a job document may mean: the rules that its shape alone cannot say, each a function that raises."""

from collections.abc import Callable, Mapping
from typing import Any

from app.domain import hyperparameters
from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.locations import ReadingRules, check_model, check_source
from app.domain.not_supported import refuse_gaps

Document = Mapping[str, Any]

BUILT_IN_FORMATS = ("jsonl",)
DTYPES = ("auto", "float32", "bfloat16", "float16")
BACKENDS = ("nccl", "gloo")
VALIDATION = "validation"  # the split of sources that are not trained on
DEFAULT_SAVE_STEPS = 500

# They would change what runs beside the user's code, or which devices and files it sees.
RESERVED_VARIABLES = frozenset(
    {
        "PATH", "HOME", "USER", "SHELL", "IFS", "ENV", "BASH_ENV", "TMPDIR",
        "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONSAFEPATH", "PYTHONINSPECT", "PYTHONUSERBASE",
        "GIT_SSH_COMMAND", "GIT_SSH", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
        "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
        "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK",
        "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "HF_HUB_OFFLINE",
    }
)  # fmt: skip
RESERVED_PREFIXES = ("TRAINYARD_", "LD_", "DYLD_", "TORCHELASTIC_")


def check(document: Document, rules: ReadingRules) -> None:
    """Raise InvalidRequest, with field, rule and way out, for the first rule the document breaks."""
    for rule in RULES:
        rule(document)
    refuse_gaps(document)
    _check_locations(document, rules)


def _base_model_is_named(document: Document) -> None:
    if not document["training_config"]["base_model"]["model_id"].strip():
        raise BadSpec(
            "model_id must not be empty; name a model of the hub or a directory below one of the storage roots",
            field="training_config.base_model.model_id",
        )


def _data_is_named(document: Document) -> None:
    if not document["data_config"]["sources"]:
        raise BadSpec("sources must name at least one data source", field="data_config.sources")
    for i, source in enumerate(document["data_config"]["sources"]):
        if not source["path"].strip():
            raise BadSpec("path must not be empty", field=f"data_config.sources.{i}.path")


def _devices_are_asked_for(document: Document) -> None:
    if document["resource_config"]["gpu_count"] < 1:
        raise BadSpec(
            "gpu_count must be at least 1; to train without GPUs ask for device_type cpu, where each one is a CPU slot",
            field="resource_config.gpu_count",
        )


def _trainer_exists(document: Document) -> None:
    framework, training_type = _trainer(document)
    if hyperparameters.supported(framework, training_type):
        return
    known = ", ".join(f"{f} with {t}" for f, t in sorted(hyperparameters.TABLES))
    raise NotSupportedYet(
        f"no trainer for framework {framework} with training type {training_type}; "
        f"supported: {known}, {hyperparameters.CUSTOM} with any",
        field="training_config.training_type",
    )


def _script_belongs_to_custom(document: Document) -> None:
    framework = document["training_config"]["framework"]
    script, field = framework.get("custom_script_path"), "training_config.framework.custom_script_path"
    if framework["type"] == hyperparameters.CUSTOM and not script:
        raise BadSpec("framework CUSTOM needs custom_script_path, the script to run", field=field)
    if framework["type"] != hyperparameters.CUSTOM and script:
        raise BadSpec("custom_script_path is for framework CUSTOM only; leave it out or say CUSTOM", field=field)


def _ranks_match_devices(document: Document) -> None:
    distributed = document["training_config"]["framework"].get("distributed") or {}
    count, world_size = document["resource_config"]["gpu_count"], distributed.get("world_size")
    prefix = "training_config.framework.distributed"
    if world_size is not None and world_size != count:
        raise BadSpec(
            f"world_size is {world_size} but gpu_count is {count}; there is one rank for each device: "
            "make them equal or leave world_size out",
            field=f"{prefix}.world_size",
        )
    backend, custom = distributed.get("backend") or BACKENDS[0], _trainer(document)[0] == hyperparameters.CUSTOM
    if backend not in BACKENDS or (backend == "gloo" and not custom and _asks_for_gpus(document)):
        raise NotSupportedYet(
            f"backend {backend!r} is not supported here; leave it out: GPUs use nccl and CPU slots gloo",
            field=f"{prefix}.backend",
        )


def _dtype_is_known(document: Document) -> None:
    dtype, field = document["training_config"]["base_model"].get("dtype") or "auto", "training_config.base_model.dtype"
    if dtype not in DTYPES:
        raise BadSpec(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}", field=field)
    if dtype == "float16" and not _asks_for_gpus(document):
        raise BadSpec("float16 needs GPUs; ask for device_type cuda, or use bfloat16", field=field)


def _hyperparameters_are_known(document: Document) -> None:
    framework, training_type = _trainer(document)
    try:
        hyperparameters.parse(framework, training_type, document["training_config"]["hyperparameters"])
    except hyperparameters.InvalidHyperparameter as error:
        raise BadSpec(error.message, field=f"training_config.hyperparameters.{error.name}") from error


def _environment_leaves_the_platform_alone(document: Document) -> None:
    for name in document["training_config"]["environment"]:
        if name.upper() in RESERVED_VARIABLES or name.upper().startswith(RESERVED_PREFIXES):
            prefixes = ", ".join(f"{prefix}*" for prefix in RESERVED_PREFIXES)
            raise BadSpec(
                f"the environment variable {name} is reserved (so are {prefixes}); use another name",
                field=f"training_config.environment.{name}",
            )


def _evaluation_has_data(document: Document) -> None:
    training, data = document["training_config"], document["data_config"]
    evaluation, prefix = training.get("evaluation") or {"strategy": "no"}, "training_config.evaluation"
    if "steps" in evaluation and evaluation["strategy"] != "steps":
        raise BadSpec("steps counts only with strategy steps; leave it out or say steps", field=f"{prefix}.steps")
    if data["validation_split"] >= 1.0:
        raise BadSpec(
            "a validation_split of 1.0 leaves nothing to train on; use a smaller share",
            field="data_config.validation_split",
        )
    if _is_custom(document) or data["validation_split"] > 0:
        return
    if any(source.get("split") == VALIDATION for source in data["sources"]):
        return
    rule = "needs validation data; set data_config.validation_split above 0, or give a source with split validation"
    if evaluation["strategy"] != "no":
        raise BadSpec(f"evaluation {rule}, or say strategy no", field=f"{prefix}.strategy")
    if (document["output_config"]["checkpoint"].get("metric_for_best_model") or "").startswith("eval"):
        field = "output_config.checkpoint.metric_for_best_model"
        raise BadSpec(f"a metric of the evaluation {rule}, or choose a training metric such as loss", field=field)


def _splits_have_a_meaning(document: Document) -> None:
    """The built-in trainers read whole sources for one purpose; a script sees the splits and decides itself."""
    data = document["data_config"]
    if _is_custom(document):
        return
    for_validation = [source.get("split") == VALIDATION for source in data["sources"]]
    if all(for_validation):
        raise BadSpec(
            "every source is for validation; give at least one with split train, or without a split",
            field="data_config.sources",
        )
    if any(for_validation) and data["validation_split"] > 0:
        raise BadSpec(
            "validation_split says nothing beside sources with split validation, which are the validation data; "
            "leave one of them out",
            field="data_config.validation_split",
        )


def _best_checkpoint_has_a_metric(document: Document) -> None:
    checkpoint = document["output_config"]["checkpoint"]
    if checkpoint.get("greater_is_better") and not checkpoint.get("metric_for_best_model"):
        raise BadSpec(
            "greater_is_better says nothing without metric_for_best_model; name the metric",
            field="output_config.checkpoint.greater_is_better",
        )


def _formats_can_be_read(document: Document) -> None:
    if _is_custom(document):
        return
    for i, source in enumerate(document["data_config"]["sources"]):
        if source.get("format", BUILT_IN_FORMATS[0]) not in BUILT_IN_FORMATS:
            raise NotSupportedYet(
                f"format {source['format']} is not supported by the built-in trainers of this version; "
                f"use {', '.join(BUILT_IN_FORMATS)}",
                field=f"data_config.sources.{i}.format",
            )


def _devices_are_of_one_kind(document: Document) -> None:
    resources = document["resource_config"]
    if resources.get("device_type") != "cpu":
        return
    for name in ("gpu_type", "gpu_memory_min_mb"):
        if resources.get(name):
            raise BadSpec(
                f"{name} asks for GPUs but device_type is cpu; leave one of them out", field=f"resource_config.{name}"
            )


RULES: tuple[Callable[[Document], None], ...] = (
    _base_model_is_named,
    _data_is_named,
    _devices_are_asked_for,
    _trainer_exists,
    _script_belongs_to_custom,
    _ranks_match_devices,
    _dtype_is_known,
    _hyperparameters_are_known,
    _environment_leaves_the_platform_alone,
    _evaluation_has_data,
    _splits_have_a_meaning,
    _best_checkpoint_has_a_metric,
    _formats_can_be_read,
    _devices_are_of_one_kind,
)


def _asks_for_gpus(document: Document) -> bool:
    resources = document["resource_config"]
    return bool(resources.get("device_type") == "cuda" or resources.get("gpu_type"))


def _is_custom(document: Document) -> bool:
    return bool(document["training_config"]["framework"]["type"] == hyperparameters.CUSTOM)


def _trainer(document: Document) -> tuple[str, str]:
    training = document["training_config"]
    return training["framework"]["type"], training["training_type"]


def _check_locations(document: Document, rules: ReadingRules) -> None:
    for location, field in locations(document):
        check_one = check_model if field.startswith("training_config.base_model") else check_source
        check_one(location, rules, field=field)


def locations(document: Document) -> list[tuple[str, str]]:
    """(location, field) of everything that is read for the job."""
    training, sources = document["training_config"], document["data_config"]["sources"]
    model, framework = training["base_model"], training["framework"]
    named = [
        (model["model_id"], "training_config.base_model.model_id"),
        (model.get("tokenizer_id"), "training_config.base_model.tokenizer_id"),
        (framework.get("custom_script_path"), "training_config.framework.custom_script_path"),
        *((source["path"], f"data_config.sources.{i}.path") for i, source in enumerate(sources)),
    ]
    return [(location, field) for location, field in named if location]
