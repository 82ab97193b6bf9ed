"""What a method knows of one earlier trial."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from app.domain.errors import Cause
from app.domain.sweeps.parameters import Value

State = Literal["completed", "stopped", "failed", "running"]
# Of a trial that has ended without a finite value of an objective, as one does whose loss became NaN.
NO_VALUE: Cause = "NO_RESULT"
# Causes that lie in a trial's own values; lost nodes, data and storage say nothing of them.
OWN_FAULTS: tuple[Cause, ...] = (
    *("OUT_OF_MEMORY", "HOST_OUT_OF_MEMORY", "NON_FINITE_LOSS", "DIVERGED", "SCRIPT_ERROR", NO_VALUE),
)


@dataclass(frozen=True, kw_only=True)
class Observation:
    """``objectives`` have signs with which smaller is better; they are empty while there are none.

    ``step`` is that of a stopped trial's last report. ``violations`` has a number for each constraint; above 0 it is
    violated. ``reports`` are (rung, value) with values like ``objectives``, for methods that learn from rungs.
    ``cause`` is the error type of a failed one; empty where there is none.
    """

    number: int
    values: Mapping[str, Value] = field(hash=False)
    state: State
    objectives: tuple[float, ...] = ()
    step: int = 0
    violations: tuple[float, ...] = ()
    reports: tuple[tuple[int, float], ...] = ()
    cause: str = ""

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
        if self.reports:
            found["reports"] = [list(each) for each in self.reports]
        if self.cause:
            found["cause"] = self.cause
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
            reports=tuple((rung, value) for rung, value in raw.get("reports", ())),
            cause=raw.get("cause", ""),
        )


@dataclass(frozen=True, kw_only=True)
class EarlierResult:
    """A result of an earlier sweep that a sweep begins with: an observation with a number below 0, and the trial that
    it comes from, which may be deleted since. ``sweep_id`` is empty where that was not stored.

    ``judged_by``: the constraints by which its violations were measured, as a hash; empty for none.
    """

    observation: Observation
    sweep_id: str = ""
    number: int = 0
    job_id: str | None = None
    judged_by: str = ""

    def to_json(self) -> dict[str, Any]:
        found = self.observation.to_json()
        if self.sweep_id:
            names = ("sweep_id", "number", "job_id", "judged_by")
            found["origin"] = {name: getattr(self, name) for name in names}
        return found

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> "EarlierResult":
        return EarlierResult(observation=Observation.from_json(raw), **raw.get("origin", {}))
