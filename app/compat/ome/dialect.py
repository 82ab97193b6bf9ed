"""Responses and errors of Kubernetes' API: objects with a kind, and Status for errors."""

from flask import Response

from app.compat.plain_dialect import Plain
from app.domain.errors import NotFound
from app.http.envelope import BodySchema, Problem, json_response

GROUP, VERSION = "ome.io", "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"
BASE = f"/apis/{API_VERSION}"
ALREADY_EXISTS = "ALREADY_EXISTS"
_ABOUT = """
OME's training jobs as Kubernetes resources, over the jobs of Trainyard, for kubectl and Kubernetes' clients.
Namespaces are projects; the bearer token is an API key. `docs/reference/other-vocabularies.md` describes the effect of
each field.
"""
_TEXT = {"type": "string"}
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}


class Ome(Plain):
    """Some of its paths lie below those of Run:ai: `/api/v1/namespaces` is Kubernetes', `/api/v1` Run:ai's."""

    name = "ome"
    title = "Trainyard for clients of OME"
    about = _ABOUT.strip()
    bases = (BASE, "/apis", "/api/v1/namespaces", "/api/v1/pods", "/api", "/openapi", "/version")
    prefix = ""
    named_project = "namespace"

    def base_of(self, path: str) -> str:
        # /api/v1 itself is Kubernetes' discovery: a base longer than Run:ai's, so that it wins.
        return "/api/v1/" if path == "/api/v1" else super().base_of(path)

    def no_project(self, project: str) -> NotFound:
        return NotFound(f'namespaces "{project[:63]}" not found')

    def failure(self, problem: Problem) -> Response:
        status = self.status_of(problem.status)
        causes = [{"reason": "FieldValueInvalid", "message": why, "field": field} for field, why in problem.details]
        named = "; ".join(f"{field}: {why}" for field, why in problem.details if field)
        body = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": named or problem.message,
            "reason": "AlreadyExists" if problem.code == ALREADY_EXISTS else _REASONS.get(status, "InternalError"),
            "details": {
                "causes": causes,
                **({"retryAfterSeconds": problem.retry_after} if problem.retry_after else {}),
            },
            "code": status,
        }
        return json_response(body, status)

    def error_schema(self) -> BodySchema:
        return {
            "type": "object",
            "required": ["kind", "status", "message", "reason", "code"],
            "properties": {"kind": {"const": "Status"}, "message": _TEXT, "reason": _TEXT, "code": {"type": "integer"}},
        }


OME = Ome()
