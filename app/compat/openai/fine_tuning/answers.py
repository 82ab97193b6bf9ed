"""Answers about fine-tuning jobs, for the API's description."""

from typing import Any

from marshmallow import Schema, fields

from app.compat.openai.bodies import list_of
from app.compat.openai.fine_tuning.from_native import STATUSES
from app.schemas.strict_fields import AsStored, says

_OBJECT: dict[str, Any] = {"type": "object"}
_OBJECT_OR_NULL: dict[str, Any] = {"type": ["object", "null"]}


class FineTuningJobSchema(Schema):
    id = fields.String()
    object = fields.Constant("fine_tuning.job")
    created_at = fields.Integer()
    finished_at = fields.Integer(allow_none=True)
    estimated_finish = fields.Integer(allow_none=True)
    status = fields.String(metadata={"enum": sorted(set(STATUSES.values()))})
    error = AsStored({**_OBJECT_OR_NULL, "description": "code, message and param of a job that has failed"})
    model = fields.String()
    fine_tuned_model = fields.String(allow_none=True, **says("Once it has succeeded"))
    organization_id = fields.String(**says("The project"))
    training_file = fields.String(**says("Of jobs of other APIs: the location of their first training data"))
    validation_file = fields.String(allow_none=True)
    result_files = fields.List(fields.String(), **says("step_metrics.csv, once it has succeeded"))
    trained_tokens = fields.Integer(allow_none=True)
    seed = fields.Integer()
    hyperparameters = AsStored(_OBJECT)
    method = AsStored({**_OBJECT, "description": "With numbers in place of auto"})
    user_provided_suffix = fields.String(allow_none=True)
    metadata = AsStored(_OBJECT_OR_NULL)
    integrations = AsStored({"type": ["array", "null"], "items": _OBJECT, "description": "As they were given"})
    trainyard = AsStored({**_OBJECT, "description": "job_id, status and pending_reason of the native API"})


class FineTuningEventSchema(Schema):
    id = fields.String()
    object = fields.Constant("fine_tuning.job.event")
    created_at = fields.Integer()
    level = fields.String(metadata={"enum": ["info", "warn", "error"]})
    message = fields.String()
    type = fields.String(metadata={"enum": ["message", "metrics"]})
    data = AsStored({**_OBJECT, "description": "Metrics of a step"})


class FineTuningCheckpointSchema(Schema):
    id = fields.String()
    object = fields.Constant("fine_tuning.job.checkpoint")
    created_at = fields.Integer()
    fine_tuning_job_id = fields.String()
    fine_tuned_model_checkpoint = fields.String(**says("The checkpoint's name as a model"))
    step_number = fields.Integer()
    metrics = AsStored(_OBJECT)


JobsSchema = list_of(FineTuningJobSchema)
EventsSchema = list_of(FineTuningEventSchema)
CheckpointsSchema = list_of(FineTuningCheckpointSchema)
