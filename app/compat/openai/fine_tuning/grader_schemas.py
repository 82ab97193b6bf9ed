"""Bodies and answers of requests that validate and run graders."""

from typing import Any

from marshmallow import Schema, fields

from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import AsStored, FreeObject, Text, says

_OBJECT: dict[str, Any] = {"type": "object"}
_LONGEST_SAMPLE = 128 << 10


class ValidateGraderSchema(DocumentSchema):
    grader = FreeObject(required=True, **says("As method.reinforcement.grader of a fine-tuning job"))


class RunGraderSchema(ValidateGraderSchema):
    model_sample = Text(longest=_LONGEST_SAMPLE, required=True, **says("What a model wrote: {{sample.output_text}}"))
    item = FreeObject(most=1000, **says("A record: {{item.COLUMN}}"))


class ValidatedGraderSchema(Schema):
    grader = AsStored({**_OBJECT, "description": "As sent"})


class GraderErrorsSchema(Schema):
    formula_parse_error = fields.Boolean()
    sample_parse_error = fields.Boolean()
    truncated_observation_error = fields.Boolean()
    unresponsive_reward_error = fields.Boolean()
    invalid_variable_error = fields.Boolean()
    other_error = fields.Boolean()
    python_grader_server_error = fields.Boolean()
    python_grader_server_error_type = fields.String(allow_none=True)
    python_grader_runtime_error = fields.Boolean()
    python_grader_runtime_error_details = fields.String(allow_none=True)
    model_grader_server_error = fields.Boolean()
    model_grader_refusal_error = fields.Boolean()
    model_grader_parse_error = fields.Boolean()
    model_grader_server_error_details = fields.String(allow_none=True)


class GraderMetadataSchema(Schema):
    name = fields.String()
    type = fields.String()
    errors = fields.Nested(GraderErrorsSchema)
    execution_time = fields.Float(**says("Seconds"))
    scores = AsStored({**_OBJECT, "description": "Rewards of the parts of a multi grader, by name"})
    token_usage = fields.Integer(allow_none=True)
    sampled_model_name = fields.String(allow_none=True)


class GraderRunSchema(Schema):
    reward = fields.Float(**says("0 where the grader gave none; metadata.errors says why"))
    metadata = fields.Nested(GraderMetadataSchema)
    sub_rewards = AsStored({**_OBJECT, "description": "Rewards of the parts of a multi grader, by name"})
    model_grader_token_usage_per_model = AsStored(_OBJECT)
    trainyard = AsStored({**_OBJECT, "description": "errors: grader, kind and message of each"})
