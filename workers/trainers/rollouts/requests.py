"""What a training asks a rollout, and what it answers: the headers and bytes of `wire` messages."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from workers.trainers.inference.engine.interface import Prompt
from workers.trainers.rollouts.completer import SamplingOptions
from workers.trainers.rollouts.wire import Wire, WireClosed

WEIGHTS, COMPLETE = "weights", "complete"  # of a request
# Of an answer. Weights are sent in two parts: what they are (after SEND), and their bytes, only after GO.
SEND, GO, HAS, TAKEN, NEEDS, COMPLETIONS, FAILED = "send", "go", "has", "taken", "needs", "completions", "failed"
_TOKEN = np.dtype("<i4")


def ask_for_completions(wire: Wire, version: str, prompts: Sequence[Prompt], options: SamplingOptions) -> None:
    """Raises OSError."""
    header = {
        "kind": COMPLETE,
        "version": version,
        "options": options.to_document(),
        "seeds": [each.seed for each in prompts],
        "lengths": [len(each.tokens) for each in prompts],
    }
    wire.send(header, [_packed([each.tokens for each in prompts])])


def prompts_of(header: dict[str, Any], wire: Wire, size: int) -> list[Prompt]:
    """Raises OSError."""
    rows = _unpacked(header["lengths"], wire, size)
    return [Prompt(tokens=row, seed=int(seed)) for row, seed in zip(rows, header["seeds"], strict=True)]


def send_completions(wire: Wire, completions: Sequence[Sequence[int]]) -> None:
    """Raises OSError."""
    wire.send({"kind": COMPLETIONS, "lengths": [len(each) for each in completions]}, [_packed(completions)])


def completions_of(header: dict[str, Any], wire: Wire, size: int) -> list[list[int]]:
    """Raises OSError."""
    return _unpacked(header["lengths"], wire, size)


def _packed(rows: Sequence[Sequence[int]]) -> bytes:
    return np.array([token for row in rows for token in row], dtype=_TOKEN).tobytes()


def _unpacked(lengths: Sequence[int], wire: Wire, size: int) -> list[list[int]]:
    if size != sum(lengths) * _TOKEN.itemsize:
        raise WireClosed(f"{size} bytes of tokens; their lengths say {sum(lengths) * _TOKEN.itemsize}")
    tokens = np.frombuffer(wire.read(size), dtype=_TOKEN).tolist()
    found, place = [], 0
    for length in lengths:
        found.append(tokens[place : place + length])
        place += length
    return found
