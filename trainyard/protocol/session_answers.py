"""What a session server says, as it is read outside of its sandbox, where any process of the job may have said it."""

import json
from dataclasses import dataclass
from typing import Any

from trainyard.protocol.messages import clean_text

MOST_TEXT = 1000  # characters
MOST_EXIT_CODE = 256


class BadAnswer(ValueError):
    """It is not what session servers say."""


@dataclass(frozen=True)
class Refusal:
    """``exit_code`` is what a shell would end with; ``final``: nor will it be done later."""

    message: str
    exit_code: int | None = None
    final: bool = False


@dataclass(frozen=True)
class Status:
    """``exit_code`` None: the command did not come to its end."""

    exit_code: int | None = None
    signal: str | None = None
    message: str = ""

    def encoded(self) -> bytes:
        document = {"exit_code": self.exit_code, "signal": self.signal, "message": self.message}
        return json.dumps(document).encode()


def read_answer(line: bytes | str) -> Refusal | None:
    """Of the line that follows a request; None: it was started. Raises BadAnswer."""
    answer = _object(line)
    if answer.get("type") == "started":
        return None
    if answer.get("type") != "refused":
        raise BadAnswer("neither started nor refused")
    message = _text(answer.get("message"), MOST_TEXT) or "the job's sandbox refuses"
    return Refusal(message, _exit_code(answer.get("exit_code")), final=answer.get("final") is True)


def read_status(payload: bytes) -> Status:
    """Of the last frame of a command. Raises BadAnswer."""
    status = _object(payload)
    if "exit_code" not in status:
        raise BadAnswer("no exit code")
    signal = _text(status.get("signal"), 32) or None
    return Status(_exit_code(status["exit_code"]), signal, _text(status.get("message"), MOST_TEXT))


def _object(text: bytes | str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadAnswer("not JSON") from error
    if not isinstance(found, dict):
        raise BadAnswer("no JSON object")
    return found


def _text(value: object, limit: int) -> str:
    """For terminals, too, which act on some characters."""
    text = " ".join(clean_text(value, limit).split())
    return "".join(each if each.isprintable() else "�" for each in text)


def _exit_code(value: object) -> int | None:
    return value if type(value) is int and abs(value) <= MOST_EXIT_CODE else None
