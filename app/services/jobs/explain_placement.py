"""Explains for users why a job starts on a node or not: the result of every filter and the points of every score."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.lifecycle.retry_policy import rests
from app.domain.lifecycle.states import HELD, JobState
from app.domain.scheduling import gang_placement
from app.domain.scheduling.data_locality import NOT_CACHED, Cached, source_keys
from app.domain.scheduling.filters import FREE, FilterResult, avoided, examine
from app.domain.scheduling.resources import NodeCapacity, Request
from app.domain.scheduling.roles import reasons
from app.domain.scheduling.roles.packing import excluded, pack
from app.domain.scheduling.scoring import ScorePoints, Weights, points_of
from app.models import Job, Node
from app.models.base import database_now
from app.security.permissions import Caller
from app.services.jobs import lookup
from app.services.nodes import data_locality, device_kinds, registry
from app.services.nodes.unknown import no_node
from app.services.queues import limits


@dataclass(frozen=True, kw_only=True)
class NodeFit:
    """``could_hold``: it fits if the node is empty; ``starts_now``: every filter passes now."""

    node: str
    job_id: str
    could_hold: bool
    starts_now: bool
    filters: Sequence[FilterResult]
    scores: Sequence[ScorePoints]

    @property
    def score(self) -> float:
        """Total score; of the nodes where the job can start now, the planner chooses the highest."""
        return sum(each.points for each in self.scores)


def why(session: Session, caller: Caller, name: str, job_id: str, weights: Weights) -> NodeFit:
    """Raises NotFound for a node or a job that is not there, or not the caller's."""
    job = lookup.find(session, caller, job_id)
    row = session.get(Node, name)
    node = next(iter(registry.capacities(session, only_ready=False, names=[name])), None)
    if row is None or node is None:
        raise no_node(session, name)
    return _fit(job, row, node, _Context.at(session, job, weights, registry.capacities(session)), weights)


def why_everywhere(session: Session, caller: Caller, job_id: str, weights: Weights) -> list[NodeFit]:
    """Explain every node, the best first: where it can start, then where it could, then by name.

    Raises NotFound for a job that does not exist or is not visible to the caller.
    """
    job = lookup.find(session, caller, job_id)
    nodes = registry.capacities(session, only_ready=False)
    rows = {row.name: row for row in session.scalars(select(Node))}
    ready = [node for node in nodes if node.name in rows and rows[node.name].state == "ready"]
    context = _Context.at(session, job, weights, ready)
    fits = [_fit(job, rows[node.name], node, context, weights) for node in nodes if node.name in rows]
    return sorted(fits, key=lambda fit: (not fit.starts_now, not fit.could_hold, -fit.score, fit.node))


@dataclass(frozen=True, kw_only=True)
class _Context:
    """Input that is the same for every node."""

    request: Request
    ready: Mapping[str, NodeCapacity]
    beside: Sequence[FilterResult]
    turn: FilterResult
    cached: Cached

    @classmethod
    def at(cls, session: Session, job: Job, weights: Weights, ready: Sequence[NodeCapacity]) -> "_Context":
        request = device_kinds.request_of_job(session, job)
        caches = None if request.is_gang else data_locality.caches(session, weights)
        return cls(
            request=request,
            ready={each.name: each for each in ready},
            beside=_fits_without(job, request, ready, weights),
            turn=_turn(session, job),
            cached=NOT_CACHED if caches is None else caches.of(source_keys(job.document)),
        )


def _fit(job: Job, row: Node, node: NodeCapacity, context: _Context, weights: Weights) -> NodeFit:
    findings = _examined(context.request, node)
    could_hold = _could_hold(findings)
    state = FilterResult(filter="node_state", reason="" if row.state == "ready" else f"is {row.state}")
    if node.name in job.node_names and job.state in HELD:
        findings = [each for each in findings if each.filter not in FREE]  # the job itself occupies them
    findings = [state, *findings, *context.beside, _history(job, context, node), context.turn]
    return NodeFit(
        node=node.name,
        job_id=job.id,
        could_hold=could_hold,
        starts_now=all(each.passed for each in findings),
        filters=findings,
        scores=points_of(context.request, node, weights, context.cached),
    )


def _examined(request: Request, node: NodeCapacity) -> list[FilterResult]:
    """Of a job with roles: the results for the role of which an instance fits best."""
    found = [examine(each, node) for each in ([role.each for role in request.roles] or [request])]
    return max(found, key=lambda results: (_could_hold(results), sum(each.passed for each in results)))


def _could_hold(findings: Sequence[FilterResult]) -> bool:
    return all(each.passed for each in findings if each.filter not in FREE)


def _fits_without(job: Job, request: Request, ready: Sequence[NodeCapacity], weights: Weights) -> list[FilterResult]:
    """For a pending gang: whether enough nodes are free at once."""
    if not request.is_gang or job.state is not JobState.QUEUED:
        return []
    if request.roles:
        starts = pack(request, ready) is not None
        return [FilterResult(filter="enough_nodes", reason="" if starts else reasons.explain(request, ready))]
    free = (each for node in ready for each in gang_placement.candidates(request, node, weights))
    starts = gang_placement.choose(request, free, weights) is not None
    return [FilterResult(filter="enough_nodes", reason="" if starts else gang_placement.explain(request, ready))]


def _history(job: Job, context: _Context, node: NodeCapacity) -> FilterResult:
    """Whether the node is avoided, counted as ready together with the ready nodes."""
    avoids, nodes = frozenset(job.excluded_nodes), {**context.ready, node.name: node}
    if context.request.roles:
        is_avoided = node.name in excluded(context.request, avoids, nodes.values())
    else:
        is_avoided = node.name in avoided(context.request, avoids, nodes)
    return FilterResult(filter="not_failed_here", reason="the job failed here repeatedly" if is_avoided else "")


def _turn(session: Session, job: Job) -> FilterResult:
    """Whether the job is waiting to start at all, regardless of the node."""
    if job.state is not JobState.QUEUED:
        where = f" on {', '.join(job.node_names)}" if job.node_names else ""
        return FilterResult(filter="job_waits", reason=f"the job is {job.status}{where}")
    if job.requested is not None:
        return FilterResult(filter="job_waits", reason=f"the job is about to stop ({job.requested} requested)")
    if job.not_before_at is not None and rests(job.not_before_at, job.queued_at, database_now(session)):
        until = job.not_before_at.isoformat(timespec="seconds")
        why = f": {job.pending_reason}" if job.pending_reason else ""
        return FilterResult(filter="job_waits", reason=f"the job is retried at {until}{why}")
    return FilterResult(filter="job_waits", reason=limits.reasons(session, [job.queue]).get(job.queue, ""))
