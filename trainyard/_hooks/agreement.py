"""Agreement of a script's ranks on one step boundary without a collective, through small files.

Every rank asks the same question ("stop?") equally often, so the n-th call of each rank belongs to the same step. When
a control request reaches a rank, its reader thread records how often the rank has asked so far; the boundary is the
first call that no rank has passed yet. Only reader threads have to make progress for that, so a rank that blocks in a
collective of the script cannot block the agreement.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_POLL_SECONDS = 0.005


class Agreement:
    """One rank's part in the agreement. `directory` is private to the attempt and shared by its ranks."""

    def __init__(self, directory: Path, rank: int, given_up: Callable[[], bool]) -> None:
        self._directory = directory
        self._rank = rank
        self._given_up = given_up
        self._asked: Counter[str] = Counter()
        self._proposed: set[str] = set()
        self._lock = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True)
        # Join before reading: a rank that did not see this one join has already proposed.
        self._joined(rank).touch()
        for path in directory.glob("proposal.*"):
            _, question, number, _ = path.name.split(".")
            self.propose(question, int(number), reason=_read(path).reason)

    def propose(self, question: str, number: int = 0, *, reason: str = "") -> None:
        """Record that the `number`-th answer to `question` becomes yes, and why."""
        with self._lock:
            key = f"{question}.{number}"
            if key not in self._proposed:
                self._publish(f"proposal.{key}.{self._rank}", f"{self._asked[question]} {reason}")
                self._proposed.add(key)

    def due(self, question: str, number: int = 0) -> bool:
        """Ask once; the same call returns yes on every rank."""
        with self._lock:
            self._asked[question] += 1
            asked = self._asked[question]
            if f"{question}.{number}" not in self._proposed:
                return False
        passed = self._passed(f"{question}.{number}")
        return passed is None or asked > passed

    def reasons(self, question: str, number: int = 0) -> set[str]:
        """Why the answer was yes: the same set on every rank, whichever rank received which request."""
        return {_read(path).reason for path in self._directory.glob(f"proposal.{question}.{number}.*")}

    def abandoned_stops(self) -> int:
        """Number of stops that were requested and then abandoned."""
        return sum(1 for _ in self._directory.glob("over.*"))

    def abandon_stop(self, number: int) -> None:
        """Record that the ``number``-th stop is abandoned; the next stop is a new question."""
        self._publish(f"over.{number}", "")

    def answer(self, question: str, word: str) -> None:
        """Publish rank 0's answer to all ranks."""
        self._publish(f"answer.{question}", word)

    def answered(self, question: str) -> str | None:
        """Wait for rank 0's answer, also if it is yet to join; None when it has left or the wait is abandoned."""
        path = self._directory / f"answer.{question}"
        while not path.exists():
            # Checked in this order because rank 0 may answer and leave at once.
            if (self._given_up() or self._left(0).exists()) and not path.exists():
                return None
            time.sleep(_POLL_SECONDS)
        return path.read_text()

    def contribute(self, round_name: str, outcome: str) -> None:
        """Report that this rank has done its part of a collective operation."""
        self._publish(f"done.{round_name}.{self._rank}", outcome)

    def outcomes(self, round_name: str, world_size: int) -> list[str]:
        """Wait for every rank's contribution; fewer than `world_size` when the wait is abandoned."""
        while True:
            found = [path.read_text() for path in self._directory.glob(f"done.{round_name}.*")]
            if len(found) >= world_size or self._given_up():
                return found
            time.sleep(_POLL_SECONDS)

    def leave(self) -> None:
        """This rank asks no more, so other ranks do not wait for it."""
        self._left(self._rank).touch()
        self._joined(self._rank).unlink(missing_ok=True)

    def _passed(self, key: str) -> int | None:
        """The highest call that some rank has passed, once all joined ranks have answered; else None."""
        while not self._given_up():
            # Joined ranks must be listed first: see __init__.
            ranks = {path.suffix for path in self._directory.glob("joined.*")}
            counts = {path.suffix: path for path in self._directory.glob(f"proposal.{key}.*")}
            if ranks <= counts.keys():
                return max(_read(path).asked for path in counts.values())
            time.sleep(_POLL_SECONDS)
        return None

    def _joined(self, rank: int) -> Path:
        return self._directory / f"joined.{rank}"

    def _left(self, rank: int) -> Path:
        return self._directory / f"left.{rank}"

    def _publish(self, name: str, content: str) -> None:
        draft = self._directory / f"draft.{name}"
        draft.write_text(content)
        draft.rename(self._directory / name)


@dataclass(frozen=True)
class _Proposal:
    asked: int
    reason: str


def _read(path: Path) -> _Proposal:
    asked, _, reason = path.read_text().partition(" ")
    return _Proposal(int(asked), reason)
