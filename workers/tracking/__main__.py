"""The process that speaks to one tracking service; it has the service's token, and neither database nor settings.

Requests and answers are lines of JSON, one at a time. The first request says which run: ``{"service": …, "facts": …}``;
then come ``{"points": …, "seq": …, "attempt": …}`` and ``{"state": …, "at_ms": …}``. An answer is ``{"seq": …}`` or
``{"problem": …, "refused": …}``.
"""

import json
import os
import sys
import traceback
from typing import Any

from workers.fetching.child_server import become_child, speak_without
from workers.fetching.uris import shown
from workers.tracking.failures import NotDelivered
from workers.tracking.json_api import JsonApi
from workers.tracking.mlflow_run import MlflowRun, RunFacts


class Conversation:
    """Answers one request after the other, each within the time that a round of calls may take."""

    def __init__(self, first: dict[str, Any]) -> None:
        service = first["service"]
        self._seconds = float(service["round_seconds"])
        self._api = JsonApi(
            base=service["url"].rstrip("/"),
            username=service["username"],
            token=service["token"],
            allow=tuple(service["allow"]),
            call_seconds=float(service["timeout_seconds"]),
        )
        self.secrets = self._api.secrets
        self._run = MlflowRun(self._api, RunFacts(**first["facts"]))

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self._api.limit(self._seconds)
        try:
            return {"seq": self._act(request)}
        except NotDelivered as error:
            return {"problem": shown(error.message, self.secrets), "refused": error.refused}

    def _act(self, request: dict[str, Any]) -> int:
        if "service" in request:
            return self._run.open()
        if "points" in request:
            self._run.send(request["points"], request["seq"], request["attempt"])
        else:
            self._run.end(request["state"], request["at_ms"])
        return int(request["seq"])


def main() -> int:
    become_child()
    answers = os.dup(1)
    conversation: Conversation | None = None
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if conversation is None:
            conversation = Conversation(request)
            speak_without(conversation.secrets)
        try:
            answer = conversation.answer(request)
        except Exception:  # noqa: BLE001 – the outermost: the parent sees that no answer came
            sys.stderr.write(traceback.format_exc())
            return 1
        text = memoryview(json.dumps(answer).encode() + b"\n")
        while text:
            text = text[os.write(answers, text) :]
    return 0


if __name__ == "__main__":
    sys.exit(main())
