"""The interface of built-in trainers."""

from typing import Protocol

from workers.rank.run_context import Result, RunContext


class Trainer(Protocol):
    """One rank of a training: constructed with its context, run once.

    `run` reports and checkpoints through the context, ends at the step boundary that all ranks agree on when a stop is
    requested, and returns how it ended; an exception fails the job.
    """

    def __init__(self, context: RunContext) -> None: ...

    def run(self) -> Result: ...
