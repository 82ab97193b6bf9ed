"""Which exception ended a script, and where, by the tracebacks that Python really writes."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.protocol.messages import RankExit
from workers.supervisor.ranks.observations import Observations
from workers.supervisor.ranks.tracebacks import MAX_SHOWN, last_raised, with_place
from workers.supervisor.ranks.verdict import judge

CHAINED = """
def first():
    return {}["missing"]
try:
    first()
except KeyError as error:
    raise ValueError("no value") from error
"""
NO_JSON = "Expecting value: line 1 column 1 (char 0)"
NESTED = """
try:
    1 / 0
except ZeroDivisionError:
    int("one")
"""


def written(script: str, folder: Path) -> list[str]:
    """What Python writes to stderr when it runs the script."""
    path = folder / "train.py"
    path.write_text(script)
    return subprocess.run([sys.executable, path], capture_output=True, text=True, check=False).stderr.splitlines()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("x = 1\n\n1 / 0\n", "ZeroDivisionError: division by zero (train.py:3)"),
        ("def f():\n    raise KeyError('a')\nf()\n", "KeyError: 'a' (train.py:2)"),
        (CHAINED, "ValueError: no value (train.py:7)"),
        (NESTED, "ValueError: invalid literal for int() with base 10: 'one' (train.py:5)"),
        ("import json\njson.loads('x')\n", f"json.decoder.JSONDecodeError: {NO_JSON} (train.py:2)"),
        ("assert False\n", "AssertionError (train.py:1)"),
        ("raise RuntimeError('one\\ntwo')\n", "RuntimeError: one (train.py:1)"),
        ("def f(:\n", "SyntaxError: invalid syntax (train.py:1)"),
    ],
)
def test_last_exception_with_the_line_of_the_script(script: str, said: str, tmp_path: Path) -> None:
    assert str(last_raised(written(script, tmp_path))) == said


def test_output_of_other_processes_between_is_skipped(tmp_path: Path) -> None:
    lines = [part for line in written("1 / 0\n", tmp_path) for part in (line, "step 3 loss=0.5", "")]

    assert str(last_raised(lines)) == "ZeroDivisionError: division by zero (train.py:1)"


@pytest.mark.parametrize("lines", [[], ["loss: 1"], ["Traceback (most recent call last):"], ["ValueError: alone"]])
def test_no_traceback_no_exception(lines: list[str]) -> None:
    assert last_raised(lines) is None


START, FRAME, SOURCE = "Traceback (most recent call last):", '  File "/a/train.py", line 3, in <module>', "    f()"


@pytest.mark.parametrize(
    ("lines", "said", "is_end"),
    [
        ([f"[rank1]: {line}" for line in (START, FRAME, SOURCE, "ValueError: x", "more")], "ValueError: x", True),
        ([f"[default0]:[rank0]: {line}" for line in (START, FRAME, SOURCE, "ValueError: x")], "ValueError: x", True),
        ([f"[rank0]: {START}", f"[rank0]: {FRAME}", "[rank0]: A: x", "[rank0]:[W1129 warn"], "A: x", True),
        ([START, FRAME, SOURCE, "zlib.error: Error -3"], "zlib.error: Error -3", True),
        ([START, FRAME, SOURCE, "socket.timeout"], "socket.timeout", True),
        ([START, FRAME, SOURCE, "Epoch: 3", "ValueError: real"], "ValueError: real", True),
        ([START, FRAME, SOURCE, "Stopped: x"], "Stopped: x", True),
        ([START, FRAME, SOURCE, "ValueError: handled", "all fine now"], "ValueError: handled", False),
        ([START, FRAME, SOURCE, "Stopped: handled", "all fine now"], "Stopped: handled", False),
        ([START, FRAME, SOURCE, "ValueError: handled", START], "ValueError: handled", False),
        ([f"[default0]:{line}" for line in (START, FRAME, "ValueError: x", "fine")], "ValueError: x", False),
        ([START, FRAME, "ValueError: \x1b[31mred\x07"], "ValueError: red", True),
    ],
)
def test_tracebacks_as_they_stand_in_output(lines: list[str], said: str, is_end: bool) -> None:  # noqa: FBT001
    raised = last_raised(lines)

    assert raised is not None
    assert (raised.line, raised.place, raised.is_end) == (said, "train.py:3", is_end)


def test_group_of_exceptions_is_named_and_not_those_in_it(tmp_path: Path) -> None:
    lines = written("raise ExceptionGroup('both', [ValueError('a'), KeyError('b')])\n", tmp_path)

    raised = last_raised(lines)

    assert str(raised) == "ExceptionGroup: both (2 sub-exceptions) (train.py:1)"
    assert raised is not None
    assert raised.is_end


def test_long_message_is_cut(tmp_path: Path) -> None:
    said = str(last_raised(written("raise ValueError('x' * 9000)\n", tmp_path)))

    assert len(said) == MAX_SHOWN + len(" (train.py:1)")
    assert said.endswith("… (train.py:1)")


def test_message_of_hooks_gets_the_place_on_its_first_line(tmp_path: Path) -> None:
    stack = "\n".join(written("raise RuntimeError('one\\ntwo')\n", tmp_path))

    assert with_place("RuntimeError: one\ntwo", stack) == "RuntimeError: one (train.py:1)\ntwo"
    assert with_place("ended by SIGTERM", "no traceback") == "ended by SIGTERM"


@pytest.mark.parametrize(
    ("custom", "exit_code", "message"),
    [
        (True, 1, "ZeroDivisionError: division by zero (train.py:12); rank 0 ended with exit code 1"),
        (True, 3, "rank 0 ended with exit code 3"),  # a handled exception, and an end of its own
        (False, 1, "rank 0 ended with exit code 1"),
    ],
)
def test_script_without_hooks_says_the_exception_that_its_output_ends_with(
    custom: bool,  # noqa: FBT001
    exit_code: int,
    message: str,
) -> None:
    printed = [
        "Traceback (most recent call last):",
        '  File "/job/code/train.py", line 12, in <module>',
        "    1 / 0",
        "ZeroDivisionError: division by zero",
    ]
    exits = [RankExit(rank=0, exit_code=exit_code, signal=None, at=None)]

    verdict = judge(Observations(custom=custom, exits=exits, exit_code=1, last_lines={0: printed}))

    assert (verdict.message, verdict.stack) == (message, "\n".join(printed))


def test_exception_that_other_output_follows_is_not_told_as_the_cause() -> None:
    printed = [START, FRAME, SOURCE, "ValueError: handled", "no data left, ending"]
    exits = [RankExit(rank=0, exit_code=1, signal=None, at=None)]

    verdict = judge(Observations(custom=True, exits=exits, exit_code=1, last_lines={0: printed}))

    assert verdict.message == (
        "rank 0 ended with exit code 1; the last exception that it printed: ValueError: handled (train.py:3)"
    )
