"""Who works on a job in the lifecycle machine, and what it may say."""

from collections.abc import Callable
from dataclasses import dataclass, field

from app.domain.errors import LeaseLost
from app.domain.lifecycle.outcomes import Outcome, OutcomeKind
from app.services.attempts.work_orders import WorkOrder


@dataclass
class Holder:
    """A supervisor with the work order that it was once given."""

    work: WorkOrder
    node: str
    step: int = 0
    silent: bool = False


@dataclass
class Known:
    """What the machine remembers of a job, from outside."""

    fence: int = 0
    version: int = 0
    ended: str = ""
    cancelled_at_attempt: int | None = None  # since then no attempt may begin
    saved_step: int = 0
    holders: list[Holder] = field(default_factory=list)


def refused(write: Callable[[], object]) -> bool:
    """Whether the write was refused because another holder has the lease."""
    try:
        write()
    except LeaseLost:
        return True
    return False


def outcome_of(how: str, requested: str | None, step: int) -> Outcome:
    if how == "as requested":
        how = {"pause": "paused", "cancel": "cancelled", "preempt": "preempted"}.get(requested or "", "requeued")
    if how.isupper():
        return Outcome(kind="failed", cause=how, message="injected", end_step=step, ran_seconds=1.0)
    kinds: dict[str, OutcomeKind] = {
        "completed": "completed",
        "paused": "paused",
        "cancelled": "cancelled",
        "preempted": "preempted",
        "requeued": "requeued",
    }
    return Outcome(kind=kinds[how], end_step=step, ran_seconds=1.0)
