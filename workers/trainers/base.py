"""What every built-in trainer is."""

from typing import Protocol

from workers.rank.run_context import Result, RunContext


class Trainer(Protocol):
    """One rank of a training: made with its context, run once.

    `run` reports and checkpoints through the context, ends at the step boundary that all ranks
    agree on when a stop is wished for, and returns how it ended; what it raises fails the job.
    """

    def __init__(self, context: RunContext) -> None: ...

    def run(self) -> Result: ...
