"""Which requests share the next step of the model: the seam between the loop and the ways of generating."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from workers.trainers.inference.serving.answer import Answer

After = Callable[[Sequence[Answer]], None]  # is called after each step with the answers that it has advanced


class Schedule(Protocol):
    """Accepted requests, each with its adapter loaded."""

    @property
    def places(self) -> int:
        """Most requests at once."""

    @property
    def answers(self) -> Collection[Answer]:
        """The unfinished ones."""

    def has_room(self, answer: Answer) -> bool:
        """Whether it can be added now."""

    def add(self, answer: Answer) -> None: ...

    def remove(self, answer: Answer) -> None:
        """Give up a request."""

    def run(self, after: After) -> None:
        """One step, or several, of requests that may share them; there is at least one."""
