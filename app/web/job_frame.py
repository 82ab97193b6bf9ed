"""The frame of a job's pages: its head with banners and actions, and its tabs; every tab renders through here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flask import Response

from app.domain.lifecycle.control_actions import offered
from app.domain.lifecycle.failure_notes import failure_note
from app.domain.lifecycle.states import RUNNING, TERMINAL, JobState
from app.domain.scheduling.filters import FREE
from app.http.context import backend, caller, plane
from app.security.permissions import Permission
from app.services.jobs import details, explain_placement, lookup
from app.services.jobs.details import JobDetails
from app.services.jobs.explain_placement import NodeFit
from app.services.scheduling import planner
from app.web.pages import page

# Label, and the path below the job's page. The routes of a tab are where its data is: curves.py, log.py, job.py.
TABS = (
    ("Overview", ""),
    ("Curves", "curves"),
    ("Log", "log"),
    ("Events", "events"),
    ("Attempts", "attempts"),
    ("Checkpoints", "checkpoints"),
    ("Results", "results"),
    ("Document", "document"),
    ("System", "system"),
    ("Access", "access"),
)
_WAITING = (JobState.PENDING, JobState.QUEUED)
_OF_THE_JOB = ("job_waits", "enough_nodes")  # filters that say the same of every node
_MOST_GROUPS = 12
_SHARED_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Nodes for which the same reasons hold; without a reason the job can start there now."""

    nodes: Sequence[str]
    reasons: Sequence[str]
    could_hold: bool


@dataclass(frozen=True, kw_only=True)
class WaitingReasons:
    """Why a job waits: ``reasons`` are its own, whatever the node."""

    reasons: Sequence[str]
    groups: Sequence[NodeGroup]
    groups_left_out: int


def find_job(job_id: str) -> JobDetails:
    """The job, if the caller may see it, without its place in the order of service. Raises NotFound."""
    with plane().db.read() as session:
        return details.without_outlook(session, [lookup.find(session, caller(), job_id)])[0]


def job_page(template: str, job: JobDetails, tab: str, **values: Any) -> Response:
    """A tab's page; ``template`` extends `job/frame.html` and fills its block `tab`."""
    return page(template, job=job, tab=tab, tabs=TABS, **head_of(job, brief=bool(tab)), **values)


def head_of(job: JobDetails, *, brief: bool) -> dict[str, Any]:
    """What `job/head.html` and `job/actions.html` show beside the job.

    ``brief``: without what prevents the start on each node, which costs most with many nodes and waiting jobs.
    """
    row = job.job
    failed = bool(row.error_type or row.error_message) and row.state not in (JobState.COMPLETED, JobState.CANCELLED)
    failure = failure_note(row.error_type or "", row.error_message or "", row.error_stack or "") if failed else None
    return {
        "failure": failure,
        "brief": brief,
        "waiting": _waiting(job, brief=brief) if row.state in _WAITING else None,
        "offered": _offered_to_caller(job),
        "runs": row.state in RUNNING,
        "has_ended": row.state in TERMINAL,
    }


def _offered_to_caller(job: JobDetails) -> list[str]:
    """The actions that the page has buttons for."""
    if not caller().may(Permission.MANAGE):
        return []
    row = job.job
    return sorted(offered(row.state, row.kind, row.requested, saves=row.pause_saves and not row.pause_force))


def _waiting(job: JobDetails, *, brief: bool) -> WaitingReasons:
    if brief:
        return WaitingReasons(reasons=[job.pending_reason] if job.pending_reason else [], groups=[], groups_left_out=0)
    # All viewers share it for a moment; what is about the job alone shows at once, since its version changes.
    key = ("why it waits", job.job.id, job.job.version)
    return backend().shared.get(key, _SHARED_SECONDS, lambda: _examined(job))


def _examined(job: JobDetails) -> WaitingReasons:
    weights = planner.weights_of(backend().settings)
    with plane().db.read() as session:
        fits = explain_placement.why_everywhere(session, caller(), job.job.id, weights)
    own = {each.reason for fit in fits for each in fit.filters if not each.passed and each.filter in _OF_THE_JOB}
    groups = _grouped(fits)
    return WaitingReasons(
        reasons=sorted({job.pending_reason, *own} - {""}),
        groups=groups[:_MOST_GROUPS],
        groups_left_out=max(0, len(groups) - _MOST_GROUPS),
    )


def _grouped(fits: Sequence[NodeFit]) -> list[NodeGroup]:
    found: dict[tuple[bool, tuple[str, ...]], list[str]] = {}
    for fit in fits:
        # What is free does not matter on a node that could not hold the job when it is empty.
        ignored = _OF_THE_JOB if fit.could_hold else (*_OF_THE_JOB, *FREE)
        reasons = (each.reason for each in fit.filters if not each.passed and each.filter not in ignored)
        found.setdefault((fit.could_hold, tuple(reasons)), []).append(fit.node)
    return [NodeGroup(nodes=nodes, reasons=key[1], could_hold=key[0]) for key, nodes in found.items()]
