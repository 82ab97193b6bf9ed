"""How the last frame of a session server, which a hostile job may write, is read."""

import json

import pytest

from app.gateway.interactive.ends import NORMAL, PROTOCOL, End, command_ended


@pytest.mark.parametrize(
    ("status", "exit_code", "reason"),
    [
        ({"exit_code": 0, "signal": None, "message": ""}, 0, "the command has ended with exit code 0"),
        ({"exit_code": 137, "signal": "SIGKILL", "message": ""}, 137, "the command has ended with exit code 137"),
        ({"exit_code": None, "message": "its terminal broke"}, None, "its terminal broke"),
        ({"exit_code": True, "message": "x"}, None, "x"),
        ({"exit_code": 10**30, "message": "x"}, None, "x"),
        ({"exit_code": 0, "message": "y" * 5000}, 0, "y" * 1000),
    ],
)
def test_a_status_gives_exit_code_and_reason(status: object, exit_code: int | None, reason: str) -> None:
    end = command_ended(json.dumps(status).encode())
    assert (end.code, end.exit_code, end.reason) == (NORMAL, exit_code, reason)


@pytest.mark.parametrize("payload", [b"", b"{}", b"[]", b"null", b"7", b"\xff", b"[" * 60_000])
def test_what_is_no_status_breaks_the_protocol(payload: bytes) -> None:
    assert command_ended(payload).code == PROTOCOL


def test_the_reason_of_a_close_frame_is_cut_at_a_character() -> None:
    assert End("é" * 100).short_reason == "é" * 61
    assert len(End("é" * 100).short_reason.encode()) <= 123
