"""How the ranks of a script agree on one step boundary without a collective: through small files.

Every rank asks the same question ("stop?") equally often, so the n-th asking of each rank is the
same step. When a wish reaches a rank, its reader thread notes how often it has asked so far; the
boundary is the first asking that no rank has passed yet. Only reader threads have to move for
that, so a rank that waits in a collective of the script cannot block the agreement.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_POLL_SECONDS = 0.005


class Agreement:
    """One rank's part in it. `directory` is private to the attempt and shared by its ranks."""

    def __init__(self, directory: Path, rank: int, given_up: Callable[[], bool]) -> None:
        self._directory = directory
        self._rank = rank
        self._given_up = given_up
        self._asked: Counter[str] = Counter()
        self._proposed: set[str] = set()
        self._lock = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True)
        # First join, then look: a rank that did not see us join has proposed before we look.
        self._joined(rank).touch()
        for path in directory.glob("proposal.*"):
            _, question, number, _ = path.name.split(".")
            self.propose(question, int(number), reason=_read(path).reason)

    def propose(self, question: str, number: int = 0, *, reason: str = "") -> None:
        """Note that the answer to `question` shall become yes, for the `number`-th time, and why."""
        with self._lock:
            key = f"{question}.{number}"
            if key not in self._proposed:
                self._publish(f"proposal.{key}.{self._rank}", f"{self._asked[question]} {reason}")
                self._proposed.add(key)

    def due(self, question: str, number: int = 0) -> bool:
        """Ask once; the same asking is answered yes on every rank."""
        with self._lock:
            self._asked[question] += 1
            asked = self._asked[question]
            if f"{question}.{number}" not in self._proposed:
                return False
        passed = self._passed(f"{question}.{number}")
        return passed is None or asked > passed

    def reasons(self, question: str, number: int = 0) -> set[str]:
        """Why it was answered yes: the same on every rank, whichever of them heard what."""
        return {_read(path).reason for path in self._directory.glob(f"proposal.{question}.{number}.*")}

    def given_up_stops(self) -> int:
        """How many stops were asked for and then not followed."""
        return sum(1 for _ in self._directory.glob("over.*"))

    def give_up_stop(self, number: int) -> None:
        """Note that the ``number``-th stop is not followed; the next one is another question."""
        self._publish(f"over.{number}", "")

    def answer(self, question: str, word: str) -> None:
        """Rank 0 says what all ranks are to hear."""
        self._publish(f"answer.{question}", word)

    def answered(self, question: str) -> str | None:
        """Wait for rank 0's word; None when it asks no more, or the wait is given up."""
        path = self._directory / f"answer.{question}"
        while not path.exists():
            # Looked at in this order: rank 0 may answer and leave at once.
            if (self._given_up() or not self._joined(0).exists()) and not path.exists():
                return None
            time.sleep(_POLL_SECONDS)
        return path.read_text()

    def contribute(self, round_name: str, outcome: str) -> None:
        """Say that this rank has done its part of a common work."""
        self._publish(f"done.{round_name}.{self._rank}", outcome)

    def outcomes(self, round_name: str, world_size: int) -> list[str]:
        """Wait for every rank's contribution; fewer than `world_size` when given up."""
        while True:
            found = [path.read_text() for path in self._directory.glob(f"done.{round_name}.*")]
            if len(found) >= world_size or self._given_up():
                return found
            time.sleep(_POLL_SECONDS)

    def leave(self) -> None:
        """This rank asks no more, so nobody has to wait for it."""
        self._joined(self._rank).unlink(missing_ok=True)

    def _passed(self, key: str) -> int | None:
        """The highest asking that some rank has passed, once all who joined have said; else None."""
        while not self._given_up():
            # The joined ones must be listed first: see __init__.
            ranks = {path.suffix for path in self._directory.glob("joined.*")}
            counts = {path.suffix: path for path in self._directory.glob(f"proposal.{key}.*")}
            if ranks <= counts.keys():
                return max(_read(path).asked for path in counts.values())
            time.sleep(_POLL_SECONDS)
        return None

    def _joined(self, rank: int) -> Path:
        return self._directory / f"joined.{rank}"

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
