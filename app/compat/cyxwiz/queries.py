"""Query parameters of CyxWiz's lists."""

from typing import Any

from marshmallow import post_load

from app.compat.cyxwiz.messages_pb2 import CPU, CUDA, DEVICE_UNKNOWN, DeviceType, JobStatus
from app.schemas.queries import ListQuerySchema, OrderBy, QueryFlag, QueryTexts, QueryWhole, one_of
from app.schemas.strict_fields import LARGEST

_STATES = tuple(JobStatus.State.keys()[1:])
_DEVICES = tuple(DeviceType.Name(device) for device in (DEVICE_UNKNOWN, CPU, CUDA))


class JobListQuerySchema(ListQuerySchema):
    order_by = OrderBy("created_at", "priority", "name", "status")
    status = QueryTexts(one_of(_STATES), load_default=list)
    services = QueryFlag(load_default=False, metadata={"description": "List services in place of jobs"})

    @post_load
    def numbered(self, query: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {**query, "status": {JobStatus.State.Value(name) for name in query["status"]}}


class NodeListQuerySchema(ListQuerySchema):
    """``required_device`` and ``min_memory_mb``: requirements of a job that nodes are scored for."""

    order_by = OrderBy("created_at", "name", "status")
    required_device = one_of(_DEVICES)
    min_memory_mb = QueryWhole(0, LARGEST, load_default=0)
