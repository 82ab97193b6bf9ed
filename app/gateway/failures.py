"""Errors of the gateway, and what clients get for each: a status, OpenAI's error object, and when to come again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.compat.openai.problems import error_body
from app.domain.errors import TrainyardError
from app.http.errors import problem_of

MOST_SECONDS_TO_WAIT = 20  # OpenAI's clients wait as long as they are asked to, up to two minutes and twice
_NEVER_REPEATED = (409,)  # clients would repeat these by themselves, although the answer stays the same


class NoReplica(TrainyardError):
    """No replica can answer now; the message has the reason."""

    code = "NO_REPLICA"

    def __init__(self, message: str, *, retry_after_seconds: int = 5) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class ReplicaLost(NoReplica):
    """The replica went away before its answer was complete."""

    code = "REPLICA_LOST"


@dataclass(frozen=True)
class ErrorAnswer:
    """What a client gets instead of an answer."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def event(self) -> bytes:
        """For a stream that has begun: its last event."""
        return b"data: " + self.body + b"\n\n"


def failure_of(error: Exception) -> ErrorAnswer:
    """The failure for any exception; internal details go to the log only."""
    if isinstance(error, NoReplica):
        return _failure(503, error.message, error.code, None, error.retry_after_seconds)
    problem = problem_of(error)
    status = 400 if problem.status == 422 else problem.status
    param = (problem.details[0][0] or None) if problem.details else None
    return _failure(status, problem.named, problem.code, param, problem.retry_after)


def _failure(status: int, message: str, code: str, param: str | None, wait: int | None) -> ErrorAnswer:
    headers = {}
    if wait is not None:
        headers["Retry-After"] = str(min(wait, MOST_SECONDS_TO_WAIT))
    if status in _NEVER_REPEATED:
        headers["X-Should-Retry"] = "false"
    return ErrorAnswer(status, json.dumps(error_body(status, message, code, param)).encode(), headers)
