"""Goodput: how much of a job's time made progress, and what the rest was spent on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.domain.lifecycle.states import JobState

# While ranks run, time in these states makes no progress.
STANDSTILLS = {
    JobState.CHECKPOINTING: "checkpoint_seconds",
    JobState.EVALUATING: "evaluate_seconds",
    JobState.EXPORTING: "export_seconds",
}
PARTS = (
    "queue_seconds",
    "start_seconds",
    "restart_seconds",
    *STANDSTILLS.values(),
    "detect_seconds",
    "recompute_seconds",
)


@dataclass(frozen=True, kw_only=True)
class AttemptRun:
    """One attempt of the job, by its record."""

    started_at: datetime
    trained_at: datetime | None
    ended_at: datetime
    steps: int  # trained in it
    lost_steps: int
    detect_seconds: float
    failed: bool


@dataclass(frozen=True, kw_only=True)
class Spell:
    """A period that the job spent in one state."""

    state: JobState
    since: datetime
    until: datetime


@dataclass(frozen=True, kw_only=True)
class Goodput:
    """``productive_seconds`` plus ``badput`` is ``wall_seconds``: from the first start to the end, without pauses."""

    wall_seconds: float
    productive_seconds: float
    ratio: float
    badput: Mapping[str, float]


def goodput(runs: Sequence[AttemptRun], spells: Sequence[Spell], finished_at: datetime) -> Goodput | None:
    """None for a job that never started. ``runs`` are in order; neither list has overlaps."""
    if not runs:
        return None
    parts = dict.fromkeys(PARTS, 0.0)
    productive = 0.0
    for before, run in zip([None, *runs], runs, strict=False):
        again = before is not None and before.failed
        if before is not None:
            waited = _waited(before.ended_at, run.started_at, spells)
            parts["restart_seconds" if again else "queue_seconds"] += waited
        ready_at = run.trained_at or run.ended_at
        parts["restart_seconds" if again else "start_seconds"] += _seconds(run.started_at, ready_at)
        productive += _add_training(parts, run, ready_at, spells)
    parts["queue_seconds"] += _waited(runs[-1].ended_at, finished_at, spells)
    wall = productive + sum(parts.values())
    return Goodput(
        wall_seconds=round(wall, 3),
        productive_seconds=round(productive, 3),
        ratio=round(productive / wall, 4) if wall > 0 else 0.0,
        badput={name: round(seconds, 3) for name, seconds in parts.items()},
    )


def _add_training(parts: dict[str, float], run: AttemptRun, ready_at: datetime, spells: Sequence[Spell]) -> float:
    """Productive seconds of the run; the rest is added to ``parts``."""
    left = _seconds(ready_at, run.ended_at)
    for state, part in STANDSTILLS.items():
        spent = min(left, _in_state(state, ready_at, run.ended_at, spells))
        parts[part] += spent
        left -= spent
    detecting = min(left, run.detect_seconds)
    left -= detecting
    parts["detect_seconds"] += detecting
    # For a script that reports no steps only success or failure is known.
    share = min(1.0, run.lost_steps / run.steps) if run.steps > 0 else float(run.failed)
    parts["recompute_seconds"] += left * share
    return left * (1.0 - share)


def _waited(since: datetime, until: datetime, spells: Sequence[Spell]) -> float:
    """Waiting time without pauses."""
    return max(0.0, _seconds(since, until) - _in_state(JobState.PAUSED, since, until, spells))


def _in_state(state: JobState, since: datetime, until: datetime, spells: Sequence[Spell]) -> float:
    return sum(_seconds(max(s.since, since), min(s.until, until)) for s in spells if s.state is state)


def _seconds(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds())
