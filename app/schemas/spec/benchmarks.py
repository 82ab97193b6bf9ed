"""Benchmarks of an evaluation, and the evaluations that a training plans."""

from typing import Any, ClassVar

from marshmallow import ValidationError, fields, validate, validates_schema

from app.domain.evaluations.catalog import BENCHMARKS, MOST_SAMPLES
from app.domain.spec.inference import LM_EVAL, Requirement
from app.domain.spec.model import END
from app.domain.spec.rules.evaluations import EVENTS, MOST, MOST_BENCHMARKS
from app.schemas.documents import DocumentSchema
from app.schemas.spec.data_config import SourceSchema
from app.schemas.spec.resource_config import PlannedResourcesSchema
from app.schemas.strict_fields import Choice, FreeObject, Number, SectionField, Text, Whole, says

_LONGEST = 4096
_EMPTY = "must not be empty; name a file, a directory or another place with records"
LARGEST_SEED = 2**32 - 1
MOST_REQUIREMENTS, LARGEST_BOUND = 64, 1e300
_SOURCE = SourceSchema(exclude=("weight",))  # one dataset has no share beside others


class DatasetField(fields.Field[dict[str, Any]]):
    """A path, or an object as in data_config.sources; loaded as the object."""

    def __init__(self, meaning: str) -> None:
        text = {"type": "string", "minLength": 1, "maxLength": _LONGEST}
        shape = {"properties": {"path": text}, "required": ["path"]}
        super().__init__(metadata={**text, **shape, "type": ["string", "object"], "description": meaning})

    def _deserialize(self, value: object, *_: Any, **__: Any) -> dict[str, Any]:
        if not isinstance(value, str | dict):
            raise ValidationError("must be a path, or an object with path as in data_config.sources")
        if not value:
            raise ValidationError(_EMPTY)
        found: dict[str, Any] = _SOURCE.load({"path": value} if isinstance(value, str) else value)
        if not found["path"].strip():
            raise ValidationError(_EMPTY if isinstance(value, str) else {"path": [_EMPTY]})
        return found


class BenchmarkSchema(DocumentSchema):
    conditions: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {"required": ["dataset"], "properties": {"dataset": {"not": {"type": "null"}}}},
            {"properties": {"name": {"pattern": rf"^{LM_EVAL}(:[\s\S]*)?$"}}},
        ]
    }
    name = Text(
        longest=1024,
        shortest=1,
        required=True,
        **says(f"One of {', '.join(each.describe()['name'] for each in BENCHMARKS.values())}"),
    )
    dataset = DatasetField(
        "Records to measure on: a path, or an object with path, split, format, filters … as a source; all but "
        f"{LM_EVAL}:TASK need it"
    )
    num_samples = Whole(
        1,
        MOST_SAMPLES,
        rule=f"must be from 1 to {MOST_SAMPLES}; leave it out for all records",
        **says("Only the first so many records, so that evaluations share them; default all"),
    )
    parameters = FreeObject(load_default=dict, **says("By name of the benchmark; see the table of benchmarks"))

    @validates_schema(skip_on_field_errors=True)
    def has_dataset(self, values: dict[str, Any], **_: Any) -> None:
        """Those that read none are refused with one by the catalog."""
        if "dataset" not in values and values["name"].partition(":")[0] != LM_EVAL:
            raise ValidationError("Missing data for required field.", "dataset")


def benchmark_list() -> fields.List[dict[str, Any]]:
    return fields.List(
        fields.Nested(BenchmarkSchema),
        required=True,
        validate=validate.Length(1, MOST_BENCHMARKS),
        **says("What is measured, in this order"),
    )


class RequirementSchema(DocumentSchema):
    metric = Text(
        longest=1024,
        shortest=1,
        required=True,
        **says("NAME of a benchmark, or NAME/METRIC of one with several metrics"),
    )
    min = Number(-LARGEST_BOUND, LARGEST_BOUND, **says("The smallest value that passes"))
    max = Number(-LARGEST_BOUND, LARGEST_BOUND, **says("The largest value that passes"))
    baseline = Text(
        longest=64, shortest=1, **says("A completed evaluation whose value the value may not be worse than")
    )
    margin = Number(
        0, LARGEST_BOUND, **says("By how much the value may be worse than that of baseline", default=Requirement.margin)
    )


def requirements() -> fields.List[dict[str, Any]]:
    return fields.List(
        fields.Nested(RequirementSchema),
        validate=validate.Length(max=MOST_REQUIREMENTS),
        **says("What the values have to be, so that the evaluation says whether the model passed"),
    )


def seed(meaning: str) -> Whole:
    return Whole(0, LARGEST_SEED, load_default=0, **says(meaning))


class PlannedEvaluationSchema(DocumentSchema):
    on = Choice(
        EVENTS,
        load_default=END,
        **says("end: of the result; checkpoint: of each checkpoint; best: of each checkpoint that is the best so far"),
    )
    benchmarks = benchmark_list()
    require = requirements()
    resource_config = SectionField(
        PlannedResourcesSchema, **says("Devices of each evaluation; default one of the training's device_type")
    )
    seed = seed("Random seed of samples")


def planned_evaluations() -> fields.List[dict[str, Any]]:
    return fields.List(
        fields.Nested(PlannedEvaluationSchema),
        validate=validate.Length(max=MOST),
        **says(
            "Evaluations that are made by themselves, as preemptible jobs of the lowest priority; their values become "
            "points bench/NAME/METRIC of this job's metrics, at the step of the checkpoint"
        ),
    )
