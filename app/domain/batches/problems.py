"""Why a batch has failed, in the form of OpenAI's list of errors. Pure."""

import re
from typing import Any

from app.domain.files.inspection import TOO_MANY_REQUESTS, shown

_LINE = re.compile(r"line (\d+): (?:(custom_id|method|url|body(?:\.\w+)*): )?(.*)", re.DOTALL)
_CODES = {"method": "invalid_method", "url": "invalid_url", "custom_id": "invalid_custom_id"}

_LONGEST_PARAM = 128  # it may consist of names that a user has given

Problem = dict[str, Any]


def problem(code: str, message: str, *, param: str | None = None, line: int | None = None) -> Problem:
    where = shown(param[:_LONGEST_PARAM]) if param is not None else None
    return {"code": code, "message": shown(message), "param": where, "line": line}


def of_inspection(found: str) -> Problem:
    """A problem that the inspection of the file has found."""
    parts = _LINE.fullmatch(found)
    if parts is None:
        return problem("invalid_file", found)
    line, param, message = int(parts[1]), parts[2], parts[3]
    if message == TOO_MANY_REQUESTS:
        return problem("too_many_requests", message, line=line)
    if param is None:
        return problem("invalid_json_line", message, line=line)
    if param == "custom_id" and " is the one of line " in message:
        return problem("duplicate_custom_id", message, param=param, line=line)
    return problem(_CODES.get(param, "invalid_request"), message, param=param, line=line)
