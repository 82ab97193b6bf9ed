"""One action on several jobs: each in a transaction of its own, with what came of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from app.domain.errors import InvalidRequest, TrainyardError
from app.models import Job
from app.security.permissions import Caller
from app.services.jobs import listing, updates
from app.services.jobs.control import commands
from app.services.requests.control_plane import ControlPlane

MOST_JOBS = 100


@dataclass(frozen=True, kw_only=True)
class ActionOutcome:
    """``problem`` is empty when the action was accepted; ``name`` and ``status`` are empty for a job not found."""

    job_id: str
    name: str = ""
    status: str = ""
    problem: str = ""


def cancel(plane: ControlPlane, caller: Caller, job_ids: Sequence[str], *, reason: str = "") -> list[ActionOutcome]:
    return _each(plane, caller, job_ids, partial(commands.cancel, plane, caller, reason=reason))


def pause(plane: ControlPlane, caller: Caller, job_ids: Sequence[str]) -> list[ActionOutcome]:
    return _each(plane, caller, job_ids, partial(commands.pause, plane, caller))


def label(
    plane: ControlPlane, caller: Caller, job_ids: Sequence[str], key: str, value: str | None
) -> list[ActionOutcome]:
    """Set one label of each job and keep the others; None removes it."""
    return _each(plane, caller, job_ids, lambda job_id: updates.label(plane, caller, job_id, key, value))


def _each(
    plane: ControlPlane, caller: Caller, job_ids: Sequence[str], act: Callable[[str], Job]
) -> list[ActionOutcome]:
    """Raises InvalidRequest for no job or too many; what one job refuses does not keep others from it."""
    wanted = list(dict.fromkeys(job_ids))
    if not 0 < len(wanted) <= MOST_JOBS:
        raise InvalidRequest(f"select 1 to {MOST_JOBS} jobs, not {len(wanted)}")
    found = [_one(job_id, act) for job_id in wanted]
    refused = {each.job_id for each in found if each.problem}
    with plane.db.read() as session:
        names = {job_id: each.job.name for job_id, each in listing.by_id(session, caller, refused).items()}
    return [replace(each, name=names.get(each.job_id, each.name)) for each in found]


def _one(job_id: str, act: Callable[[str], Job]) -> ActionOutcome:
    try:
        job = act(job_id)
    except TrainyardError as error:
        return ActionOutcome(job_id=job_id, problem=error.message)
    return ActionOutcome(job_id=job.id, name=job.name, status=job.status)
