"""Model cards, lineage and the query of a file for W&B on the wire."""

from marshmallow import Schema, fields

from app.schemas.evaluations import PASSED
from app.schemas.queries import QueryWhole
from app.schemas.strict_fields import AsStored, Moment, Text, says

MOST_DEPTH = 5
_VALUES = {"type": "object", "additionalProperties": {"type": ["number", "string", "boolean", "null"]}}
_NUMBER = {"type": ["number", "string", "null"]}
_SAMPLED = "Of a model that no job has made: over name, size, first and last MiB of each file"
_DIGEST = "of what the last attempt has read: of its file, or over the digests of several; null where it is not known"


class BaseOfModelSchema(Schema):
    location = fields.String(**says("Id on a hub, URI, or the last part of a path; empty for the result of a job"))
    is_of_hub = fields.Boolean()
    revision = fields.String(allow_none=True, **says("As the document names it"))
    job_id = fields.String(allow_none=True, **says("The job whose result was trained further"))
    model_hash = fields.String(allow_none=True, **says("Of that result; null for other models"))
    commit = fields.String(allow_none=True, **says("Of a model of a hub, that the last attempt has read"))
    sampled_sha256 = fields.String(allow_none=True, **says(_SAMPLED))


class CardSourceSchema(Schema):
    location = fields.String(**says("URI, name of an uploaded file, or the last part of a path"))
    split = fields.String()
    file_id = fields.String(allow_none=True)
    sha256 = fields.String(allow_none=True, **says(f"Of an uploaded file, else {_DIGEST}"))
    commit = fields.String(allow_none=True, **says("Of a data set of a hub, that the last attempt has read"))
    size_bytes = fields.Integer(allow_none=True)
    records = fields.Integer(allow_none=True, **says("Of an uploaded file, where they were counted"))
    records_read = fields.Integer(allow_none=True, **says("By the preflight"))


class MeasuredSchema(Schema):
    evaluation_id = fields.String()
    benchmark = fields.String()
    dataset = fields.String()
    metric = fields.String()
    value = AsStored(_NUMBER)
    stderr = AsStored(_NUMBER)
    samples = fields.Integer(allow_none=True)
    passed = fields.Boolean(allow_none=True, **says(PASSED))


class CardFileSchema(Schema):
    path = fields.String()
    size_bytes = fields.Integer()
    sha256 = fields.String()
    is_weights = fields.Boolean()


class ComputeSchema(Schema):
    device_types = fields.List(fields.String())
    devices = fields.Integer(**says("Of the last attempt"))
    nodes = fields.Integer(**says("Of the last attempt"))
    attempts = fields.Integer()
    seconds = fields.Float()
    device_seconds = fields.Float(**says("Of GPUs"))


class ModelCardSchema(Schema):
    job_id = fields.String()
    project = fields.String()
    name = fields.String(**says("output_model_name, or the job's name"))
    kind = fields.String(**says("model, adapter, or files"))
    library = fields.String(allow_none=True, **says("What loads it; null for files"))
    training_type = fields.String()
    framework = fields.String()
    base = fields.Nested(BaseOfModelSchema)
    settings = AsStored({**_VALUES, "description": "Settings of the data and hyperparameters that the document gives"})
    sources = fields.List(fields.Nested(CardSourceSchema))
    steps = fields.Integer()
    tokens = fields.Integer()
    final_metrics = AsStored({"type": "object", "additionalProperties": {"type": ["number", "string"]}})
    evaluations = fields.List(fields.Nested(MeasuredSchema), **says("What was measured of the result"))
    passed = fields.Boolean(allow_none=True, **says(PASSED))
    model_hash = fields.String(**says("SHA-256 over the bytes of all weights"))
    files = fields.List(fields.Nested(CardFileSchema))
    compute = fields.Nested(ComputeSchema)
    labels = fields.Dict(keys=fields.String(), values=fields.String())
    created_at = Moment()
    finished_at = Moment(allow_none=True)


class LineageQuerySchema(Schema):
    depth = QueryWhole(1, MOST_DEPTH, load_default=2, **says("How many steps from the job other jobs may be away"))


class WandbQuerySchema(Schema):
    project = Text(
        longest=128,
        load_default="",
        **says("The project in W&B; default that of an offline run in `tracking`, or of the job"),
    )
    entity = Text(
        longest=128,
        load_default="",
        **says("The team in W&B; default that of an offline run, or of the user who uploads"),
    )


class LineageNodeSchema(Schema):
    kind = fields.String(**says("job, sweep, service, file, location (of data), or model"))
    id = fields.String()
    name = fields.String()
    status = fields.String(allow_none=True)
    sha256 = fields.String(allow_none=True, **says("Of a file, or over the weights of a job's result"))
    revision = fields.String(allow_none=True)


class LineageLinkSchema(Schema):
    source = fields.String(**says("Id of the node that was there first"))
    target = fields.String()
    relation = fields.String(
        **says(
            "data_of, base_of, has_trial, retried_as, resumed_by, continued_by, used_by, evaluated_by, served_by, "
            "named, wrote"
        )
    )
    sha256 = fields.String(allow_none=True, **says(f"With data_of: {_DIGEST}"))
    sampled_sha256 = fields.String(allow_none=True, **says(f"With base_of. {_SAMPLED}"))
    commit = fields.String(allow_none=True, **says("With data_of and base_of: of the hub's repository that was read"))


class LineageSchema(Schema):
    job_id = fields.String()
    nodes = fields.List(fields.Nested(LineageNodeSchema), **says("At most 200"))
    links = fields.List(fields.Nested(LineageLinkSchema))
    truncated = fields.Boolean(**says("Whether there is more than is shown"))
