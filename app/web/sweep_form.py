"""The form to create a sweep: its fields, a row for each parameter, and the document that it begins with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from app.domain.spec.data.splits import BadSplit
from app.domain.spec.document import evaluates, is_custom, method
from app.domain.spec.metric_goals import goal_of
from app.domain.spec.metrics import EVAL_PREFIX
from app.domain.spec.model import JobDocument
from app.domain.spec.rules.output import best_metrics
from app.schemas.sweeps import CreateSweepSchema, ObjectiveSchema
from app.web import job_form
from app.web.drafts import Start
from app.web.job_form import FormField, Group, field_at

PARAMETERS = "parameters"
_KINDS = ("double", "int", "categorical", "bool")
_SCALES = ("linear", "log")
_LONGEST_NAME = 110  # of a job whose name that of the sweep begins with: more follows
_FIRST_PARAMETER = "learning_rate"
_OF_JOB = (
    "training_config.training_type", "training_config.framework.type", "training_config.base_model.model_id",
    "resource_config.gpu_count", "resource_config.gpu_type",
)  # fmt: skip
_MORE_OF_JOB = (
    "training_config.framework.custom_script_path", "data_config.max_seq_length", "data_config.batch_size",
    "data_config.validation_split", "scheduling_config.queue",
)  # fmt: skip
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
    "labels", "budget.max_device_hours", "budget.max_seconds", "budget.target", "budget.patience", "method.seed",
    "method.startup_trials", "method.population", "method.interval", "keep.checkpoints_of_best",
)  # fmt: skip
_PARALLEL = FormField(
    path="budget.parallel_trials",
    kind="whole",
    meaning="Most at a time; free: as many as can start without delaying another job",
    default="1",
    title="Trials at a time",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one parameter may be."""

    name: str
    meaning: str
    fields: Sequence[FormField]


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A hyperparameter of the method, and what it may be to begin with."""

    name: str
    meaning: str
    start: Mapping[str, Any]


def groups(metrics: Sequence[str]) -> list[Group]:
    """The fields beside the parameters; ``metrics`` are what the objective is likely to be."""
    metric = field_at("metric", ObjectiveSchema).below("objective")
    suggested = FormField(path=metric.path, kind="text", meaning=metric.meaning, suggestions=tuple(metrics))
    return [
        Group(title="Sweep", fields=[_field("name")]),
        Group(title="Job of every trial", fields=_of_job(_OF_JOB)),
        Group(title="Objective", fields=[suggested, field_at("goal", ObjectiveSchema).below("objective")]),
        Group(title="Search", fields=[*map(_field, _SEARCH), _PARALLEL]),
    ]


def more_groups() -> list[Group]:
    return [
        Group(title="Early stopping", fields=[_field(f"early_stopping.{name}") for name in _STOPPING]),
        Group(title="More of the search", fields=list(map(_field, _MORE))),
        Group(title="More of the job", fields=_of_job(_MORE_OF_JOB)),
    ]


def rows(names: Sequence[str], training_type: str, framework: str) -> list[Row]:
    meanings = {each.name: each.meaning for each in suggestions(training_type, framework)}
    return [Row(name=name, meaning=meanings.get(name, ""), fields=list(_row(name))) for name in names]


def suggestions(training_type: str, framework: str) -> list[Suggestion]:
    """What a job of this method may vary; any texts may be asked for."""
    return [
        Suggestion(name=each["name"], meaning=each["meaning"], start=_start_of(each, None))
        for each in job_form.hyperparameters_of(training_type, framework)
    ]


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
    return sorted(names, key=lambda name: likely.index(name) if name in likely else len(likely))


def document_of(start: Start, metrics: Sequence[str]) -> dict[str, Any]:
    """The sweep to begin with: of the job, over its learning rate where it has one."""
    job = {name: part for name, part in start.document.items() if name not in ("name", "labels")}
    training = job.get("training_config") or {}
    own = (training.get("hyperparameters") or {}).get(_FIRST_PARAMETER)
    framework = (training.get("framework") or {}).get("type", "")
    known = job_form.hyperparameters_of(training.get("training_type") or "", framework)
    parameters = {each["name"]: _start_of(each, own) for each in known if each["name"] == _FIRST_PARAMETER}
    name = start.job.job.name if start.job is not None else start.document.get("name", "my")
    return {
        "name": f"{name[:_LONGEST_NAME]}-sweep" if start.origin else "my-sweep",
        "job": job,
        PARAMETERS: parameters,
        "objective": {"metric": metrics[0], "goal": goal_of(metrics[0]) or "minimize"},
        "method": {"name": "tpe"},
        "budget": {"max_trials": 20, "parallel_trials": 2},
    }


@cache
def _field(path: str) -> FormField:
    return field_at(path, CreateSweepSchema, title=_TITLES.get(path, ""))


def _of_job(paths: Sequence[str]) -> list[FormField]:
    return [field_at(path).below("job") for path in paths]


def _row(name: str) -> Iterator[FormField]:
    at = f"{PARAMETERS}.{name}"
    yield FormField(path=f"{at}.type", kind="choice", meaning="double: any number", choices=_KINDS, title="Kind")
    yield FormField(path=f"{at}.min", kind="number", meaning="Of a range", title="Lowest")
    yield FormField(path=f"{at}.max", kind="number", meaning="Of a range", title="Highest")
    scale = "log: each power of ten has the same chance"
    yield FormField(path=f"{at}.scale", kind="choice", meaning=scale, choices=_SCALES, default="linear", title="Scale")
    yield FormField(path=f"{at}.values", kind="values", meaning="Instead of a range, with commas", title="Values")


def _start_of(entry: Mapping[str, Any], own: object) -> dict[str, Any]:
    """What a hyperparameter may be to begin with: around its own value or the default, within the trainer's range."""
    if entry["type"] == "bool":
        return {"type": "bool"}
    if entry["choices"]:
        return {"type": "categorical", "values": list(entry["choices"])}
    if entry["type"] not in ("int", "float"):
        return {"type": "categorical", "values": []}
    kind, factor = ("int", 2) if entry["type"] == "int" else ("double", 10)
    centre = _number(own) or _number(entry["default"]) or 0.0
    if centre <= 0:
        return {"type": kind}
    lowest, highest = centre / factor, centre * factor
    if entry["minimum"] is not None:
        lowest = max(lowest, entry["minimum"])
    if entry["maximum"] is not None:
        highest = min(highest, entry["maximum"])
    if kind == "int":
        return {"type": kind, "min": max(1, round(lowest)), "max": round(highest)}
    return {"type": kind, "min": float(f"{lowest:.3g}"), "max": float(f"{highest:.3g}"), "scale": "log"}


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, str | int | float) else None
    except ValueError:
        return None


def _is_evaluated(document: JobDocument) -> bool:
    try:
        return evaluates(document)
    except BadSplit:
        return False
