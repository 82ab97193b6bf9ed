"""Types of the server's answers about sweeps, part of trainyard.records."""

from typing import Any, TypedDict

from trainyard._records.reports import Artifact, TrainingReport

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
    device_hours_at_most: float | None
    rungs: list[dict[str, float]]
    suggestions: list[dict[str, Value]]
    trunks: list[dict[str, int]]  # trial, forked_from, step
    warnings: list[str]


class DeletedSweep(TypedDict):
    """``jobs`` were deleted with it; the server is still deleting the files of ``jobs_left`` of them."""

    sweep_id: str
    jobs: int
    jobs_left: int


class EarlierResult(TypedDict):
    """Where a result comes from that an earlier sweep has found."""

    sweep_id: str
    number: int


class Forecast(TypedDict):
    """What one more device hour is likely to bring."""

    expected_best_after_an_hour: float
    expected_improvement: float
    trials: float


class BestOfSweep(TypedDict):
    """``earlier`` is None but for an earlier result, whose number is below 0."""

    number: int
    job_id: str | None
    values: dict[str, Value]
    objectives: list[float] | None
    earlier: EarlierResult | None


class Sweep(TypedDict):
    """``document`` is the sweep as submitted with every default; ``best`` is None with several objectives, ``forecast``
    besides in lists, and while too few trials have completed.
    """

    sweep_id: str
    name: str
    labels: dict[str, str]
    project: str
    created_by: str
    created_by_name: str
    status: str
    status_reason: str
    pending_reason: str
    document: dict[str, Any]
    trials: int
    trials_by_state: dict[str, int]
    device_hours: float
    elapsed_seconds: float
    eta_seconds: float | None
    forecast: Forecast | None
    best: BestOfSweep | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    version: int


class TrialReport(TypedDict):
    """A value of the objective at a rung, and the decision there: ``rank`` among ``compared`` reports.

    While it is not decided, the trial has halted and waits.
    """

    rung: int
    value: float | None
    continues: bool
    is_decided: bool
    rank: int
    compared: int
    at: str


class AwaitedEvaluation(TypedDict):
    evaluation_id: str
    status: str


class Trial(TypedDict):
    """``objectives`` are as measured, in the order of the sweep's; ``source`` is method, enqueued, added or exploited.

    ``forked_from`` is the trial whose checkpoint it began with, which spared it ``steps_saved`` steps. ``waits_for``
    are the evaluations that have not ended of a trial whose training has.
    """

    number: int
    job_id: str | None
    state: str
    reason: str
    values: dict[str, Value]
    objectives: list[float] | None
    is_feasible: bool
    job_status: str | None
    waits_for: list[AwaitedEvaluation]
    step: int
    total_steps: int | None
    source: str
    note: str
    forked_from: int | None
    steps_saved: int
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
    """``document`` is the trial's job document, ready to be submitted; None unless requested. ``earlier`` is None but
    for an earlier result, whose number is below 0. ``report`` is as of `Job.report`, but for its evaluations, and None
    where the job was deleted; ``artifacts`` are the files of its model: path, size_bytes, sha256.
    """

    earlier: EarlierResult | None
    document: dict[str, Any] | None
    report: TrainingReport | None
    artifacts: list[Artifact]


# ``differences`` name what was stored and what was computed again; none are expected. It is of the trials ``from`` to
# ``to``; ``next_from`` is the first one after them, None if there is none.
Replay = TypedDict(
    "Replay",
    {
        "is_equal": bool,
        "suggestions": int,
        "decisions": int,
        "differences": list[dict[str, Any]],
        "from": int,
        "to": int | None,
        "next_from": int | None,
    },
)


# For annotations in classes that have a method `list`.
BestTrials = list[BestTrial]
