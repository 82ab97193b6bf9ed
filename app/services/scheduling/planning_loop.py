"""When the planner looks at everything, and when only at what has changed since it last did."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from app.database.engine import Database
from app.domain.scheduling.incremental_planner import Followed, Following
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.planner import Policy
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.scoring import Weights
from app.domain.scheduling.serving_order import Use
from app.domain.units import WHOLE
from app.models.base import utc_now
from app.services.nodes import data_locality, registry
from app.services.scheduling import pending_jobs, planner, running_jobs
from app.services.scheduling.placement import Dispatched, place_all

# Full passes take no more than a fifth of the planner's time; where one is over in no time, every look is one.
REST = 4.0
LONGEST_REST_SECONDS = 10.0
# Clocks of those who submit may be behind ours; one whose clock is further behind waits for the next full pass.
CLOCKS_DIFFER = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True)
class _Held:
    """What an attempt counts for, and where."""

    use: Use
    nodes: frozenset[str]


class Passes:
    """Not safe for several threads.

    Between two full passes it only sees jobs that came and attempts that ended. All else (nodes that come or go, other
    quotas, verbs) waits for the next full pass, whose look at the locked rows nothing here replaces: what is placed
    by an old look at the cluster, and is no longer possible, is refused there.
    """

    def __init__(self, db: Database, actor: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._actor = actor
        self._clock = clock
        self._following: Following | None = None
        self._held: dict[tuple[str, int], _Held] = {}
        self._jobs: dict[str, QueuedJob] = {}
        self._began_at = utc_now()
        self._rests_until = 0.0

    def look(
        self, policy: Policy, nudge: Callable[[str, str], None], announce: Callable[[list[Dispatched]], None]
    ) -> None:
        """Place what can start, in a full pass or in what follows one."""
        if (
            self._following is not None
            and self._clock() < self._rests_until
            and self._follow(self._following, policy.weights, announce)
        ):
            return
        began, self._following, self._began_at = self._clock(), None, utc_now()
        planner.plan_once(
            self._db, actor=self._actor, policy=policy, nudge=nudge, announce=announce, remember=self._remember
        )
        ended = self._clock()
        self._rests_until = ended + min(REST * (ended - began), LONGEST_REST_SECONDS)

    def _remember(self, seen: planner.Seen) -> None:
        self._following = Following(seen.giving, seen.made, seen.jobs)
        self._jobs = {job.job_id: job for job in seen.jobs}
        parts: dict[tuple[str, int], list[str]] = {}
        self._held = {}
        for each in seen.running:
            key = each.job_id, each.attempt
            parts.setdefault(key, []).append(each.node)
            use = Use(
                project=each.project, queue=each.queue, kind=each.kind, devices=each.gives_back,
                is_preemptible=each.is_preemptible,
            )  # fmt: skip
            self._held[key] = _Held(use=use, nodes=frozenset(parts[key]))
        self._hold(seen.made.placements, seen.dispatched)

    def _follow(self, following: Following, weights: Weights, announce: Callable[[list[Dispatched]], None]) -> bool:
        """Whether what has changed can be told without a full pass."""
        with self._db.snapshot() as session:
            live = running_jobs.live(session)
            gone = {key: held for key, held in self._held.items() if key not in live}
            names = {name for held in gone.values() for name in held.nodes}
            free = registry.capacities(session, names=names) if names else []
            caches = data_locality.caches(session, weights)
            queued = pending_jobs.queued_since(session, self._began_at - CLOCKS_DIFFER, caches=caches)
        if len(free) < len(names):
            return False
        new = [job for job in queued if job.job_id not in self._jobs or self._jobs[job.job_id].since != job.since]
        for key in gone:
            del self._held[key]
        self._jobs.update((job.job_id, job) for job in new)
        if gone and not self._carry_out(following.ended([held.use for held in gone.values()], free), announce):
            return False
        return not new or self._carry_out(following.submitted(new), announce)

    def _carry_out(self, found: Followed | None, announce: Callable[[list[Dispatched]], None]) -> bool:
        if found is None:
            return False
        self._hold(found.placements, place_all(self._db, found.placements, self._actor, announce))
        news = {job_id: {"pending_reason": said} for job_id, said in found.pending_reasons.items()}
        planner.write_news(self._db, news)
        return True

    def _hold(self, placements: tuple[Placement, ...], dispatched: Sequence[Dispatched]) -> None:
        attempts = {each.job_id: each.attempt for each in dispatched}
        for placement in placements:
            if placement.job_id in attempts:
                job, parts = self._jobs[placement.job_id], placement.parts
                use = Use(
                    project=job.project, queue=job.queue, kind=job.request.device_kind,
                    devices=len(parts) * len(placement.devices) * placement.share / WHOLE,
                    is_preemptible=job.is_preemptible,
                )  # fmt: skip
                held = _Held(use=use, nodes=frozenset(part.node for part in parts))
                self._held[job.job_id, attempts[job.job_id]] = held
