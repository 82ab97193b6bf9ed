"""Answers to requests for sessions that are refused: in the API's words, before there is a WebSocket."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from app.domain.errors import TrainyardError
from app.gateway.failures import NoReplica
from app.http.envelope import Problem
from app.http.errors import problem_of

UPGRADE = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}


class UpgradeRequired(TrainyardError):
    """The request opens no WebSocket."""

    code = "UPGRADE_REQUIRED"


@dataclass(frozen=True)
class RefusalAnswer:
    status: int
    body: bytes
    headers: Mapping[str, str]


def refusal_of(error: Exception, request_id: str) -> RefusalAnswer:
    """For any exception; internal details go to the log only."""
    problem, headers = _problem(error)
    answer: dict[str, object] = {"code": problem.code, "message": problem.message}
    if problem.details:
        answer["details"] = [{"field": name, "message": message} for name, message in problem.details]
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
        answer["retry_after"] = problem.retry_after
    body = {"status": "error", "error": answer, "meta": {"request_id": request_id}}
    return RefusalAnswer(problem.status, json.dumps(body).encode(), headers)


def _problem(error: Exception) -> tuple[Problem, dict[str, str]]:
    if isinstance(error, UpgradeRequired):
        return Problem(426, error.code, error.message), dict(UPGRADE)
    if isinstance(error, NoReplica):
        return Problem(503, error.code, error.message, retry_after=error.retry_after_seconds), {}
    problem = problem_of(error)
    return problem, {"WWW-Authenticate": 'Bearer realm="trainyard"'} if problem.status == 401 else {}
