"""What the platform knows by tables: kinds of training with their hyperparameters, and why jobs fail."""

from marshmallow import Schema, fields

from app.schemas.strict_fields import AsStored, says

_VALUE = {"type": ["string", "number", "boolean", "null"]}
_BOUND = {"type": ["number", "null"]}
_TEXTS = {"type": "array", "items": {"type": "string"}}


class HyperparameterSchema(Schema):
    name = fields.String()
    type = fields.String(**says("int, float, bool, choice, or names (separated by commas)"))
    default = AsStored({**_VALUE, "description": "Its value where it is left out"})
    minimum = AsStored({**_BOUND, "description": "Lowest value; null: none"})
    maximum = AsStored({**_BOUND, "description": "Highest value; null: none"})
    choices = AsStored({**_TEXTS, "description": "All values of a choice, else empty"})
    only_with = AsStored({"type": "object", "description": "Values of others without which it must be left out"})
    meaning = fields.String()


class TrainingTypeSchema(Schema):
    training_type = fields.String()
    framework = fields.String()
    description = fields.String()
    record_shapes = AsStored({**_TEXTS, "description": "What a record of the data may be; empty: the script's matter"})
    export_formats = AsStored({**_TEXTS, "description": "Values of export_format, the default first"})
    any_hyperparameter = fields.Boolean(**says("Whether every hyperparameter is passed through unchecked"))
    hyperparameters = fields.List(fields.Nested(HyperparameterSchema))


class TrainingTypesSchema(Schema):
    training_types = fields.List(fields.Nested(TrainingTypeSchema))


class ErrorTypeSchema(Schema):
    name = fields.String(**says("The error_type of a failed job"))
    meaning = fields.String()
    what_to_do = fields.String(**says("What a person can do about it"))
    retried = fields.Boolean(**says("Whether the job may survive it by itself"))
    recovery = fields.String(**says("What is done about it without a person"))


class ErrorTypesSchema(Schema):
    error_types = fields.List(fields.Nested(ErrorTypeSchema))
