"""What the generation loop is asked, and what it says while it answers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from workers.trainers.inference.engine.interface import RequestRefused, SamplingParams

ServedSampling = SamplingParams  # of one request


class QueueFull(Exception):
    """As many requests wait as may; the request was not accepted."""


class NeverFits(Exception):
    """More answers at once than the loop ever takes."""


class Closed(Exception):
    """The loop takes no requests any more: it drains, or it has ended."""


class NoSuchAdapter(Exception):
    """A call needs an adapter that is not among the loaded ones."""


class AdapterSource(Protocol):
    """Where the loop gets adapters from, each by the name that requests give."""

    def directory(self, name: str) -> Path:
        """Where its files lie; blocks until they are there. Raises AdapterNotLoaded."""


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """One answer to one prompt; ``adapter`` None: the model itself."""

    prompt: tuple[int, ...]
    sampling: ServedSampling
    seed: int = 0
    adapter: str | None = None


@dataclass(frozen=True, kw_only=True)
class TokenInfo:
    """A token of an answer; logarithms are those of the model's distribution before sampling options."""

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()  # the likeliest ones, best first


@dataclass(frozen=True, kw_only=True)
class Delta:
    """More of an answer. The last one has a ``finish_reason`` (stop, length), or says why there is no answer.

    ``text`` never ends within a character or within what may become a stop text; ``tokens`` are those that have been
    chosen for it. The texts of all deltas are the answer's text, their tokens the answer's tokens.
    """

    text: str = ""
    tokens: tuple[TokenInfo, ...] = ()
    finish_reason: str | None = None
    refused: RequestRefused | None = None

    @property
    def is_last(self) -> bool:
        return self.finish_reason is not None or self.refused is not None


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Totals since the loop began: ``steps`` of the model, and ``tokens`` of answers."""

    steps: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class LoopCounts:
    """Requests that the model answers now, and those that wait for a place or an adapter."""

    in_flight: int
    waiting: int
    adapters: int = 0  # in memory
