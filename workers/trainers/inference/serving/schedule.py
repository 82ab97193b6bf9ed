"""Which requests share the next step of the model: the seam between the loop and the ways of generating."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from workers.trainers.inference.serving.answer import AnswerInProgress

After = Callable[[Sequence[AnswerInProgress]], None]  # is called after each step with the answers that it has advanced


class RequestSchedule(Protocol):
    """Accepted requests, each with its adapter loaded."""

    @property
    def places(self) -> int:
        """Most requests at once."""

    @property
    def answers(self) -> Collection[AnswerInProgress]:
        """The unfinished ones."""

    def has_room(self, answer: AnswerInProgress) -> bool:
        """Whether it can be added now."""

    def add(self, answer: AnswerInProgress) -> None: ...

    def remove(self, answer: AnswerInProgress) -> None:
        """Give up a request."""

    def run(self, after: After) -> None:
        """One step, or several, of requests that may share them; there is at least one."""
