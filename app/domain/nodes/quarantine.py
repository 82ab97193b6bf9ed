"""Quarantine: nodes that get no more jobs because they cause one attempt after another to fail. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.domain.nodes.reliability import DISCONNECTS

# An outage of a node ends all of its jobs: that is one fault, not one per job.
OUTAGE = timedelta(seconds=60)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """An attempt that ended because of its node."""

    job_id: str
    cause: str
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Reached:
    """Progress of an attempt."""

    trained: bool
    step: int
    completed: bool = False


def did_better(later: Reached, failed: Reached) -> bool:
    """Whether an attempt on another node shows that the node of an earlier one failed, not the job.

    For a script that reports no steps, only completion shows it.
    """
    return later.completed or (later.trained and (not failed.trained or later.step > failed.step))


@dataclass(frozen=True, kw_only=True)
class QuarantineRule:
    """This many faults within the window quarantine a node; 0 disables quarantine."""

    faults: int
    window_seconds: float


def counted(faults: Iterable[Fault]) -> Sequence[Fault]:
    """The first fault of each job, since a repeated one may be caused by the job, and one per outage."""
    found: list[Fault] = []
    jobs: set[str] = set()
    outage: datetime | None = None
    for fault in sorted(faults, key=lambda each: (each.at, each.job_id)):
        is_same_outage = fault.cause in DISCONNECTS and outage is not None and fault.at - outage <= OUTAGE
        if fault.cause in DISCONNECTS:
            outage = fault.at
        if fault.job_id in jobs or is_same_outage:
            continue
        jobs.add(fault.job_id)
        found.append(fault)
    return found


def reason_for(faults: Iterable[Fault], rule: QuarantineRule) -> str:
    """Why a node with these faults must be quarantined; "" when it must not."""
    counting = counted(faults)
    if not 0 < rule.faults <= len(counting):
        return ""
    causes = Counter(fault.cause for fault in counting)
    listed = ", ".join(f"{cause} ({number})" for cause, number in sorted(causes.items()))
    return f"attempts of {len(counting)} jobs were ended by the node within {rule.window_seconds:g} s: {listed}"
