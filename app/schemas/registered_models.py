"""Base models with names, on the wire; the answers of OpenAI's vocabulary about models are elsewhere."""

from marshmallow import Schema, fields

from app.domain.model_names import BASE_NAME, BASE_NAME_RULE
from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Matching, Moment, Text, says

LONGEST_LOCATION = 2048


class RegisterModelSchema(DocumentSchema):
    name = Matching(BASE_NAME, BASE_NAME_RULE, required=True)
    location = Text(
        longest=LONGEST_LOCATION,
        shortest=1,
        required=True,
        **says("a model of the hub, a directory that jobs may read, or a URI"),
    )
    project = Text(longest=63, shortest=1, **says("only for this project; omitted: for all"))


class RegisteredModelSchema(Schema):
    name = fields.String()
    kind = fields.String(**says("base or fine_tune"))
    project = fields.String(allow_none=True, **says("null: for all projects"))
    location = fields.String(
        allow_none=True,
        **says("of a base model; null for models of all projects unless you may administer the cluster"),
    )
    base = fields.String(allow_none=True, **says("what a fine-tuned model was made from"))
    job_id = fields.String(allow_none=True, **says("the job that made a fine-tuned model"))
    created_at = Moment()
    removed_at = Moment(allow_none=True, **says("since when new jobs that name it are refused"))


class RegisteredModelsSchema(Schema):
    models = fields.List(fields.Nested(RegisteredModelSchema), **says("newest first"))
