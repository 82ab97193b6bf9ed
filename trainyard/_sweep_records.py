"""Types of the server's answers about sweeps, part of trainyard.records."""

from typing import Any, TypedDict

SWEEP_TERMINAL = frozenset({"COMPLETED", "CANCELLED", "FAILED"})
Value = int | float | bool | str


class CreatedSweep(TypedDict):
    sweep_id: str
    status: str
    message: str
    warnings: list[str]


class SweepPlan(TypedDict):
    """The answer to a dry run."""

    valid: bool
    grid_size: int | None
    rungs: list[dict[str, float]]
    suggestions: list[dict[str, Value]]
    warnings: list[str]


class BestOfSweep(TypedDict):
    number: int
    job_id: str | None
    values: dict[str, Value]
    objectives: list[float] | None


class Sweep(TypedDict):
    """``document`` is the sweep as submitted with every default; ``best`` is None with several objectives."""

    sweep_id: str
    name: str
    labels: dict[str, str]
    project: str
    created_by: str
    status: str
    status_reason: str
    pending_reason: str
    document: dict[str, Any]
    trials: int
    trials_by_state: dict[str, int]
    device_hours: float
    elapsed_seconds: float
    eta_seconds: float | None
    best: BestOfSweep | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    version: int


class TrialReport(TypedDict):
    """A value of the objective at a rung, and the decision there: ``rank`` among ``compared`` reports."""

    rung: int
    value: float | None
    continues: bool
    rank: int
    compared: int
    at: str


class Trial(TypedDict):
    """``objectives`` are as measured, in the order of the sweep's; ``source`` is method, enqueued or added."""

    number: int
    job_id: str | None
    state: str
    reason: str
    values: dict[str, Value]
    objectives: list[float] | None
    is_feasible: bool
    job_status: str | None
    step: int
    total_steps: int | None
    source: str
    note: str
    bracket: int
    promoted: bool
    error_type: str | None
    reports: list[TrialReport]
    device_seconds: float
    seed: int
    seen_seq: int
    created_at: str
    finished_at: str | None


class BestTrial(Trial):
    """``document`` is the trial's job document, ready to be submitted; None unless requested."""

    document: dict[str, Any] | None


class Replay(TypedDict):
    """``differences`` name what was stored and what was computed again; none are expected."""

    is_equal: bool
    suggestions: int
    decisions: int
    differences: list[dict[str, Any]]


# For annotations in classes that have a method `list`.
BestTrials = list[BestTrial]
