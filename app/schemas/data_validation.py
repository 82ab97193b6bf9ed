"""Data validation on the wire: data with or without the model to train, and the report."""

from typing import Any, ClassVar

from marshmallow import Schema, fields, validates_schema

from app.domain.errors import InvalidRequest
from app.schemas.documents import DocumentSchema
from app.schemas.jobs import DryRunSchema, SubmitQuerySchema
from app.schemas.queries import QueryFlag
from app.schemas.spec.data_config import DataConfigSchema
from app.schemas.spec.training_config import TRAINING_TYPES, BaseModelSchema, FrameworkSchema, TrainingConfigSchema
from app.schemas.strict_fields import SOMETIMES, AsStored, Choice, SectionField, Text, says

_LENGTHS = {"type": "object", "additionalProperties": {"type": "integer"}, SOMETIMES: True}
_OBJECT = {"type": "object", SOMETIMES: True}


class IntendedTrainingSchema(TrainingConfigSchema):
    """As in a job; defaults to SFT on HF_TRAINER without a model, in which case nothing is tokenized."""

    needed = ()
    conditions: ClassVar[dict[str, Any]] = {}
    training_type = Choice(TRAINING_TYPES, load_default="SFT")
    base_model = SectionField(BaseModelSchema)
    framework = SectionField(FrameworkSchema, load_default=lambda: {"type": "HF_TRAINER"})


class ValidateDataSchema(DocumentSchema):
    data_config = SectionField(DataConfigSchema, required=True)
    training_config = SectionField(IntendedTrainingSchema, load_default=lambda: IntendedTrainingSchema().load({}))


class ValidateDataQuerySchema(Schema):
    project = Text(longest=63)


class DataErrorSchema(Schema):
    field = fields.String()
    error_type = fields.String()
    message = fields.String()


class SourceReportSchema(Schema):
    """Statistics of the first records of one source; lengths in tokens before truncation, by quantile."""

    index = fields.Integer()
    location = fields.String()
    split = fields.String()
    format = fields.String()
    files = fields.Integer()
    columns = fields.List(fields.String())
    first_records = AsStored(
        {
            "type": "array",
            "items": {"type": "object"},
            "description": "The beginnings of the first records as their training reads them: text, cut, tokens",
            SOMETIMES: True,
        }
    )
    records_read = fields.Integer()
    complete = fields.Boolean()
    truncated_share = fields.Float()
    dropped = fields.Integer()
    lengths = AsStored(_LENGTHS)


class InspectedSubmitQuerySchema(SubmitQuerySchema):
    inspect = QueryFlag(
        load_default=False, **says("With dry_run: has the records read, too, and answers with data, within a minute")
    )

    @validates_schema
    def _fits(self, values: dict[str, Any], **_: Any) -> None:
        if values["inspect"] and not values["dry_run"]:
            raise InvalidRequest("inspect goes with dry_run=true: add it, or leave inspect out", field="inspect")


class DataReportSchema(Schema):
    """``left_out`` lists what was not validated."""

    valid = fields.Boolean()
    errors = fields.List(fields.Nested(DataErrorSchema))
    warnings = fields.List(fields.String())
    left_out = fields.List(fields.String())
    sources = fields.List(fields.Nested(SourceReportSchema))
    lengths = AsStored(_LENGTHS)
    truncated_share = fields.Float(allow_none=True, metadata={SOMETIMES: True})
    batch = AsStored(_OBJECT)
    model = AsStored(_OBJECT)


class InspectedDryRunSchema(DryRunSchema):
    """``data`` where it was asked for by ``inspect``; not valid: a submission would fail with its first error."""

    data = fields.Nested(DataReportSchema, metadata={SOMETIMES: True})
