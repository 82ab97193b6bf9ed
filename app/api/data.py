"""Validation of data and model before a job is submitted."""

from collections.abc import Mapping
from typing import Any

from flask import Blueprint

from app.api.forwarding import FORWARDED, forwarded_tokens
from app.api.inspecting import validation_limits
from app.domain.spec.frameworks.megatron import MEGATRON, InvalidParallelism, least_devices
from app.domain.spec.locations.paths import NO_MODEL
from app.domain.spec.model import Framework, JobDocument, TrainingConfig
from app.http.context import backend, caller, holder, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.schemas.data_validation import DataReportSchema, ValidateDataQuerySchema, ValidateDataSchema
from app.schemas.spec.output_config import OutputConfigSchema
from app.schemas.spec.scheduling_config import SchedulingConfigSchema
from app.security.permissions import Permission
from app.services.jobs import data_validation

blueprint = Blueprint("data", __name__)
_REPORT = DataReportSchema()


@blueprint.post("/data/validate")
@operation(
    "Validate data and model before submitting a job",
    permission=Permission.MANAGE,
    query=ValidateDataQuerySchema,
    body=ValidateDataSchema,
    answer=DataReportSchema,
    headers=FORWARDED,
)
def validate_data(query: dict[str, Any], body: dict[str, Any]) -> Reply:
    recorder = ReplyRecorder(lambda _, report: Reply(_REPORT.dump(report)))
    # Like an open stream, this blocks a server thread; the stream slots bound how many threads may block.
    with backend().streams.held(holder()):
        data_validation.validate(
            plane(),
            caller(),
            _as_job(body),
            validation_limits(),
            project=query.get("project"),
            forwarded=forwarded_tokens(),
            on_written=recorder,
        )
    return recorder.reply


def _as_job(body: Mapping[str, Any]) -> JobDocument:
    """A job document for this training, so that the same rules apply as at submission."""
    training = {"base_model": {"model_id": NO_MODEL}, **body["training_config"]}
    intended = TrainingConfig.from_json(training)
    device = "cuda" if intended.base_model.dtype == "float16" else "auto"
    resources = {"gpu_count": _devices(intended.framework), "device_type": device}
    return JobDocument.from_json(
        {
            "name": "data",
            "labels": {},
            "training_config": training,
            "data_config": body["data_config"],
            "resource_config": resources,
            "output_config": OutputConfigSchema().load({}),
            "scheduling_config": SchedulingConfigSchema().load({}),
        }
    )


def _devices(framework: Framework) -> int:
    """The world size, or the smallest number of devices that the parallelism requires."""
    named = framework.distributed.world_size
    if named or framework.type != MEGATRON:
        return named or 1
    try:
        return least_devices(framework.config)
    except InvalidParallelism:
        return 1  # the rules report the error
