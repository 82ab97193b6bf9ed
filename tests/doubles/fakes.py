"""Doubles of what a test does not want to start; each passes the same conformance test as the real one."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class FakeDispatcher:
    """Remembers what was rung for."""

    admitted: list[tuple[str, str, int]] = field(default_factory=list)
    runs: list[tuple[list[tuple[str, int]], str, str, int]] = field(default_factory=list)
    nudged: list[tuple[str, str]] = field(default_factory=list)

    def ring_admit(self, job_id: str, queue: str, priority: int) -> None:
        self.admitted.append((job_id, queue, priority))

    def ring_run(self, attempts: Sequence[tuple[str, int]], node: str, device_type: str, priority: int) -> None:
        self.runs.append((list(attempts), node, device_type, priority))

    def nudge(self, job_id: str, node: str) -> None:
        self.nudged.append((job_id, node))

    def close(self) -> None:
        """Holds nothing."""
