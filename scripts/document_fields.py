"""The tables of the fields of job documents and sweeps in docs/reference/, from the schemas that check them."""

import re
from typing import Any

from marshmallow import Schema, fields, missing, validate

from app.schemas.evaluations import CreateEvaluationSchema, EvaluationDataSchema
from app.schemas.inference import (
    InferenceOutputSchema,
    InferenceTaskSchema,
    ModelReferenceSchema,
    OnRecordErrorSchema,
    RecordsSchema,
    SubmitInferenceSchema,
)
from app.schemas.interactive import NewSessionSchema
from app.schemas.spec.benchmarks import BenchmarkSchema, DatasetField, PlannedEvaluationSchema, RequirementSchema
from app.schemas.spec.data_config import DataConfigSchema, FilterSchema, PreprocessSchema, SamplingSchema, SourceSchema
from app.schemas.spec.interactive_config import InteractiveConfigSchema, PortSchema, ReadinessProbeSchema
from app.schemas.spec.output_config import CheckpointConfigSchema, OutputConfigSchema
from app.schemas.spec.packages import PackagesSchema
from app.schemas.spec.resource_config import ResourceConfigSchema
from app.schemas.spec.scheduling_config import SchedulingConfigSchema
from app.schemas.spec.tasks import AffinitySchema, RoleResourcesSchema, RoleSchema, RoleTrainingSchema
from app.schemas.spec.tracking import TrackerSchema
from app.schemas.spec.training_config import (
    BaseModelSchema,
    DistributedSchema,
    EvaluationSchema,
    FrameworkSchema,
    HaltAtSchema,
    OnDivergenceSchema,
    TrainingConfigSchema,
)
from app.schemas.strict_fields import (
    Choice,
    Flag,
    FreeObject,
    ModelDefinition,
    Number,
    OneOrSeveral,
    Text,
    TextMap,
    Whole,
)
from app.schemas.tuning.sweeps import (
    BudgetSchema,
    ConstraintSchema,
    CreateSweepSchema,
    EarlyStoppingSchema,
    FailedTrialsSchema,
    KeepSchema,
    MethodSchema,
    Objectives,
    ObjectiveSchema,
    ParallelField,
    WarmStartSchema,
)

# A limit beyond these stops typing errors only; it would tell a reader nothing.
_MANY = 2**24
_KINDS: tuple[tuple[type[fields.Field[Any]], str], ...] = (
    (Flag, "true or false"),
    (Whole, "whole number"),
    (Number, "number"),
    (TextMap, "object of texts"),
    (FreeObject, "object"),
    (ModelDefinition, "true, or object"),
    (DatasetField, "text, or object"),
    (fields.Nested, "object"),
    (Objectives, "object, or list of objects"),
    (ParallelField, "whole number, or `free`"),
    (OneOrSeveral, "text, or list of texts"),
    (Text, "text"),
    (fields.String, "text"),
)


# The parts of a job document and of a sweep, each with a table of its fields.
SECTIONS: dict[str, type[Schema]] = {
    "training_config": TrainingConfigSchema,
    "base_model": BaseModelSchema,
    "framework": FrameworkSchema,
    "distributed": DistributedSchema,
    "evaluation": EvaluationSchema,
    "on_divergence": OnDivergenceSchema,
    "halt_at": HaltAtSchema,
    "packages": PackagesSchema,
    "tasks": RoleSchema,
    "resource_config of a role": RoleResourcesSchema,
    "training_config of a role": RoleTrainingSchema,
    "affinity of a role": AffinitySchema,
    "data_config": DataConfigSchema,
    "sources": SourceSchema,
    "filters": FilterSchema,
    "sampling": SamplingSchema,
    "preprocess": PreprocessSchema,
    "resource_config": ResourceConfigSchema,
    "output_config": OutputConfigSchema,
    "checkpoint": CheckpointConfigSchema,
    "scheduling_config": SchedulingConfigSchema,
    "tracking": TrackerSchema,
    "interactive_config": InteractiveConfigSchema,
    "ports": PortSchema,
    "readiness_probe": ReadinessProbeSchema,
    "new session": NewSessionSchema,
    "sweep": CreateSweepSchema,
    "objective": ObjectiveSchema,
    "constraints": ConstraintSchema,
    "method": MethodSchema,
    "early_stopping": EarlyStoppingSchema,
    "budget": BudgetSchema,
    "on_failed_trials": FailedTrialsSchema,
    "warm_start": WarmStartSchema,
    "keep": KeepSchema,
    "inference": SubmitInferenceSchema,
    "model": ModelReferenceSchema,
    "records": RecordsSchema,
    "task": InferenceTaskSchema,
    "results": InferenceOutputSchema,
    "on_error": OnRecordErrorSchema,
    "evaluation of a model": CreateEvaluationSchema,
    "benchmark": BenchmarkSchema,
    "data of an evaluation": EvaluationDataSchema,
    "requirement": RequirementSchema,
    "planned evaluation": PlannedEvaluationSchema,
}


def fields_of(section: str) -> str:
    """Every field of a section with its type, limits, default and meaning."""
    rows = [
        f"| `{name}` | {cell(_type(field))} | {_default(field)} | {cell(_meaning(field))} |"
        for name, field in SECTIONS[section]().fields.items()
    ]
    return "\n".join(["| field | type | default | meaning |", "|---|---|---|---|", *rows])


def cell(text: str) -> str:
    """Text as it is, in a table of Markdown."""
    return re.sub(r"<(?=\w)", "&lt;", re.sub(r"([|*])", r"\\\1", text))


def _type(field: fields.Field[Any]) -> str:
    if isinstance(field, fields.List):
        inner = _type(field.inner)
        return f"list of {inner}s" if " " not in inner else f"list of {inner}"
    if isinstance(field, Choice):
        return " or ".join(f"`{choice}`" for rule in field.validators for choice in getattr(rule, "choices", ()))
    kind = next((name for known, name in _KINDS if isinstance(field, known)), "value")
    return " ".join([kind, *(_limits(rule) for rule in field.validators if isinstance(rule, validate.Range))]).rstrip()


def _limits(rule: validate.Range) -> str:
    low, high = (None if limit is None or abs(limit) > _MANY else f"{limit:.10g}" for limit in (rule.min, rule.max))
    return " ".join([f"from {low}"] * (low is not None) + [f"to {high}"] * (high is not None))


def _default(field: fields.Field[Any]) -> str:
    default = field.metadata.get("default", field.load_default)
    if field.required:
        return "required"
    if default is missing or callable(default):
        return "–"
    return f"`{default}`".lower() if isinstance(default, bool) else f"`{default}`"


def _meaning(field: fields.Field[Any]) -> str:
    return str(field.metadata.get("description", ""))
