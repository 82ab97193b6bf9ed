"""Requests and answers about files and uploads."""

from typing import Any

from marshmallow import Schema, ValidationError, fields, validate, validates_schema

from app.compat.openai.bodies import ASCENDING, DESCENDING, CursorListQuerySchema, list_of
from app.domain.files import purposes
from app.domain.files.content import MD5
from app.schemas.documents import DocumentSchema
from app.schemas.queries import QueryWhole, one_of
from app.schemas.strict_fields import LARGEST, SOMETIMES, Choice, Matching, Text, Whole, says

_ANCHOR, _SECONDS = "expires_after[anchor]", "expires_after[seconds]"
_CREATED_AT = "created_at"
_LEAST, _MOST = purposes.SHORTEST_EXPIRY_SECONDS, purposes.LONGEST_EXPIRY_SECONDS
_FILE = {"type": "string", "format": "binary", "description": "The file, with its name"}
_MOST_PARTS = 2000


class CreateFileSchema(Schema):
    """The fields of a form, which are texts."""

    file = fields.Raw(required=True, metadata=_FILE)
    purpose = Choice(purposes.UPLOADED, required=True)
    anchor = Choice((_CREATED_AT,), data_key=_ANCHOR)
    seconds = QueryWhole(_LEAST, _MOST, data_key=_SECONDS)

    @validates_schema
    def _complete(self, values: dict[str, Any], **_: Any) -> None:
        if ("anchor" in values) != ("seconds" in values):
            missing = _SECONDS if "anchor" in values else _ANCHOR
            raise ValidationError("an expiry has an anchor and seconds", missing)


class AddPartSchema(Schema):
    data = fields.Raw(required=True, metadata=_FILE)


class ExpiresAfterSchema(DocumentSchema):
    anchor = Choice((_CREATED_AT,), required=True)
    seconds = Whole(_LEAST, _MOST, required=True)


class CreateUploadSchema(DocumentSchema):
    filename = Text(shortest=1, longest=255, required=True)
    purpose = Choice(purposes.UPLOADED, required=True)
    bytes = Whole(1, LARGEST, required=True, **says("The size of the whole file"))
    mime_type = Text(shortest=1, longest=255, required=True)
    expires_after = fields.Nested(ExpiresAfterSchema)


class CompleteUploadSchema(DocumentSchema):
    part_ids = fields.List(
        Text(longest=64),
        required=True,
        validate=validate.Length(1, _MOST_PARTS),
        **says("The ids of all parts, in the order of their content"),
    )
    md5 = Matching(MD5, "must be an MD5 in hexadecimal digits", **says("Of the whole file; it is compared"))


class FileQuerySchema(CursorListQuerySchema):
    limit = QueryWhole(1, 10_000, load_default=10_000)
    order = one_of((ASCENDING, DESCENDING))
    purpose = one_of(purposes.PURPOSES)
    sha256 = fields.String(
        validate=validate.Regexp("^[0-9a-f]{64}$", error="must be a SHA-256 in 64 lowercase hexadecimal digits"),
        metadata={
            "description": "Only files with this content, by its SHA-256, in the project that an upload would go to"
        },
    )


class FileSchema(Schema):
    id = fields.String()
    object = fields.Constant("file")
    bytes = fields.Integer()
    created_at = fields.Integer()
    expires_at = fields.Integer(allow_none=True)
    filename = fields.String()
    purpose = fields.String()
    status = fields.String(metadata={"enum": ["uploaded", "processed", "error"]})
    status_details = fields.String(allow_none=True)


class UploadSchema(Schema):
    id = fields.String()
    object = fields.Constant("upload")
    bytes = fields.Integer()
    created_at = fields.Integer()
    expires_at = fields.Integer()
    filename = fields.String()
    purpose = fields.String()
    status = fields.String(metadata={"enum": ["pending", "completed", "cancelled", "expired"]})
    file = fields.Nested(FileSchema, allow_none=True)


class UploadPartSchema(Schema):
    id = fields.String()
    object = fields.Constant("upload.part")
    created_at = fields.Integer()
    upload_id = fields.String()


class DeletedSchema(Schema):
    id = fields.String()
    object = fields.String()
    deleted = fields.Boolean()


class ModelSchema(Schema):
    id = fields.String()
    object = fields.Constant("model")
    created = fields.Integer()
    owned_by = fields.String()
    shutdown_date = fields.String(metadata={SOMETIMES: True, "description": "Of a model that is no longer there"})
    trainyard = fields.Dict()


FilesSchema, ModelsSchema = list_of(FileSchema), list_of(ModelSchema)
