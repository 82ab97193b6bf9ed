"""How many replicas a service is to have, from what its gateways count."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from app.domain.serving import scaling
from app.domain.serving.document import ServiceDocument
from app.domain.serving.states import ServiceState
from app.models import Service
from app.services.serving.loads import Load

_NEVER = float("inf")
_MOST_PRECISE = timedelta(seconds=5)  # needed_at is not written more often


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What the row of the service should say."""

    wanted: int
    above_target_since: datetime | None
    needed_at: datetime | None

    def differs(self, service: Service) -> bool:
        return (self.wanted, self.above_target_since, self.needed_at) != (
            service.wanted,
            service.above_target_since,
            service.needed_at,
        )


def of(service: Service, load: Load, now: datetime, *, is_starting: bool, jobs_wait: bool = False) -> Demand:
    """``is_starting``: a replica is being loaded, which is not ended before it has answered.

    ``jobs_wait``: jobs wait for devices of its replicas.
    """
    if service.status != ServiceState.ACTIVE:
        return Demand(wanted=0, above_target_since=None, needed_at=service.needed_at)
    replicas = ServiceDocument.from_json(service.spec).replicas
    is_above = scaling.is_above_target(replicas, wanted=service.wanted, in_flight=load.in_flight, waiting=load.waiting)
    above_since = (service.above_target_since or now) if is_above else None
    is_needed = scaling.needed(replicas, load.in_flight, load.waiting) >= max(1, service.wanted)
    needed_at = now if is_needed or is_starting else _needed_at(service)
    wanted = scaling.wanted(
        replicas,
        now_wanted=service.wanted,
        in_flight=load.in_flight,
        waiting=load.waiting,
        seconds_above_target=(now - above_since).total_seconds() if above_since is not None else 0.0,
        idle_seconds=(now - needed_at).total_seconds() if needed_at is not None else _NEVER,
        jobs_wait=jobs_wait,
    )
    if wanted > service.wanted:
        needed_at = now
    precision = min(_MOST_PRECISE, timedelta(seconds=replicas.idle_seconds) / 4)
    is_known = service.needed_at is not None and needed_at is not None and needed_at - service.needed_at < precision
    return Demand(
        wanted=wanted,
        above_target_since=above_since,
        needed_at=service.needed_at if is_known and wanted == service.wanted else needed_at,
    )


def _needed_at(service: Service) -> datetime | None:
    """A single replica is needed by every request, however short it was."""
    if service.wanted > 1 or service.requested_at is None:
        return service.needed_at
    return max(service.requested_at, service.needed_at or service.requested_at)
