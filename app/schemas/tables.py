"""Tables on the wire: training types with their hyperparameters, and error types."""

from marshmallow import Schema, fields

from app.schemas.strict_fields import AsStored, says

_VALUE = {"type": ["string", "number", "boolean", "null"]}
_BOUND = {"type": ["number", "null"]}
_TEXTS = {"type": "array", "items": {"type": "string"}}


class HyperparameterSchema(Schema):
    name = fields.String()
    type = fields.String(**says("int, float, bool, choice, or names (separated by commas)"))
    default = AsStored({**_VALUE, "description": "The default value"})
    minimum = AsStored({**_BOUND, "description": "Minimum value; null: none"})
    maximum = AsStored({**_BOUND, "description": "Maximum value; null: none"})
    choices = AsStored({**_TEXTS, "description": "The values of a choice, else empty"})
    only_with = AsStored({"type": "object", "description": "Required values of other hyperparameters"})
    meaning = fields.String()


class TrainingTypeSchema(Schema):
    training_type = fields.String()
    framework = fields.String()
    description = fields.String()
    record_shapes = AsStored({**_TEXTS, "description": "Accepted shapes of data records; empty: up to the script"})
    export_formats = AsStored({**_TEXTS, "description": "Values of export_format, the default first"})
    any_hyperparameter = fields.Boolean(**says("Whether hyperparameters are passed through unvalidated"))
    hyperparameters = fields.List(fields.Nested(HyperparameterSchema))


class TrainingTypesSchema(Schema):
    training_types = fields.List(fields.Nested(TrainingTypeSchema))


class ErrorTypeSchema(Schema):
    name = fields.String(**says("The error_type of a failed job"))
    meaning = fields.String()
    what_to_do = fields.String(**says("How a user can resolve it"))
    retried = fields.Boolean(**says("Whether it may be retried automatically"))
    recovery = fields.String(**says("The automatic recovery"))


class ErrorTypesSchema(Schema):
    error_types = fields.List(fields.Nested(ErrorTypeSchema))
