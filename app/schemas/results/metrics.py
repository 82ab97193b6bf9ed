"""Metrics on the wire; non-finite values are the strings NaN, Infinity or -Infinity."""

from collections.abc import Sequence
from typing import Any

from marshmallow import Schema, ValidationError, fields, validates_schema

from app.domain.downsampling import FEWEST
from app.domain.json_numbers import json_number
from app.schemas.queries import QueryTexts, QueryWhole
from app.schemas.results.checkpoints import CheckpointSchema
from app.schemas.strict_fields import AsStored, on_the_wire
from app.services.telemetry.stored_metrics import SeriesPoint
from app.services.telemetry.summaries import LAST_STEP

MOST_POINTS = 10_000  # of one series in an answer
_NUMBER = {"type": ["number", "string"]}


class StepsQuerySchema(Schema):
    """A range of steps: both ends belong to it."""

    from_step = QueryWhole(0, LAST_STEP, load_default=0)
    to_step = QueryWhole(0, LAST_STEP, load_default=LAST_STEP)

    @validates_schema
    def _is_a_range(self, document: dict[str, Any], **_: Any) -> None:
        if document["from_step"] > document["to_step"]:
            raise ValidationError("must not be above to_step", "from_step")


class MetricsQuerySchema(StepsQuerySchema):
    names = QueryTexts(fields.String(), load_default=list)
    since_step = QueryWhole(-1, LAST_STEP, load_default=-1)
    max_points = QueryWhole(FEWEST, MOST_POINTS, load_default=1000)


class MetricStreamQuerySchema(Schema):
    names = QueryTexts(fields.String(), load_default=list)


class MetricsSchema(Schema):
    latest = AsStored({"type": "object", "additionalProperties": _NUMBER})
    series = AsStored({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "array"}}})
    checkpoints = fields.List(fields.Nested(CheckpointSchema))


def points_on_the_wire(points: Sequence[SeriesPoint]) -> list[list[Any]]:
    return [[point.step, on_the_wire(point.at), json_number(point.value)] for point in points]
