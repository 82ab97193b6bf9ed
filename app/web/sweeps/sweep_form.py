"""The forms to create and to fork a sweep: their fields, and the documents that they begin with."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from app.domain.spec.data.splits import BadSplit
from app.domain.spec.document import evaluates, is_custom, method
from app.domain.spec.metric_goals import goal_of
from app.domain.spec.metrics import EVAL_PREFIX
from app.domain.spec.model import JobDocument
from app.domain.spec.rules.output import best_metrics
from app.schemas.tuning.sweeps import CreateSweepSchema, ObjectiveSchema
from app.web import job_form
from app.web.drafts import Start
from app.web.job_form import FieldGroup, FormField, field_at
from app.web.sweeps import sweep_rows
from app.web.sweeps.sweep_rows import PARAMETERS

_LONGEST_NAME = 110  # of a job whose name that of the sweep begins with: more follows
_FIRST_PARAMETER = "learning_rate"
_OF_JOB = (
    "training_config.training_type",
    "training_config.framework.type",
    "training_config.base_model.model_id",
    "resource_config.gpu_count",
    "resource_config.gpu_type",
)
_MORE_OF_JOB = (
    "training_config.framework.custom_script_path",
    "data_config.max_seq_length",
    "data_config.batch_size",
    "data_config.validation_split",
    "scheduling_config.queue",
)
_TITLES = {
    "method.name": "Method",
    "early_stopping.name": "Rule",
    "early_stopping.min": "First rung",
    "early_stopping.max": "Last rung",
    "budget.max_trials": "Most trials",
    "budget.max_seconds": "Most seconds",
    "budget.max_device_hours": "Most device-hours",
    "budget.patience": "Trials without a better one",
}
_SEARCH = ("method.name", "budget.max_trials")
_STOPPING = ("name", "min", "max", "unit", "reduction", "losers")
_MORE = (
    "labels",
    "budget.max_device_hours",
    "budget.max_seconds",
    "budget.target",
    "budget.patience",
    "method.seed",
    "method.startup_trials",
    "method.population",
    "method.interval",
    "keep.checkpoints_of_best",
)
# A condition may have commas of no list, so each has a line.
_REQUIRE = FormField(
    path="require",
    kind="lines",
    meaning="One comparison per line, such as lora_r * 2 <= 64; all values must meet all of them",
    title="Conditions",
)
_PARALLEL = FormField(
    path="budget.parallel_trials",
    kind="whole",
    meaning="Most at a time; free: as many as can start without delaying another job",
    default="1",
    title="Trials at a time",
)


def groups(metrics: Sequence[str]) -> list[FieldGroup]:
    """The fields beside the rows; ``metrics`` are what the objective is likely to be."""
    metric = replace(field_at("metric", ObjectiveSchema).below("objective"), suggestions=tuple(metrics))
    others = [field_at(name, ObjectiveSchema).below("objective") for name in ("goal", "select")]
    return [
        FieldGroup(title="Sweep", fields=[_field("name")]),
        FieldGroup(title="Job of every trial", fields=_of_job(_OF_JOB)),
        FieldGroup(title="Parameters", fields=[_REQUIRE]),
        FieldGroup(title="Objective", fields=[metric, *others]),
        FieldGroup(title="Search", fields=[*map(_field, _SEARCH), _PARALLEL]),
    ]


def more_groups() -> list[FieldGroup]:
    return [
        _early_stopping(),
        FieldGroup(title="More of the search", fields=list(map(_field, _MORE))),
        FieldGroup(title="More of the job", fields=_of_job(_MORE_OF_JOB)),
    ]


def groups_of_fork() -> list[FieldGroup]:
    """What a fork may change."""
    return [group for group in groups(()) if group.title in ("Sweep", "Parameters", "Search")]


def more_groups_of_fork() -> list[FieldGroup]:
    fields = [_field(path) for path in _MORE if path != "keep.checkpoints_of_best"]
    return [_early_stopping(), FieldGroup(title="More of the search", fields=fields)]


def metrics_of(start: Start) -> list[str]:
    """What the job has measured, or its training type measures; the likeliest objective is the first."""
    document = JobDocument.from_json(start.document)
    measured = [*start.job.job.latest_metrics] if start.job is not None else []
    known = [] if is_custom(document) else [*best_metrics(method(document))]
    if not _is_evaluated(document):
        known = [name for name in known if not name.startswith(EVAL_PREFIX)]
    names = [*dict.fromkeys([*known, *sorted(measured)])] or ["loss"]
    wanted = document.output_config.checkpoint.metric_for_best_model
    likely = (wanted, *(f"{prefix}{name}" for name in ("reward", "loss") for prefix in (EVAL_PREFIX, "")))
    return [
        *sorted(names, key=lambda name: likely.index(name) if name in likely else len(likely)),
        *sweep_rows.benchmark_metrics(),
    ]


def document_of(start: Start, metrics: Sequence[str]) -> dict[str, Any]:
    """The sweep to begin with: of the job, over its learning rate where it has one."""
    job = {name: part for name, part in start.document.items() if name not in ("name", "labels")}
    training = job.get("training_config") or {}
    own = (training.get("hyperparameters") or {}).get(_FIRST_PARAMETER)
    framework = (training.get("framework") or {}).get("type", "")
    known = job_form.hyperparameters_of(training.get("training_type") or "", framework)
    parameters = {each["name"]: sweep_rows.start_of(each, own) for each in known if each["name"] == _FIRST_PARAMETER}
    name = start.job.job.name if start.job is not None else start.document.get("name", "my")
    return {
        "name": f"{name[:_LONGEST_NAME]}-sweep" if start.origin else "my-sweep",
        "job": job,
        PARAMETERS: parameters,
        "objective": {"metric": metrics[0], "goal": goal_of(metrics[0]) or "minimize"},
        "method": {"name": "tpe"},
        "budget": {"max_trials": 20, "parallel_trials": 2},
    }


def _early_stopping() -> FieldGroup:
    return FieldGroup(title="Early stopping", fields=[_field(f"early_stopping.{name}") for name in _STOPPING])


@cache
def _field(path: str) -> FormField:
    return field_at(path, CreateSweepSchema, title=_TITLES.get(path, ""))


def _of_job(paths: Sequence[str]) -> list[FormField]:
    return [field_at(path).below("job") for path in paths]


def _is_evaluated(document: JobDocument) -> bool:
    try:
        return evaluates(document)
    except BadSplit:
        return False
