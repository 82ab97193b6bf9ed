"""Rows of the table of routes and callers: those of services. Each asks for a service that has ended."""

from tests.builders.service_requests import service_request
from tests.integration.compat.foreign_routes import MISSING, USER, VIEWER, Row

_CHANGE = {"replicas": {"max": 2}}

SERVICES: dict[tuple[str, str], Row] = {
    ("POST", "/v1/services"): Row(USER, 201, body=service_request(name="NEW")),
    ("GET", "/v1/services"): Row(VIEWER),
    ("GET", "/v1/services/<service_id>"): Row(VIEWER, foreign=MISSING),
    ("PATCH", "/v1/services/<service_id>"): Row(USER, 409, foreign=MISSING, body=_CHANGE),
    ("DELETE", "/v1/services/<service_id>"): Row(USER, 409, foreign=MISSING),
    ("POST", "/v1/services/<service_id>/pause"): Row(USER, 409, foreign=MISSING),
    ("POST", "/v1/services/<service_id>/resume"): Row(USER, 409, foreign=MISSING),
    ("GET", "/v1/services/<service_id>/replicas"): Row(VIEWER, foreign=MISSING),
    ("GET", "/v1/services/<service_id>/events"): Row(VIEWER, foreign=MISSING),
    ("GET", "/v1/services/<service_id>/metrics"): Row(VIEWER, foreign=MISSING),
    ("GET", "/v1/services/<service_id>/logs"): Row(VIEWER, foreign=MISSING),
    ("GET", "/v1/usage"): Row(VIEWER),
}
