"""Responses and errors of OpenAI's API, and what its clients say and expect about repeated requests."""

import time
from typing import Any

from flask import Response, g, request

from app.compat.openai.problems import QUOTA_CODES, error_body
from app.compat.plain_dialect import Plain
from app.database.engine import Database
from app.http.envelope import BodySchema, Problem, json_response
from app.security.permissions import Caller
from app.services.access import projects

BASE, BESIDE_NATIVE = "/openai/v1", "/v1"
PREFIXES = (BASE, BESIDE_NATIVE)
PROJECT_HEADER, ORGANIZATION_HEADER = "OpenAI-Project", "OpenAI-Organization"
RETRY_HEADER = "X-Stainless-Retry-Count"
MOST_SECONDS_TO_WAIT = 20  # clients wait as long as the header says, up to two minutes and twice
_ABOUT = """
OpenAI's files, uploads, models, fine-tuning jobs and batches over the jobs of Trainyard, for OpenAI's own clients:
`OPENAI_BASE_URL=http://HOST:8000/v1`, and an API key of Trainyard as `OPENAI_API_KEY`. The same resources are served
below `/v1`. `docs/reference/openai.md` describes the effect of each field.
"""
_RESOURCES = (
    "files",
    "uploads",
    "fine_tuning",
    "models",
    "batches",
    "chat",
    "completions",
    "embeddings",
    "rerank",
    "moderations",
    "responses",
    "assistants",
    "threads",
    "images",
    "audio",
)
_TEXT, _TEXT_OR_NULL = {"type": "string"}, {"type": ["string", "null"]}
# Clients repeat these by themselves, although the answer stays the same.
_NEVER_REPEATED = (409, 501)


class OpenAI(Plain):
    """Plain documents; errors are `{error: {message, type, param, code}}`; times are Unix seconds."""

    name = "openai"
    title = "Trainyard for clients of OpenAI"
    about = _ABOUT.strip()
    bases = (BASE, *(f"{prefix}/{resource}" for prefix in PREFIXES for resource in _RESOURCES))
    prefix = ""

    def entered(self, db: Database, caller: Caller) -> Caller:
        project = request.headers.get(PROJECT_HEADER, "").strip()
        return projects.enter(db, caller, project) if project else caller

    def describes(self, path: str) -> bool:
        return path.startswith(f"{BASE}/")

    def link_base(self, path: str) -> str:
        return next((prefix for prefix in PREFIXES if path.startswith(f"{prefix}/")), "")

    def is_repeat(self) -> bool | None:
        if request.method != "POST":
            return None
        count = request.headers.get(RETRY_HEADER, "0")
        return count.isascii() and count.isdigit() and len(count) < 10 and int(count) > 0

    def failure(self, problem: Problem) -> Response:
        status = self.status_of(problem.status)
        param = (problem.details[0][0] or None) if problem.details else None
        response = json_response(error_body(status, problem.named, problem.code, param), status)
        if problem.code in QUOTA_CODES or status in _NEVER_REPEATED:
            response.headers["X-Should-Retry"] = "false"
        return response

    def finish(self, response: Response) -> None:
        if "began_at" in g:
            response.headers["OpenAI-Processing-Ms"] = str(int((time.perf_counter() - g.began_at) * 1000))
        wait = response.headers.get("Retry-After", type=int)
        if wait is not None and wait > MOST_SECONDS_TO_WAIT:
            response.headers["Retry-After"] = str(MOST_SECONDS_TO_WAIT)
        organization = request.headers.get(ORGANIZATION_HEADER, "")
        if organization.isascii() and organization.isprintable() and 0 < len(organization) <= 128:
            response.headers[ORGANIZATION_HEADER] = organization

    def status_of(self, status: int) -> int:
        return 400 if status == 422 else status

    def error_schema(self) -> BodySchema:
        error: dict[str, Any] = {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string", "description": "What is wrong, which rule applies, and how to fix it"},
                "type": _TEXT,
                "param": {**_TEXT_OR_NULL, "description": "The field or parameter that it is about"},
                "code": _TEXT_OR_NULL,
            },
        }
        return {"type": "object", "required": ["error"], "properties": {"error": error}}


OPENAI = OpenAI()
