"""Reads an engine's event stream while it passes through: takes the usage from it and knows whether it is complete."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_END_OF_EVENT = b"\n\n"
_DONE = b"data: [DONE]"
# An object under this name is the usage: within texts its quotation marks are escaped.
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_ERROR = re.compile(rb'data: \{"error"\s*:')


@dataclass(frozen=True)
class Tokens:
    """What a request has used."""

    prompt: int = 0
    completion: int = 0

    @property
    def total(self) -> int:
        return self.prompt + self.completion


def tokens_of(usage: object) -> Tokens:
    """The counts of OpenAI's usage object; none for anything else."""
    if not isinstance(usage, dict):
        return Tokens()
    prompt, completion = (usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
    return Tokens(prompt if isinstance(prompt, int) else 0, completion if isinstance(completion, int) else 0)


class EventStream:
    """Engines always send the usage; a client that did not ask for it does not get its event (``keeps_usage``)."""

    def __init__(self, *, keeps_usage: bool) -> None:
        self._keeps_usage = keeps_usage
        self._rest = b""
        self._usage: Tokens | None = None
        self._events = 0
        self.is_complete = False  # its last event has come
        self.has_failed = False  # the engine has sent an error

    @property
    def tokens(self) -> Tokens:
        """As the engine says; before it has said so, an event counts as a token of the answer."""
        return self._usage or Tokens(0, self._events)

    def feed(self, chunk: bytes) -> bytes:
        """The complete events so far that the client gets."""
        data = self._rest + chunk if self._rest else chunk
        cut = data.rfind(_END_OF_EVENT) + len(_END_OF_EVENT)
        if cut < len(_END_OF_EVENT):
            self._rest = data
            return b""
        whole, self._rest = data[:cut], data[cut:]
        self._events += whole.count(_END_OF_EVENT)
        if _DONE in whole or _ERROR.match(whole) is not None or _USAGE.search(whole) is not None:
            return b"".join(self._kept(whole))
        return whole

    def _kept(self, whole: bytes) -> Iterator[bytes]:
        for event in whole.split(_END_OF_EVENT)[:-1]:
            self.is_complete = self.is_complete or event.startswith(_DONE)
            self.has_failed = self.has_failed or _ERROR.match(event) is not None
            if not self._is_only_usage(event) or self._keeps_usage:
                yield event + _END_OF_EVENT

    def _is_only_usage(self, event: bytes) -> bool:
        """Whether the event has nothing but the usage, which is noted."""
        if _USAGE.search(event) is None:
            return False
        document: dict[str, Any] = json.loads(event.removeprefix(b"data:"))
        self._usage = tokens_of(document.get("usage"))
        return not document.get("choices")
