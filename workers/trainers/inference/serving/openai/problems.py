"""Errors of requests, in OpenAI's words."""

from typing import Any

from workers.trainers.inference.engine.interface import RequestRefused
from workers.trainers.inference.engine.refusing import CONTEXT_TOO_LONG, NO_CHOICE, NOT_FINITE
from workers.trainers.inference.serving.admission import ADAPTER_NOT_LOADED, ENGINE_ENDED

INVALID, SERVER_ERROR = "invalid_request_error", "server_error"
CONTEXT_LENGTH_EXCEEDED, OVERLOADED, ENDING = "context_length_exceeded", "overloaded", "replica_is_ending"
# Codes of the engine whose errors are not the client's, or not of its prompt.
_STATUSES = {NOT_FINITE: 500, ENGINE_ENDED: 503}
_CODES = {CONTEXT_TOO_LONG: CONTEXT_LENGTH_EXCEEDED, ENGINE_ENDED: ENDING}


class AnswerProblem(Exception):
    """An answer that is an error; ``param`` is the field as the client names it."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.http_status = status
        self.message = message
        self.param = param
        self.code = code

    def body(self) -> dict[str, Any]:
        kind = SERVER_ERROR if self.http_status >= 500 else INVALID
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def unavailable(message: str, code: str) -> AnswerProblem:
    """Another replica, or this one a little later, can answer the request."""
    return AnswerProblem(message, status=503, code=code)


def refusal(refused: RequestRefused, param: str) -> AnswerProblem:
    """What the engine refuses, as an answer about the field ``param``, which has the prompt."""
    if refused.code == ADAPTER_NOT_LOADED:
        return AnswerProblem(refused.message, status=409, param="model", code=refused.code.lower())
    status = _STATUSES.get(refused.code, 400)
    code = _CODES.get(refused.code, refused.code.lower())
    is_of_prompt = status < 500 and refused.code != NO_CHOICE
    return AnswerProblem(refused.message, status=status, param=param if is_of_prompt else None, code=code)
