"""A failure in words: what its type means, the way out, and the line of the traceback that says it."""

from dataclasses import dataclass

from app.domain.errors import ERROR_TYPES, is_cause

_LONGEST = 500


@dataclass(frozen=True, kw_only=True)
class FailureNote:
    """``way_out`` is empty where the message itself contains it; ``last_line`` where there is no traceback."""

    error_type: str
    meaning: str
    message: str
    way_out: str
    last_line: str


def failure_note(error_type: str, message: str, stack: str) -> FailureNote:
    known = ERROR_TYPES[error_type] if is_cause(error_type) else None
    way_out = known.what_to_do if known is not None else ""
    last = _last_line(stack)
    return FailureNote(
        error_type=error_type,
        meaning=known.meaning if known is not None else "",
        message=message,
        way_out="" if way_out in message else way_out,
        last_line="" if last in message else last,
    )


def _last_line(stack: str) -> str:
    lines = [line.strip() for line in stack.splitlines() if line.strip()]
    return lines[-1][:_LONGEST] if lines else ""
