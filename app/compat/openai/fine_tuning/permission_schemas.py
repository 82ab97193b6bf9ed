"""Requests and answers about the permissions of checkpoints."""

from marshmallow import Schema, fields, validate

from app.compat.openai.bodies import list_of
from app.domain.names import NAME, NAME_RULE
from app.schemas.documents import DocumentSchema
from app.schemas.queries import QueryWhole, one_of
from app.schemas.strict_fields import Matching, says

DESCENDING = "descending"
_MOST_PROJECTS = 100


class GrantSchema(DocumentSchema):
    project_ids = fields.List(
        Matching(NAME, NAME_RULE),
        required=True,
        validate=validate.Length(1, _MOST_PROJECTS),
        **says("The projects that may ask it"),
    )


class PermissionsQuerySchema(Schema):
    limit = QueryWhole(1, 100, load_default=10)
    after = fields.String(validate=validate.Length(max=128), **says("The last id of the page before"))
    order = one_of(("ascending", DESCENDING))
    project_id = Matching(NAME, NAME_RULE)


class PermissionSchema(Schema):
    id = fields.String()
    object = fields.Constant("checkpoint.permission")
    created_at = fields.Integer()
    project_id = fields.String(**says("The project that may ask it"))


PermissionsSchema = list_of(PermissionSchema)
