"""Dry run of a submission: the same checks, a placement forecast, and no writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import JobState
from app.domain.scheduling.filters import choose_devices, could_fit, describe, explain
from app.domain.scheduling.resources import NodeCapacity, Request
from app.domain.scheduling.roles.packing import pack
from app.domain.scheduling.roles.reasons import asked_for
from app.domain.spec.model import JobDocument
from app.models import Job, Node, Queue
from app.models.base import utc_now
from app.models.queue_order import ahead_of_new
from app.security.permissions import Caller
from app.services.attempts.evaluation_verdicts import refuse_unknown_baselines
from app.services.jobs import submission
from app.services.jobs.submission import Checked, Origin
from app.services.nodes import registry
from app.services.preflight import admission
from app.services.preflight.admission import AdmissionFailure
from app.services.requests.control_plane import ControlPlane


@dataclass(frozen=True, kw_only=True)
class CandidateNode:
    """A node that could hold the job; ``reason`` says why it can't start there now, empty if it can."""

    name: str
    fits_now: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class PlannedInstance:
    """Where an instance of a role would start now."""

    role: str
    index: int
    node: str
    devices: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class DryRunPlan:
    """Forecast: queue position, counted from 1 in the project, and candidate nodes.

    ``refusals`` are those of the warnings that say why admission would fail the job; ``missing`` is the input behind
    them.
    """

    checked: Checked
    queue_position: int
    candidate_nodes: Sequence[CandidateNode]
    instances: Sequence[PlannedInstance]
    resumes_from: str | None
    warnings: Sequence[str] = field(default_factory=tuple)
    refusals: Sequence[str] = ()
    missing: AdmissionFailure | None = None


@dataclass(frozen=True, kw_only=True)
class Preview:
    """A submission that passed every check.

    ``job`` is the row that would be stored, in no session; ``warnings`` are those of the answer to the submission;
    ``refusals`` say why admission would fail the job; ``missing`` is the input behind them.
    """

    checked: Checked
    job: Job
    warnings: Sequence[str]
    refusals: Sequence[str]
    missing: AdmissionFailure | None


def plan(
    plane: ControlPlane,
    caller: Caller,
    document: JobDocument,
    *,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
) -> DryRunPlan:
    """Raises what ``submission.submit`` would raise for the same document."""
    found = preview(plane, caller, document, project=project, forwarded=forwarded)
    checked = found.checked
    with plane.db.read() as session:
        candidates, instances = _candidates(session, checked), _instances(session, checked)
        warnings = [
            *checked.warnings,
            *checked.waits,
            *_of_queue(session, checked),
            *_of_nodes(checked, candidates, instances),
        ]
        return DryRunPlan(
            checked=checked,
            queue_position=_position(session, checked),
            candidate_nodes=candidates,
            instances=instances,
            resumes_from=found.job.resume_checkpoint_id,
            warnings=[*warnings, *found.refusals],
            refusals=found.refusals,
            missing=found.missing,
        )


def preview(
    plane: ControlPlane,
    caller: Caller,
    document: JobDocument,
    *,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
    origin: Origin | None = None,
) -> Preview:
    """Check a submission and write nothing. Raises what ``submission.submit`` would raise for the same arguments."""
    hidden = origin.secret_variables if origin is not None else ()
    checked = submission.check(plane, caller, document, project=project, forwarded=forwarded, secret_variables=hidden)
    refuse_unknown_baselines(plane.db, checked.project, checked.spec.document)
    # As at submission, in a transaction that may write: the checkpoint to resume from is looked at under its lock.
    with plane.db.write() as session:
        entered = submission.enter(session, caller, checked)
        submission.refuse_taken_alias(session, origin)
    missing = admission.missing_input(checked.spec.document, plane.reading.of(checked.project))
    return Preview(
        checked=checked,
        job=submission.new_job(plane, caller, checked, entered.start, origin=origin),
        warnings=submission.shown_warnings(checked, origin),
        refusals=[f"admission would fail it with {missing.cause}: {missing.message}"] if missing is not None else [],
        missing=missing,
    )


def _candidates(session: Session, checked: Checked) -> list[CandidateNode]:
    states = {row.name: row.state for row in session.execute(select(Node.name, Node.state))}
    parts = _parts(checked.request)
    nodes = registry.capacities(session, only_ready=False)
    fitting = [node for node in nodes if any(not could_fit(each, node) for each in parts)]
    return [_candidate(checked, node, states.get(node.name, "")) for node in fitting]


def _candidate(checked: Checked, node: NodeCapacity, state: str) -> CandidateNode:
    if state != "ready":
        return CandidateNode(name=node.name, fits_now=False, reason=f"is {state}")
    parts = [each for each in _parts(checked.request) if not could_fit(each, node)]
    if all(choose_devices(each, node) is None for each in parts):
        return CandidateNode(name=node.name, fits_now=False, reason=explain(parts[0], [node]))
    return CandidateNode(name=node.name, fits_now=True, reason="")


def _parts(request: Request) -> list[Request]:
    """What a node may have to hold: all that the job asks of each, or an instance of any of its roles."""
    return [role.each for role in request.roles] or [request]


def _instances(session: Session, checked: Checked) -> list[PlannedInstance]:
    """Where the instances of a job with roles would start now; empty if they would wait."""
    request = checked.request
    parts = pack(request, registry.capacities(session)) if request.roles else None
    return [
        PlannedInstance(
            role=each.role, index=each.index, node=part.node, devices=[device.index for device in each.devices]
        )
        for part in parts or ()
        for each in part.instances
    ]


def _position(session: Session, checked: Checked) -> int:
    ahead = (
        select(func.count())
        .select_from(Job)
        .where(
            Job.status == JobState.QUEUED,
            Job.project == checked.project,
            ahead_of_new(utc_now(), checked.spec.document.scheduling_config.priority),
        )
    )
    return (session.scalar(ahead) or 0) + 1


def _of_queue(session: Session, checked: Checked) -> list[str]:
    queue = session.get_one(Queue, checked.spec.document.scheduling_config.queue)
    return [f"the queue {queue.name} is paused: it takes jobs and starts none"] if queue.is_paused else []


def _of_nodes(checked: Checked, candidates: Sequence[CandidateNode], instances: Sequence[PlannedInstance]) -> list[str]:
    wanted = asked_for(checked.request) if checked.request.roles else describe(checked.request)
    if checked.waits:
        return []
    if not candidates:
        return [f"no node is registered yet; the job would wait until one with {wanted} is"]
    if not any(candidate.fits_now for candidate in candidates) or (checked.request.roles and not instances):
        return [f"no node is free for {wanted} now; the job would wait"]
    return []
