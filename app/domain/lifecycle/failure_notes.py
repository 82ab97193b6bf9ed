"""A failure in words: what its type means, the way out, and the line of the traceback that says it."""

from dataclasses import dataclass

from app.domain.errors import ERROR_TYPES, is_cause

_LONGEST = 500
# What Python writes between an exception and the one that it led to.
_LED_TO = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)


@dataclass(frozen=True, kw_only=True)
class FailureNote:
    """``way_out`` is empty where the message itself contains it; ``last_line`` where there is no traceback.

    ``cause_line`` names the exception with which a chain of them began.
    """

    error_type: str
    meaning: str
    message: str
    way_out: str
    last_line: str
    cause_line: str


def failure_note(error_type: str, message: str, stack: str) -> FailureNote:
    known = ERROR_TYPES[error_type] if is_cause(error_type) else None
    way_out = known.what_to_do if known is not None else ""
    last, cause = _last_line(stack), _cause_line(stack)
    return FailureNote(
        error_type=error_type,
        meaning=known.meaning if known is not None else "",
        message=message,
        way_out="" if way_out in message else way_out,
        last_line="" if last in message else last,
        cause_line="" if cause in message else cause,
    )


def _last_line(stack: str) -> str:
    lines = [line.strip() for line in stack.splitlines() if line.strip()]
    return lines[-1][:_LONGEST] if lines else ""


def _cause_line(stack: str) -> str:
    begins = min((stack.find(each) for each in _LED_TO if each in stack), default=0)
    return _last_line(stack[:begins])
