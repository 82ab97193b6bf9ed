"""What a method knows of one earlier trial."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from app.domain.sweeps.parameters import Value

State = Literal["completed", "stopped", "failed", "running"]


@dataclass(frozen=True, kw_only=True)
class Observation:
    """``objectives`` have signs with which smaller is better; they are empty while there are none.

    ``step`` is that of a stopped trial's last report. ``violations`` has a number for each constraint; above 0 it is
    violated.
    """

    number: int
    values: Mapping[str, Value] = field(hash=False)
    state: State
    objectives: tuple[float, ...] = ()
    step: int = 0
    violations: tuple[float, ...] = ()

    @property
    def is_feasible(self) -> bool:
        return all(violation <= 0 for violation in self.violations)

    def to_json(self) -> dict[str, Any]:
        """For the pipe to a method's process; without what is the default."""
        found: dict[str, Any] = {"number": self.number, "values": dict(self.values), "state": self.state}
        if self.objectives:
            found["objectives"] = list(self.objectives)
        if self.step:
            found["step"] = self.step
        if self.violations:
            found["violations"] = list(self.violations)
        return found

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> "Observation":
        return Observation(
            number=raw["number"],
            values=raw["values"],
            state=raw["state"],
            objectives=tuple(raw.get("objectives", ())),
            step=raw.get("step", 0),
            violations=tuple(raw.get("violations", ())),
        )
