"""What the process of a tracking service is asked, one line of JSON after the other, and what it answers.

The first request says which run: ``{"service": …, "facts": …}``; then come ``{"points": …, "seq": …, "attempt": …}``,
``{"outcome": …, "seq": …}`` for clients that deliver in the background, and ``{"state": …, "at_ms": …, "seq": …}``. An
answer is ``{"seq": …}`` or ``{"problem": …, "refused": …}``.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from workers.fetching.child.server import speak_without
from workers.fetching.uris import shown
from workers.tracking.failures import NotDelivered

Request = dict[str, Any]


class TrackedRun(Protocol):
    """A job as a run of a service; its methods raise NotDelivered."""

    secrets: tuple[str, ...]  # texts that no message may contain

    def open(self) -> int:
        """Find or create the run; returns the arrival number up to which it has the job's points."""
        ...

    def act(self, request: Request) -> int:
        """Carry out a later request; returns the arrival number up to which the service has the points for certain."""
        ...


def converse(described: Callable[[Request], TrackedRun]) -> int:
    """Answer the requests on stdin to their end; ``described`` makes the run of the first one. Returns an exit code."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a client prints is no answer
    run: TrackedRun | None = None
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            if run is None:
                run = described(request)
                speak_without(run.secrets)
            answer = _answer(run, request)
        except Exception:  # noqa: BLE001 – the outermost: the parent sees that no answer came
            sys.stderr.write(traceback.format_exc())
            return 1
        text = memoryview(json.dumps(answer).encode() + b"\n")
        while text:
            text = text[os.write(answers, text) :]
    return 0


def _answer(run: TrackedRun, request: Request) -> dict[str, Any]:
    try:
        if "service" in request:
            return {"seq": run.open()}
        return {"seq": run.act(request)}
    except NotDelivered as error:
        return {"problem": shown(error.message, run.secrets), "refused": error.refused}
