"""Processes that hold credentials keep them from others of the same user."""

import subprocess
import sys

import pytest

ASK = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"  # PR_GET_DUMPABLE


@pytest.mark.parametrize(
    ("statement", "dumpable"),
    [
        ("pass", "1"),
        ("from config.privacy import hide_from_same_user; hide_from_same_user()", "0"),
        ("from app.cli import gunicorn_hooks; gunicorn_hooks.on_starting(None)", "0"),
        ("from workers import processes; processes.hide_from_same_user()", "0"),
    ],
)
def test_process_can_be_hidden(statement, dumpable):
    command = [sys.executable, "-c", f"{statement}; {ASK}"]

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == dumpable
