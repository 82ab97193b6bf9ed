"""Errors in OpenAI's form, as its dialect and the gateway answer them."""

from typing import Any

INVALID_REQUEST, INSUFFICIENT_QUOTA = "invalid_request_error", "insufficient_quota"
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    501: INVALID_REQUEST,
}
QUOTA_CODES = ("QUOTA_EXCEEDED", "STORAGE_QUOTA_EXCEEDED")
_CODES = {
    "AUTH_TOKEN_MISSING": "invalid_api_key",
    "AUTH_TOKEN_INVALID": "invalid_api_key",
    "NOT_IMPLEMENTED": "not_built",
    "RATE_LIMITED": "rate_limit_exceeded",
    **dict.fromkeys(QUOTA_CODES, INSUFFICIENT_QUOTA),
}


def error_body(status: int, message: str, code: str, param: str | None) -> dict[str, Any]:
    """The body for an error with this ``code`` of ours; ``param`` is the field as the client names it."""
    error = {
        "message": message,
        "type": INSUFFICIENT_QUOTA if code in QUOTA_CODES else _type_of(status),
        "param": param,
        "code": _CODES.get(code, code.lower()),
    }
    return {"error": error}


def _type_of(status: int) -> str:
    return _TYPES.get(status, INVALID_REQUEST if status < 500 else "server_error")
