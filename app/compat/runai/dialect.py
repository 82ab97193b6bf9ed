"""Responses, errors and authentication of Run:ai's API: API keys, and tokens issued for them."""

from typing import Any

from flask import Response

from app.compat.plain_dialect import Plain
from app.compat.runai import tokens
from app.database.engine import Database
from app.http.dialect import bearer_key
from app.http.envelope import BodySchema, Problem, json_response
from app.security.key_cache import KeyCache
from app.security.permissions import Caller
from app.services.access import api_keys

_ABOUT = """
NVIDIA Run:ai's workloads over the jobs of Trainyard. `POST /api/v1/token` issues a token for the access key and
secret key of `trainyard keys create`; API keys work, too. `docs/reference/other-vocabularies.md` describes the effect
of each field.
"""
_TEXT = {"type": "string"}


class RunAi(Plain):
    """Plain documents; errors are `{code, message, details}`."""

    name = "runai"
    title = "Trainyard for clients of NVIDIA Run:ai"
    about = _ABOUT.strip()
    bases = ("/api/v1",)

    def caller(self, db: Database, known: KeyCache | None) -> Caller:
        presented = bearer_key()
        if tokens.is_token(presented):
            return api_keys.of_id(db, tokens.key_of(presented))
        return api_keys.authenticate(db, presented, known)

    def failure(self, problem: Problem) -> Response:
        body: dict[str, Any] = {"code": self.status_of(problem.status), "message": problem.named}
        if problem.details:
            body["details"] = "; ".join(f"{field}: {why}" if field else why for field, why in problem.details)
            body["complianceIssues"] = [{"field": field, "details": [why]} for field, why in problem.details]
        return json_response(body, self.status_of(problem.status))

    def status_of(self, status: int) -> int:
        return 400 if status == 422 else status

    def error_schema(self) -> BodySchema:
        issue = {"type": "object", "properties": {"field": _TEXT, "details": {"type": "array", "items": _TEXT}}}
        return {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "integer", "minimum": 100, "maximum": 599},
                "message": _TEXT,
                "details": _TEXT,
                "complianceIssues": {"type": "array", "items": issue},
            },
        }


RUNAI = RunAi()
