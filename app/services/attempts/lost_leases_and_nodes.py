"""The reaper: revokes leases and marks nodes lost whose counters stop rising, by its own monotonic clock."""

import logging
from collections.abc import Callable

from app.database.engine import Database
from app.database.transient_errors import is_transient
from app.domain.errors import TrainyardError
from app.domain.lifecycle.lease_expiry import StandstillWatch
from app.domain.lifecycle.retry_policy import Backoff
from app.services.attempts import leases
from app.services.attempts.leases import LiveLease
from app.services.nodes import registry
from config.settings import Settings

# After a longer gap between sweeps the observed counters are stale, and counting restarts.
BLIND_SECONDS = 5.0

logger = logging.getLogger(__name__)


class Reaper:
    """Used by one thread; ``sweep`` checks every live lease and node once.

    ``on_revoked`` is called after each lease that was taken away: its job, or another, may be placed now.
    """

    def __init__(
        self, db: Database, settings: Settings, *, actor: str, on_revoked: Callable[[], None] = lambda: None
    ) -> None:
        self._db = db
        self._actor = actor
        self._on_revoked = on_revoked
        self._backoff = Backoff(
            base_seconds=settings.scheduler.retry_base_seconds, max_seconds=settings.scheduler.retry_max_seconds
        )
        self._leases = StandstillWatch(limit_seconds=settings.lease.ttl_seconds)
        self._nodes = StandstillWatch(limit_seconds=settings.node.lost_seconds)
        # Two heartbeats missed: not lost yet, but the node is blamed for a lease that expires now.
        self._silent = StandstillWatch(limit_seconds=settings.node.heartbeat_seconds * 2)
        self._last_pass_at: float | None = None

    def reset(self) -> None:
        """Restart all counting, after a period without sweeps."""
        for watch in (self._leases, self._nodes, self._silent):
            watch.reset()

    def sweep(self, now_seconds: float, *, leases_too: bool = True) -> bool:
        """Check once; returns whether any lease is live. Raises database errors, after which all counting restarts.

        Without ``leases_too`` only nodes are checked: the caller knows that no lease is live.
        """
        if self._last_pass_at is None or now_seconds - self._last_pass_at > BLIND_SECONDS:
            self.reset()
        self._last_pass_at = None
        try:
            live = leases.live(self._db) if leases_too else []
            heartbeats = registry.heartbeats(self._db)
        except Exception:
            self.reset()
            raise
        self._last_pass_at = now_seconds
        counters = [(beat.node, beat.counter) for beat in heartbeats]
        patience = {beat.node: beat.every_seconds * 2 for beat in heartbeats if beat.every_seconds is not None}
        silent = set(self._silent.observe(counters, now_seconds, patience))
        expired = set(self._leases.observe([(lease.lease_id, lease.counter) for lease in live], now_seconds))
        for lease in live:
            if lease.lease_id in expired:
                self._take_away(lease, node_is_silent=lease.node in silent)
        slow = {node: seconds for node, seconds in patience.items() if seconds > self._nodes.limit_seconds}
        lost = set(self._nodes.observe(counters, now_seconds, slow))
        for beat in heartbeats:
            if beat.node in lost and beat.is_ready:
                registry.mark_lost(self._db, beat.node, heartbeat_seen=beat.counter)
                logger.warning("node %s stopped answering and counts as lost", beat.node)
        return bool(live)

    def _take_away(self, lease: LiveLease, *, node_is_silent: bool) -> None:
        cause, message = _verdict(lease, node_is_silent=node_is_silent)
        try:
            taken = leases.revoke(
                self._db, lease, cause=cause, message=message, actor=self._actor, backoff=self._backoff
            )
        except TrainyardError as error:
            logger.warning("job %s attempt %s: not revoked: %s", lease.job_id, lease.attempt, error)
            return
        except Exception as error:
            if is_transient(error):
                raise
            # It must not block the leases after it; the next sweep retries.
            logger.exception("the lease of job %s attempt %s can't be revoked", lease.job_id, lease.attempt)
            return
        if taken:
            self._on_revoked()
            logger.warning("job %s: %s", lease.job_id, message)


def _verdict(lease: LiveLease, *, node_is_silent: bool) -> tuple[str, str]:
    if node_is_silent:
        return "NODE_LOST", f"node {lease.node} stopped answering during attempt {lease.attempt}"
    if lease.counter == 0:
        return "NODE_LOST", f"node {lease.node} did not claim attempt {lease.attempt}"
    return "SUPERVISOR_LOST", f"the supervisor of attempt {lease.attempt} on {lease.node} stopped renewing its lease"
