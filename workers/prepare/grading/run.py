"""A run of a Python grader: its program in a sandbox without network, with limits of time and memory.

`python -m workers.prepare.grading.run`, or in the process of a forked preflight.
"""

import json
import math
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import IO, Any

from app.domain.nodes.sandboxes import WITHOUT_NAMESPACES
from config.settings import Settings
from workers.prepare.confined_program import last_line, run, scratch
from workers.prepare.own_user import borrowed_user
from workers.prepare.preflight_answer import answer
from workers.sandbox.sandbox import SandboxUnavailable, choose_sandbox
from workers.sandbox.spec import SandboxSpec

QUESTION, REPORT, LOG = "question.json", "report.json", "grader.log"
NO_SANDBOX = "this coordinator runs no graders without a sandbox, and TRAINYARD_NODE_SANDBOX={} is none"
SHARED_MEMORY_MB = 16
_MOST_REPORT_BYTES = 64 << 10

Report = dict[str, Any]


def main() -> int:
    return answer(run_grader)


def run_grader(settings: Settings, question: Mapping[str, Any]) -> Report:
    """{reward}; {runtime_error} of the grader; {unavailable} where none can run."""
    seconds = float(question["seconds"])
    if settings.node.sandbox in WITHOUT_NAMESPACES:  # whose graders could read the coordinator's secrets
        return {"unavailable": NO_SANDBOX.format(settings.node.sandbox)}
    try:
        sandbox = choose_sandbox(settings.node.sandbox)
    except SandboxUnavailable as error:
        return {"unavailable": f"this coordinator runs no graders without a sandbox: {error}"}
    with scratch(settings, "grader") as view, ExitStack() as opened:
        files = (opened.enter_context((view.run_dir / name).open("w+b")) for name in (QUESTION, REPORT, LOG))
        given, output, log = files
        given.write(_request_of(question["grading"]))
        given.seek(0)
        user = opened.enter_context(borrowed_user(settings, view, sandbox))
        spec = SandboxSpec(view=view, shm_mb=SHARED_MEMORY_MB, user=user)
        why = run(sandbox, _command(seconds), spec, (given.fileno(), output, log), seconds)
        output.seek(0)
        return _read(output, log, why)


def _request_of(grading: str) -> bytes:
    """``grading`` is the JSON of {source, sample, item}."""
    return json.dumps({"key": "", **json.loads(grading)}).encode() + b"\n"


def _command(seconds: float) -> list[str]:
    return [sys.executable, "-m", "workers.prepare.grading.program", str(seconds)]


def _read(output: IO[bytes], log: IO[bytes], why_none: str) -> Report:
    try:
        found = json.loads(output.read(_MOST_REPORT_BYTES))
        if "error" in found:
            return {"runtime_error": str(found["error"])}
        reward = float(found["value"])
    except (ValueError, RecursionError, TypeError, KeyError, OverflowError):
        return {"runtime_error": f"grade has no result: {why_none or 'it ended with exit code 0'}{last_line(log)}"}
    if not math.isfinite(reward):
        return {"runtime_error": f"grade returned {reward}, which is no finite number"}
    return {"reward": reward}


if __name__ == "__main__":
    sys.exit(main())
