"""Requests and answers about batches."""

import re
from typing import Any

from marshmallow import Schema, fields, validate

from app.compat.openai.bodies import list_of, metadata_map
from app.compat.openai.files_schemas import ExpiresAfterSchema
from app.domain.batches.limits import HOUR_SECONDS, LONGEST_WINDOW_SECONDS
from app.domain.batches.states import BatchState
from app.domain.spec.inference import OPENAI_ENDPOINTS, InferenceOutput
from app.domain.spec.rules.inference import MOST_SHARD_RECORDS
from app.schemas.documents import DocumentSchema
from app.schemas.queries import QueryWhole
from app.schemas.spec.resource_config import ResourceConfigSchema
from app.schemas.spec.scheduling_config import SchedulingConfigSchema
from app.schemas.strict_fields import AsStored, Choice, Matching, SectionField, Text, Whole, says

REST = "trainyard"
MOST_HOURS = LONGEST_WINDOW_SECONDS // HOUR_SECONDS
_WINDOW = re.compile(r"[1-9][0-9]{0,2}h")
_OBJECT: dict[str, Any] = {"type": "object"}
_WHOLE_OR_NULL: dict[str, Any] = {"allow_none": True}


class OutputSchema(DocumentSchema):
    shard_records = Whole(
        1,
        MOST_SHARD_RECORDS,
        **says(
            "Requests that are answered together: what an interruption costs", default=InferenceOutput.shard_records
        ),
    )


class PartsSchema(DocumentSchema):
    """What the jobs that answer the requests get."""

    resource_config = SectionField(ResourceConfigSchema, **says("Devices of each job; default one"))
    scheduling_config = SectionField(SchedulingConfigSchema, **says("Queue, priority, preemption, time limits"))
    output = SectionField(OutputSchema)


class CreateBatchSchema(DocumentSchema):
    input_file_id = Text(shortest=1, longest=128, required=True, **says("A file with purpose batch"))
    endpoint = Choice(OPENAI_ENDPOINTS, required=True, **says("The url of all its requests"))
    completion_window = Matching(
        _WINDOW, f"must be a number of hours from 1h to {MOST_HOURS}h, such as 24h", required=True
    )
    metadata = metadata_map("Up to 16 pairs")
    output_expires_after = SectionField(ExpiresAfterSchema, **says("When its files are deleted; default never"))
    trainyard = SectionField(PartsSchema, **says("Sections of a job document for the jobs that answer the requests"))


class BatchesQuerySchema(Schema):
    limit = QueryWhole(1, 100, load_default=20)
    after = fields.String(validate=validate.Length(max=128), **says("The last id of the page before"))


class RequestCountsSchema(Schema):
    total = fields.Integer()
    completed = fields.Integer()
    failed = fields.Integer()


class BatchSchema(Schema):
    id = fields.String()
    object = fields.Constant("batch")
    endpoint = fields.String()
    input_file_id = fields.String()
    completion_window = fields.String()
    status = fields.String(metadata={"enum": [str(state) for state in BatchState]})
    output_file_id = fields.String(allow_none=True, **says("Answers in the order of their requests"))
    error_file_id = fields.String(allow_none=True, **says("Requests without an answer"))
    errors = AsStored(
        {"type": ["object", "null"], "description": "Why it has failed: up to 100 of code, message, param and line"}
    )
    created_at = fields.Integer()
    in_progress_at = fields.Integer(**_WHOLE_OR_NULL)
    expires_at = fields.Integer()
    finalizing_at = fields.Integer(**_WHOLE_OR_NULL)
    completed_at = fields.Integer(**_WHOLE_OR_NULL)
    failed_at = fields.Integer(**_WHOLE_OR_NULL)
    expired_at = fields.Integer(**_WHOLE_OR_NULL)
    cancelling_at = fields.Integer(**_WHOLE_OR_NULL)
    cancelled_at = fields.Integer(**_WHOLE_OR_NULL)
    request_counts = fields.Nested(RequestCountsSchema)
    model = fields.String(allow_none=True, **says("Where all requests name one"))
    usage = AsStored(_OBJECT)
    metadata = AsStored({"type": ["object", "null"]})
    trainyard = AsStored({**_OBJECT, "description": "pending_reason; jobs: the id of the native job of each model"})


BatchesSchema = list_of(BatchSchema)
