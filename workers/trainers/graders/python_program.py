"""The program of a process that runs python graders: reads a request a line, and answers each with a line.

It is started by its path, with its time limit in seconds, and imports nothing of ours.
"""

import errno
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, SupportsFloat

MEMORY = 2 * 1024**3  # bytes, of one process
_FILE = "<grader>"
_LONGEST = 500  # characters of an error
_SLACK = 5.0  # seconds after which a call ends whose caller has gone

Grade = Callable[[Any, Any], Any]


class _NotLoaded(Exception):
    pass


def main() -> None:
    seconds = float(sys.argv[1])
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what a grader prints is no answer
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    loaded: dict[str, Grade | str] = {}
    own = os.getpid()
    for line in requests:
        signal.setitimer(signal.ITIMER_REAL, seconds + _SLACK)
        answer = json.dumps(_answer(json.loads(line), loaded))
        if os.getpid() != own:
            os._exit(0)  # a fork of the grader that returned, too
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(answer.encode() + b"\n")
        answers.flush()


def _answer(request: dict[str, Any], loaded: dict[str, Grade | str]) -> dict[str, Any]:
    """``key`` names the source, which is given with the first request for it."""
    if "source" in request:
        loaded[request["key"]] = _load(request["source"])
    grade = loaded[request["key"]]
    if isinstance(grade, str):
        return {"error": grade}
    try:
        return {"value": _number(grade(request["sample"], request["item"]))}
    except BaseException as error:  # noqa: BLE001  a grader's error is an answer, its sys.exit too
        return {"error": _shown(error)}


def _load(source: str) -> Grade | str:
    """The function ``grade``, or why there is none."""
    names: dict[str, Any] = {"__name__": "grader"}
    try:
        exec(compile(source, _FILE, "exec"), names)  # noqa: S102  this process exists for that
    except BaseException as error:  # noqa: BLE001
        return _shown(error)
    grade = names.get("grade")
    return grade if callable(grade) else "the source defines no function grade(sample, item)"


def _number(value: object) -> float:
    if isinstance(value, str | bytes) or not isinstance(value, SupportsFloat):
        raise TypeError(f"grade returned {value!r:.100}, which is no number")
    return float(value)


def _shown(error: BaseException) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _FILE]
    where = f"line {lines[-1]}: " if lines else ""
    said = f": {error}" if str(error) else ""
    return f"{where}{type(error).__name__}{said}{_limit(error)}"[:_LONGEST]


def _limit(error: BaseException) -> str:
    """The limit that the grader has met, in parentheses."""
    if isinstance(error, MemoryError):
        return f" (a grader has {MEMORY // 1024**3} GiB of memory)"
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        return f" (a grader may write {most:,} bytes)" if most != resource.RLIM_INFINITY else ""
    return ""


if __name__ == "__main__":
    main()
