"""The planning loop: full passes, and incremental planning between them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from app.database.engine import Database
from app.domain.scheduling.incremental_planner import IncrementalPlan, IncrementalPlanner
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.planner import SchedulingPolicy
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.scoring import Weights
from app.domain.scheduling.serving_order import JobUsage
from app.models.base import utc_now
from app.services.nodes import data_locality, registry
from app.services.scheduling import pending_jobs, planner, running_jobs
from app.services.scheduling.placement import Dispatched, place_all

# Full passes take at most a fifth of the planner's time; on a small cluster every pass is a full one.
REST = 4.0
LONGEST_REST_SECONDS = 10.0
# Full passes for which there is no reason but the time take at most a fiftieth of it.
UNCHANGED_REST = 50.0
LONGEST_UNCHANGED_SECONDS = 60.0
# Tolerated clock skew of API servers; jobs from servers further behind wait for the next full pass.
CLOCKS_DIFFER = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True)
class _ActiveAttempt:
    """Usage and nodes of an attempt that holds devices."""

    use: JobUsage
    nodes: frozenset[str]


class PlanningLoop:
    """Alternates full and incremental passes. Not thread-safe.

    Between full passes it only sees submitted jobs and ended attempts. Other changes (nodes, quotas, control requests)
    wait for the next full pass. Placements based on outdated state are refused when they are written under locks.
    """

    def __init__(self, db: Database, actor: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._actor = actor
        self._clock = clock
        self._incremental: IncrementalPlanner | None = None
        self._held: dict[tuple[str, int], _ActiveAttempt] = {}
        self._jobs: dict[str, QueuedJob] = {}
        self._began_at = utc_now()
        self._rests_until = 0.0
        self._has_acted = False

    def run_pass(
        self, policy: SchedulingPolicy, nudge: Callable[[str, str], None], announce: Callable[[list[Dispatched]], None]
    ) -> float | None:
        """Run one pass, full or incremental, and place what can start.

        Returns the seconds until another pass may find more to do although nothing has changed; None: never.
        """
        if (
            self._incremental is not None
            and (now := self._clock()) < self._rests_until
            and self._plan_incrementally(self._incremental, policy.weights, announce)
        ):
            return self._rests_until - now  # the full pass that it stands for
        began, self._incremental, self._began_at = self._clock(), None, utc_now()
        planner.plan_once(
            self._db, actor=self._actor, policy=policy, nudge=nudge, announce=announce, remember=self._remember
        )
        ended = self._clock()
        self._rests_until = ended + min(REST * (ended - began), LONGEST_REST_SECONDS)
        return self._next_pass_in(took=ended - began)

    def _next_pass_in(self, *, took: float) -> float | None:
        """After a full pass: another one follows what this one did, the end of a backoff, and the passing of time."""
        with self._db.read() as session:
            backoff = pending_jobs.shortest_backoff(session)
        times = [] if backoff is None else [backoff]
        if self._incremental is not None:  # jobs wait: reservations, preemption and backfill depend on the time, too
            unchanged = min(max(LONGEST_REST_SECONDS, UNCHANGED_REST * took), LONGEST_UNCHANGED_SECONDS)
            times.append(min(REST * took, LONGEST_REST_SECONDS) if self._has_acted else unchanged)
        return min(times, default=None)

    def _remember(self, seen: planner.PassRecord) -> None:
        made = seen.made
        self._has_acted = bool(made.placements or made.preemptions or made.reservations)
        self._incremental = IncrementalPlanner(seen.cluster, seen.made, seen.jobs)
        self._jobs = {job.job_id: job for job in seen.jobs}
        parts: dict[tuple[str, int], list[str]] = {}
        self._held = {}
        for each in seen.running:
            key = each.job_id, each.attempt
            parts.setdefault(key, []).append(each.node)
            use = JobUsage(
                project=each.project,
                queue=each.queue,
                kind=each.kind,
                devices=each.by_kind.get(each.kind, each.released_devices),
                is_preemptible=each.is_preemptible,
                others={kind: amount for kind, amount in each.by_kind.items() if kind != each.kind},
            )
            self._held[key] = _ActiveAttempt(use=use, nodes=frozenset(parts[key]))
        self._hold(seen.made.placements, seen.dispatched)

    def _plan_incrementally(
        self, incremental: IncrementalPlanner, weights: Weights, announce: Callable[[list[Dispatched]], None]
    ) -> bool:
        """Handle the changes since the last pass; False when they need a full pass."""
        with self._db.snapshot() as session:
            live = running_jobs.live(session)
            ended = {key: held for key, held in self._held.items() if key not in live}
            names = {name for held in ended.values() for name in held.nodes}
            free = registry.capacities(session, names=names) if names else []
            caches = data_locality.caches(session, weights)
            queued = pending_jobs.queued_since(session, self._began_at - CLOCKS_DIFFER, caches=caches)
        if len(free) < len(names):
            return False
        new = [job for job in queued if job.job_id not in self._jobs or self._jobs[job.job_id].since != job.since]
        for key in ended:
            del self._held[key]
        self._jobs.update((job.job_id, job) for job in new)
        if ended and not self._carry_out(incremental.ended([held.use for held in ended.values()], free), announce):
            return False
        return not new or self._carry_out(incremental.submitted(new), announce)

    def _carry_out(self, found: IncrementalPlan | None, announce: Callable[[list[Dispatched]], None]) -> bool:
        if found is None:
            return False
        self._hold(found.placements, place_all(self._db, found.placements, self._actor, announce))
        updates = {job_id: {"pending_reason": reason} for job_id, reason in found.pending_reasons.items()}
        planner.write_updates(self._db, updates)
        return True

    def _hold(self, placements: tuple[Placement, ...], dispatched: Sequence[Dispatched]) -> None:
        attempts = {each.job_id: each.attempt for each in dispatched}
        for placement in placements:
            if placement.job_id in attempts:
                job, amounts = self._jobs[placement.job_id], dict(placement.amounts)
                use = JobUsage(
                    project=job.project,
                    queue=job.queue,
                    kind=job.request.device_kind,
                    devices=amounts.pop(job.request.device_kind, 0),
                    is_preemptible=job.is_preemptible,
                    others=amounts,
                )
                held = _ActiveAttempt(use=use, nodes=frozenset(part.node for part in placement.parts))
                self._held[job.job_id, attempts[job.job_id]] = held
