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
MOST_TOKENS = 1 << 31  # of one request; an engine may say anything
MOST_EVENT_BYTES = 1 << 20


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
    return Tokens(_count(prompt), _count(completion))


def _count(value: object) -> int:
    """0 for what is no count: usage that engines make up must not harm that of others."""
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else 0


class EventStream:
    """Engines always send the usage; a client that did not ask for it does not get its event (``keeps_usage``)."""

    def __init__(self, *, keeps_usage: bool) -> None:
        self._keeps_usage = keeps_usage
        self._rest = bytearray()
        self._usage: Tokens | None = None
        self._events = 0
        self.is_complete = False  # its last event has come
        self.has_failed = False  # the engine has sent an error
        self.is_broken = False  # what it has sent is no stream of events; nothing more is taken

    @property
    def tokens(self) -> Tokens:
        """As the engine says; before it has said so, an event counts as a token of the answer."""
        return self._usage or Tokens(0, self._events)

    def feed(self, chunk: bytes) -> bytes:
        """The complete events so far that the client gets."""
        if self.is_broken:
            return b""
        whole = self._whole(chunk)
        self._events += whole.count(_END_OF_EVENT)
        if _DONE in whole or _ERROR.search(whole) is not None or _USAGE.search(whole) is not None:
            try:
                return b"".join(self._kept(whole))
            except (ValueError, TypeError, RecursionError):
                self._break()
                return b""
        return whole

    def _whole(self, chunk: bytes) -> bytes:
        """The events that end with this chunk; the rest is kept."""
        searched = max(0, len(self._rest) - 1)  # the first half of an end may have come before
        self._rest += chunk
        cut = self._rest.rfind(_END_OF_EVENT, searched) + len(_END_OF_EVENT)
        if cut < len(_END_OF_EVENT):
            if len(self._rest) > MOST_EVENT_BYTES:
                self._break()
            return b""
        whole = bytes(self._rest[:cut])
        del self._rest[:cut]
        return whole

    def _break(self) -> None:
        self.is_broken, self.is_complete, self.has_failed = True, False, False
        self._rest.clear()

    def _kept(self, whole: bytes) -> Iterator[bytes]:
        for event in whole.split(_END_OF_EVENT)[:-1]:
            self.is_complete = self.is_complete or event.startswith(_DONE)
            self.has_failed = self.has_failed or _ERROR.match(event) is not None
            if not self._is_only_usage(event) or self._keeps_usage:
                yield event + _END_OF_EVENT

    def _is_only_usage(self, event: bytes) -> bool:
        """Whether the event has nothing but the usage, which is noted.

        Raises ValueError, TypeError and RecursionError.
        """
        if _USAGE.search(event) is None:
            return False
        document: Any = json.loads(event.removeprefix(b"data:"))
        if not isinstance(document, dict):
            raise TypeError("an event must be an object")
        self._usage = tokens_of(document.get("usage"))
        return not document.get("choices")
