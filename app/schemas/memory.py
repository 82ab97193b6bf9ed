"""The memory estimate of a training on the wire."""

from marshmallow import Schema, fields

from app.schemas.strict_fields import AsStored, says

_BYTES_BY_PART = {"type": "object", "additionalProperties": {"type": "integer"}}
_FIELDS = {
    "type": "object",
    "additionalProperties": {"type": ["string", "integer"]},
    "description": "The same as fields of the document",
}


class WayOutSchema(Schema):
    change = fields.String(**says("What to change, in words"))
    set = AsStored(_FIELDS, attribute="fields")
    bytes = fields.Integer(**says("The estimate with it, on each device"))


class MemoryEstimateSchema(Schema):
    """See docs/reference/memory.md."""

    verdict = fields.String(
        **says("fits, may_not_fit, does_not_fit (refused without resource_config.force_fit), or unknown")
    )
    message = fields.String()
    total_bytes = fields.Integer(attribute="estimate.total_bytes", **says("On each device; 0: unknown"))
    least_bytes = fields.Integer(attribute="estimate.least_bytes", **says("However short the records are"))
    parts = AsStored(_BYTES_BY_PART, attribute="estimate.parts")
    parameters = fields.Integer(attribute="estimate.parameters")
    trained_parameters = fields.Integer(attribute="estimate.trained_parameters")
    devices = fields.Integer(**says("Over how many devices the job is divided"))
    device_type = fields.String(
        attribute="device.type",
        dump_default=None,
        allow_none=True,
        **says("The largest device that the job could get; null if none is known"),
    )
    device_bytes = fields.Integer(attribute="device.bytes", dump_default=None, allow_none=True)
    ways_out = fields.List(fields.Nested(WayOutSchema), **says("Changes with which it fits that device"))
    notes = fields.List(fields.String(), attribute="estimate.notes")
    reason = fields.String(attribute="estimate.reason", **says("Why nothing is known; empty otherwise"))
