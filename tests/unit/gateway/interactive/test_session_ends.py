"""How the end of a command becomes that of its session."""

import pytest

from app.gateway.interactive.ends import NORMAL, End, command_ended
from trainyard.protocol.session_answers import Status


@pytest.mark.parametrize(
    ("status", "exit_code", "reason"),
    [
        (Status(exit_code=0), 0, "the command has ended with exit code 0"),
        (Status(exit_code=137, signal="SIGKILL"), 137, "the command has ended with exit code 137"),
        (Status(message="its terminal broke"), None, "its terminal broke"),
    ],
)
def test_a_status_gives_exit_code_and_reason(status: Status, exit_code: int | None, reason: str) -> None:
    end = command_ended(status)
    assert (end.code, end.exit_code, end.reason) == (NORMAL, exit_code, reason)


def test_the_reason_of_a_close_frame_is_cut_at_a_character() -> None:
    assert End("é" * 100).short_reason == "é" * 61
    assert len(End("é" * 100).short_reason.encode()) <= 123
    assert End("a\ud800b").short_reason == "a?b"
