"""Which nodes are given no more jobs, because one job after the other fails there by the node's doing. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.domain.nodes.reliability import DISCONNECTS

# A machine that goes away takes all of its jobs with it: that is one fault, not one for each of them.
OUTAGE = timedelta(seconds=60)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """An attempt that ended because of its node."""

    job_id: str
    cause: str
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Reached:
    """How far an attempt of a job has come."""

    trained: bool
    step: int
    completed: bool = False


def did_better(later: Reached, failed: Reached) -> bool:
    """Whether an attempt on another node shows that the node of an earlier one failed, not the job.

    Of a script that reports no steps only its end shows it.
    """
    return later.completed or (later.trained and (not failed.trained or later.step > failed.step))


@dataclass(frozen=True, kw_only=True)
class QuarantineRule:
    """So many faults within the time are too many; 0 faults: no node is ever put away."""

    faults: int
    window_seconds: float


def counted(faults: Iterable[Fault]) -> Sequence[Fault]:
    """Of each job the first, for it may be the job's doing if it happens again; of each outage one."""
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
    """Why a node with these faults is to be quarantined; "" when it is not."""
    counting = counted(faults)
    if not 0 < rule.faults <= len(counting):
        return ""
    causes = Counter(fault.cause for fault in counting)
    said = ", ".join(f"{cause} ({number})" for cause, number in sorted(causes.items()))
    return f"attempts of {len(counting)} jobs ended by its doing within {rule.window_seconds:g} s: {said}"
