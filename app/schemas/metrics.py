"""Metrics on the wire; non-finite values are the strings NaN, Infinity or -Infinity."""

from collections.abc import Sequence
from typing import Any

from marshmallow import Schema, fields

from app.domain.downsampling import FEWEST
from app.domain.json_numbers import json_number
from app.schemas.checkpoints import CheckpointSchema
from app.schemas.queries import QueryTexts, QueryWhole
from app.schemas.strict_fields import AsStored, on_the_wire
from app.services.telemetry.progress import SeriesPoint

_NUMBER = {"type": ["number", "string"]}


class MetricsQuerySchema(Schema):
    names = QueryTexts(fields.String(), load_default=list)
    since_step = QueryWhole(-1, 2**31 - 1, load_default=-1)
    max_points = QueryWhole(FEWEST, 10_000, load_default=1000)


class MetricStreamQuerySchema(Schema):
    names = QueryTexts(fields.String(), load_default=list)


class MetricsSchema(Schema):
    latest = AsStored({"type": "object", "additionalProperties": _NUMBER})
    series = AsStored({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "array"}}})
    checkpoints = fields.List(fields.Nested(CheckpointSchema))


def points_on_the_wire(points: Sequence[SeriesPoint]) -> list[list[Any]]:
    return [[point.step, on_the_wire(point.at), json_number(point.value)] for point in points]
