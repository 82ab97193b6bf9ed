"""The processes that speak to tracking services: how they end, and that nothing but answers is an answer."""

import subprocess
import sys
from contextlib import ExitStack

import pytest

from workers.tracking.child import TrackingChild
from workers.tracking.failures import ProcessEnded

PRINTS = """
import os
from workers.tracking.conversation import converse

class Run:
    secrets = ()
    def open(self):
        print("said by the client")
        os.write(1, b"said by its program\\n")
        return 3
    def act(self, request):
        return 5

converse(lambda first: Run())
"""


def child_of(*command: str, around: ExitStack | None = None) -> tuple[TrackingChild, "subprocess.Popen[bytes]"]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return TrackingChild(process, around or ExitStack()), process


def test_what_a_client_prints_is_no_answer() -> None:
    child, _ = child_of(sys.executable, "-c", PRINTS)
    try:
        assert child.ask({"service": {}}, 20.0) == 3
        assert child.ask({"points": [], "seq": 9}, 20.0) == 5
    finally:
        child.close()


def test_what_is_around_the_process_is_closed_while_its_id_is_its_own() -> None:
    codes: list[int | None] = []
    around = ExitStack()
    child, process = child_of("sleep", "60", around=around)
    around.callback(lambda: codes.append(process.returncode))

    child.close()

    assert codes == [None]
    assert process.returncode == -9


def test_process_that_has_ended_is_told_from_a_service_that_fails() -> None:
    child, process = child_of("true")
    process.wait()
    try:
        with pytest.raises(ProcessEnded):
            child.ask({"service": {}}, 20.0)
    finally:
        child.close()
