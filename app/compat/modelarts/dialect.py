"""Responses, errors and authentication of ModelArts' API: an API key as token, or a signed request."""

from types import MappingProxyType
from typing import Any, ClassVar

from flask import Response, request

from app.compat.modelarts.signatures import ALGORITHM, SignedRequest, read_signature
from app.compat.plain_dialect import Plain
from app.database.engine import Database
from app.domain.errors import CredentialsMissing, NotFound
from app.host.clock import utc_now
from app.http.context import plane
from app.http.dialect import bearer_key
from app.http.envelope import BodySchema, Problem, json_response
from app.http.request_body import whole_body
from app.security.key_cache import KeyCache
from app.security.permissions import Caller
from app.services.access import api_keys

TOKEN_HEADER = "X-Auth-Token"  # noqa: S105 – the name of a header
_ABOUT = """
Training jobs of Huawei ModelArts over the jobs of Trainyard. `X-Auth-Token` is an API key; requests signed with
the access key and secret key of `trainyard keys create` work, too. `docs/reference/other-vocabularies.md`
describes the effect of each field.
"""
_TEXT = {"type": "string"}
NAME_TAKEN, OTHER_PROJECT = "NAME_TAKEN", "OTHER_PROJECT"
# ModelArts' error numbers by native error code, field, and HTTP status.
_OF_CODES = {NAME_TAKEN: 2751, OTHER_PROJECT: 2786, "MALFORMED_JSON": 2787, "QUOTA_EXCEEDED": 118}
_STATUSES = {NAME_TAKEN: 400, OTHER_PROJECT: 404}
_OF_FIELDS = {
    "algorithm.code_dir": 2757,
    "algorithm.boot_file": 2758,
    "algorithm.id": 2755,
    "algorithm.engine": 2780,
    "algorithm.subscription_id": 2755,
    "algorithm.item_version_id": 2755,
    "algorithm.inputs": 2753,
    "algorithm.outputs": 2753,
    "algorithm.parameters": 2767,
    "spec.resource.flavor_id": 2763,
    "spec.resource.node_count": 2793,
    "filters": 2789,
    "sort_by": 2790,
}
_OF_STATUSES = {400: 2788, 401: 2784, 403: 2785, 404: 2775, 409: 2796, 422: 2788, 429: 2799}
_OTHER = 1  # other errors


class NotOfTheToken(NotFound):
    """The caller has no access to the project of the path."""

    code = OTHER_PROJECT


class ModelArts(Plain):
    """Plain documents; errors are `{error_msg, error_code, error_solution}`."""

    name = "modelarts"
    title = "Trainyard for clients of ModelArts"
    about = _ABOUT.strip()
    bases = ("/v2",)
    named_project = "project_id"
    documents: ClassVar[dict[str, Any]] = {"type": ["object", "array"]}
    also_refuses = MappingProxyType({404: "The project of the path does not exist, or the caller has no access to it"})

    def caller(self, db: Database, known: KeyCache | None) -> Caller:
        authorization = request.headers.get("Authorization", "").strip()
        if authorization.startswith(ALGORITHM):
            signature = read_signature(authorization, _signed(), now=utc_now())
            return api_keys.of_signer(db, plane().box, signature.access_key, signature.is_made_with)
        if token := request.headers.get(TOKEN_HEADER, "").strip():
            return api_keys.authenticate(db, token, known)
        if not authorization:
            raise CredentialsMissing(f"send your API key in the header {TOKEN_HEADER}, or sign the request")
        return api_keys.authenticate(db, bearer_key(), known)

    def no_project(self, project: str) -> NotFound:  # noqa: ARG002 – the message does not name it
        return NotOfTheToken("the project of the path does not exist, or the token has no access to it")

    def failure(self, problem: Problem) -> Response:
        body = {
            "error_msg": _named(problem) or problem.message,  # the only part that exceptions of ModelArts' SDK print
            "error_code": f"ModelArts.{_number(problem):04d}",
            "error_solution": _solution(problem),
        }
        status = _STATUSES.get(problem.code) or self.status_of(problem.status)
        return json_response(body, status)

    def status_of(self, status: int) -> int:
        # ModelArts answers 400 for a missing job.
        return 400 if status in (404, 422) else status

    def error_schema(self) -> BodySchema:
        return {
            "type": "object",
            "required": ["error_msg", "error_code", "error_solution"],
            "properties": {
                "error_msg": _TEXT,
                "error_code": {"type": "string", "pattern": "^ModelArts\\.[0-9]{4}$"},
                "error_solution": _TEXT,
            },
        }


MODELARTS = ModelArts()


def _signed() -> SignedRequest:
    return SignedRequest(
        method=request.method,
        path=request.path,
        query=list(request.args.items(multi=True)),
        headers={name.lower(): value for name, value in request.headers},
        body=whole_body(),
    )


def _number(problem: Problem) -> int:
    if problem.code in _OF_CODES:
        return _OF_CODES[problem.code]
    if problem.status in (400, 422):
        for field, _ in problem.details:
            found = [name for name in _OF_FIELDS if f"{field}.".startswith(f"{name}.")]
            if found:
                return _OF_FIELDS[max(found, key=len)]
    return _OF_STATUSES.get(problem.status, _OTHER)


def _solution(problem: Problem) -> str:
    if named := _named(problem):
        return named
    return "Try again later." if problem.status in (429, 503) else "Check the request against the API's description."


def _named(problem: Problem) -> str:
    return "; ".join(f"{field}: {why}" if field else why for field, why in problem.details)
