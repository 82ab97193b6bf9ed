"""The files of a job's result on the wire."""

from marshmallow import Schema, fields


class ArtifactSchema(Schema):
    path = fields.String()
    size_bytes = fields.Integer()
    sha256 = fields.String()


class ArtifactsSchema(Schema):
    artifacts = fields.List(fields.Nested(ArtifactSchema))
