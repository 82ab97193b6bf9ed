"""What a request asks of the loop, and the shape of its answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.trainers.inference.serving.openai.chance import Chance
from workers.trainers.inference.serving.openai.choices import AnswerChoice, Part
from workers.trainers.inference.serving.openai.echoes import Echo
from workers.trainers.inference.serving.requests import GenerationRequest

CHAT, TEXT = "chat.completion", "text_completion"  # Asking.object
_CHUNK = {CHAT: "chat.completion.chunk", TEXT: TEXT}
_IDS = {CHAT: "chatcmpl", TEXT: "cmpl"}


@dataclass(frozen=True)
class Asking:
    """``choices`` belong to ``requests`` in their order, or there are no requests: the choices are ``echoes`` alone.
    ``param`` is the field that has the prompt.
    """

    object: str
    fingerprint: str
    param: str
    requests: Sequence[GenerationRequest]
    choices: Sequence[AnswerChoice]
    prompt_tokens: int
    body: Mapping[str, Any]
    chance: Chance
    echoes: Sequence[Echo] = ()

    @property
    def streams(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def includes_usage(self) -> bool:
        return bool((self.body.get("stream_options") or {}).get("include_usage"))

    def whole(self, completion_tokens: int) -> dict[str, Any]:
        """The answer in one piece."""
        choices = [choice.whole() for choice in self.choices]
        return {**self._head(self.object), "choices": choices, "usage": self._usage(completion_tokens)}

    def chunk(self, part: Part) -> dict[str, Any]:
        """A part of one choice, in a stream."""
        usage = {"usage": None} if self.includes_usage else {}
        return {**self._head(_CHUNK[self.object]), "choices": [part], **usage}

    def last_chunk(self, completion_tokens: int) -> dict[str, Any]:
        """The one with the usage, behind all choices."""
        return {**self._head(_CHUNK[self.object]), "choices": [], "usage": self._usage(completion_tokens)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"{_IDS[self.object]}-{self.chance.id}",
            "object": kind,
            "created": self.chance.created,
            "model": self.body["model"],
            "system_fingerprint": self.fingerprint,
        }

    def _usage(self, completion_tokens: int) -> dict[str, int]:
        total = self.prompt_tokens + completion_tokens
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": total}
