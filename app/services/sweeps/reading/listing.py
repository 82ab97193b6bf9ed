"""Reading sweeps and trials: pages, one with its figures, the best results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.sweeps.forecast import RECENT, Forecast, forecast
from app.domain.sweeps.observations import EarlierResult
from app.domain.sweeps.spec import SweepSpec
from app.domain.sweeps.states import SweepState, TrialState
from app.models import Job, Sweep, Trial, TrialReport
from app.security.permissions import Caller
from app.services.access import projects
from app.services.access.key_names import key_names
from app.services.jobs import handles
from app.services.requests.pagination import Orders, Page, PageRequest, page_of
from app.services.sweeps import budget, evaluations, lookup, warm_starts
from app.services.sweeps.budget import Used

ORDERS: Orders = {
    "created_at": (Sweep.created_at, Sweep.id),
    "name": (Sweep.name, Sweep.id),
    "status": (Sweep.status, Sweep.created_at, Sweep.id),
}
TRIAL_ORDERS: Orders = {
    "number": (Trial.number,),
    "state": (Trial.state, Trial.number),
    "value": (Trial.value, Trial.number),
}


@dataclass(frozen=True, kw_only=True)
class SweepDetails:
    """A sweep as it is shown; ``best`` is empty for several objectives, which have a front. ``origin``: of a best one
    that is an earlier result.
    """

    sweep: Sweep
    spec: SweepSpec
    used: Used
    best: Trial | None
    origin: EarlierResult | None
    eta_seconds: float | None
    forecast: Forecast | None = None
    created_by_name: str = ""  # of the key; empty for one without a name


@dataclass(frozen=True, kw_only=True)
class TrialDetails:
    """A trial as it is shown, with the state of its job and its reports by rung.

    ``waits_for``: the evaluations that have not ended of one whose training has.
    """

    trial: Trial
    job: Job | None
    reports: Sequence[TrialReport]
    waits_for: Sequence[Job] = ()


def page(session: Session, caller: Caller, filters: Mapping[str, Any], request: PageRequest) -> Page[SweepDetails]:
    """The caller's sweeps. Raises NotFound for a project that is not the caller's."""
    query = select(Sweep)
    if "project" in filters:
        projects.visible(session, caller, filters["project"])
        query = query.where(Sweep.project == filters["project"])
    if caller.project is not None:
        query = query.where(Sweep.project == caller.project)
    if filters.get("status"):
        query = query.where(Sweep.status.in_(filters["status"]))
    if filters.get("name"):
        query = query.where(Sweep.name == filters["name"])
    if filters.get("created_by"):
        query = query.where(Sweep.created_by == filters["created_by"])
    if filters.get("created_after"):
        query = query.where(Sweep.created_at > filters["created_after"])
    if filters.get("created_before"):
        query = query.where(Sweep.created_at < filters["created_before"])
    for key, value in filters.get("labels", ()):
        query = query.where(Sweep.labels[key].as_string() == value)
    if filters.get("handle"):
        project = caller.project or filters.get("project")
        query = query.where(Sweep.id.in_(handles.matching(session, filters["handle"], project=project, table=Sweep)))
    found: Page[Any] = page_of(session, query, ORDERS, request)
    return Page(
        items=[details(session, sweep) for sweep in found.items],
        next_after=found.next_after,
        total_count=found.total_count,
        total_count_capped=found.total_count_capped,
    )


def details(session: Session, sweep: Sweep) -> SweepDetails:
    spec = SweepSpec.from_json(sweep.spec)
    so_far = budget.used(session, sweep)
    best = warm_starts.best_trial(session, sweep, spec)
    origin = warm_starts.earlier_result(sweep, best.number) if best is not None and best.number < 0 else None
    return SweepDetails(
        sweep=sweep,
        spec=spec,
        used=so_far,
        best=best,
        origin=origin,
        eta_seconds=_eta(spec, so_far),
        created_by_name=key_names(session, [sweep.created_by]).get(sweep.created_by, ""),
    )


def with_forecast(session: Session, details: SweepDetails) -> SweepDetails:
    """With what one more device hour is likely to bring; None for several objectives, and where there will be none."""
    sweep, spec, best = details.sweep, details.spec, details.best
    if best is None or best.value is None or sweep.status in (SweepState.CANCELLED, SweepState.FAILED):
        return details
    query = (
        select(Trial.value, Trial.violations)
        .where(Trial.sweep_id == sweep.id, Trial.state == TrialState.COMPLETED)
        .order_by(Trial.observed_seq.desc())
        .limit(RECENT)
    )
    values = [None if any(each > 0 for each in row.violations) else row.value for row in session.execute(query)]
    found = forecast(
        values[::-1],
        best=best.value,
        sign=spec.objectives[0].sign,
        completed=details.used.by_state[TrialState.COMPLETED],
        device_hours=details.used.device_seconds / 3600,
    )
    return replace(details, forecast=found)


def _eta(spec: SweepSpec, so_far: Used) -> float | None:
    """By the pace of the trials that have ended; None before the first, and without `max_trials`."""
    running = so_far.by_state[TrialState.RUNNING]
    ended = so_far.trials - running
    if not ended or spec.budget.max_trials is None:
        return None
    # Most of those that wait at a rung end there.
    left = max(0, spec.budget.max_trials - so_far.trials) + (running - so_far.halted) / 2
    return round(so_far.seconds / ended * left, 1)


def trials(session: Session, sweep: Sweep, filters: Mapping[str, Any], request: PageRequest) -> Page[TrialDetails]:
    """Ordered by value, only the trials that have one: keys of pages are never NULL."""
    query = select(Trial).where(Trial.sweep_id == sweep.id)
    if filters.get("state"):
        query = query.where(Trial.state.in_(filters["state"]))
    if request.order.removeprefix("-") == "value":
        query = query.where(Trial.value.is_not(None))
    found: Page[Any] = page_of(session, query, TRIAL_ORDERS, request)
    return Page(
        items=trial_details(session, sweep.id, found.items),
        next_after=found.next_after,
        total_count=found.total_count,
        total_count_capped=found.total_count_capped,
    )


def trial_details(session: Session, sweep_id: str, found: Sequence[Trial]) -> list[TrialDetails]:
    """In the order given, with a constant number of queries."""
    jobs = session.scalars(select(Job).where(Job.id.in_([trial.job_id for trial in found if trial.job_id])))
    by_id = {job.id: job for job in jobs}
    running = [(trial, by_id.get(trial.job_id or "")) for trial in found if trial.state == TrialState.RUNNING]
    spec = SweepSpec.from_json(session.get_one(Sweep, sweep_id).spec)
    awaited = evaluations.awaited(session, spec, running)
    numbers = [trial.number for trial in found]
    query = select(TrialReport).where(TrialReport.sweep_id == sweep_id, TrialReport.number.in_(numbers))
    reports: dict[int, list[TrialReport]] = {}
    for report in session.scalars(query.order_by(TrialReport.rung)):
        reports.setdefault(report.number, []).append(report)
    return [
        TrialDetails(
            trial=trial,
            job=by_id.get(trial.job_id or ""),
            reports=reports.get(trial.number, []),
            waits_for=awaited.get(trial.job_id or "", ()),
        )
        for trial in found
    ]


def one_trial(session: Session, sweep: Sweep, number: int) -> TrialDetails:
    """Raises NotFound."""
    return trial_details(session, sweep.id, [lookup.find_trial(session, sweep, number)])[0]
