"""A judge for evaluations in this process: a function in place of the gateway."""

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from workers.rank.run_context import NotAnswered

CHAT = "/v1/chat/completions"


class FakeJudge:
    """Answers each chat by ``says(text)``: a text, or an error. Keeps what it was asked, in any order."""

    def __init__(self, says: Callable[[str], str | NotAnswered], *, finish_reason: str = "stop") -> None:
        self.asked: list[dict[str, Any]] = []
        self.most_at_once = 0
        self._says, self._finish_reason = says, finish_reason
        self._lock, self._open = threading.Lock(), 0

    def __call__(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            self.asked.append({"path": path, **json.loads(json.dumps(body))})
            self._open += 1
            self.most_at_once = max(self.most_at_once, self._open)
        try:
            said = self._says(str(body["messages"][0]["content"]))
        finally:
            with self._lock:
                self._open -= 1
        if isinstance(said, NotAnswered):
            raise said
        message = {"role": "assistant", "content": said}
        choice = {"index": 0, "message": message, "finish_reason": self._finish_reason}
        return {"choices": [choice], "model": body["model"], "system_fingerprint": "fp_1"}

    @property
    def judged(self) -> list[dict[str, Any]]:
        """The requests without the first one, which asks whether the judge is there."""
        return self.asked[1:]
