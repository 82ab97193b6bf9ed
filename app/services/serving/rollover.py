"""Which replicas a service can do without: those of former revisions once new ones answer, and more than are wanted."""

from datetime import datetime, timedelta

from app.domain.lifecycle.states import UNHELD
from app.domain.serving.states import ServiceState
from app.models import Service
from app.services.serving import fleet
from app.services.serving.fleet import FleetMember

# Where new replicas wait for devices so long, an old one gives up its own: requests are held meanwhile.
WAITS_FOR_DEVICES = timedelta(seconds=30)


def surplus(service: Service, members: list[FleetMember], now: datetime) -> list[tuple[FleetMember, str]]:
    """Replicas that are to be drained, each with the reason."""
    alive = [each for each in members if each.is_live and not each.is_draining]
    if service.status != ServiceState.ACTIVE:
        reason = "the service is paused" if service.status == ServiceState.PAUSED else "the service was deleted"
        return [(each, reason) for each in alive]
    current = fleet.live(members, revision=service.revision)
    former = [each for each in alive if each.replica.revision != service.revision]
    return [
        *_spare(service, current),
        *(
            (each, "a replica of a newer revision replaces it")
            for each in _replaced(service, members, now, current, former)
        ),
    ]


def to_give_way(service: Service, current: list[FleetMember]) -> list[FleetMember]:
    """Replicas that are not preemptible, although the service demands fewer of those: its minimum was lowered.

    ``current``: those of its revision. A service that is paused or deleted drains them all.
    """
    if service.status != ServiceState.ACTIVE:
        return []
    return [each for each in _by_usefulness(current) if not each.is_preemptible][fleet.lasting(service) :]


def _spare(service: Service, current: list[FleetMember]) -> list[tuple[FleetMember, str]]:
    """More than are wanted. Those that give way to other jobs stand in for those that last until these answer."""
    lasting = [each for each in _by_usefulness(current) if not each.is_preemptible][: fleet.lasting(service)]
    others = [each for each in _by_usefulness(current) if each not in lasting]
    more = others[service.wanted - len(lasting) :]
    stand_ins = [each for each in more if each.answers or each.is_starting][: sum(not each.answers for each in lasting)]
    return [(each, "the service needs fewer replicas") for each in more if each not in stand_ins]


def _by_usefulness(members: list[FleetMember]) -> list[FleetMember]:
    """The most useful ones first: those that answer, those that always run, those that are older."""
    return sorted(members, key=lambda each: (not each.answers, each.is_preemptible, each.replica.number))


def _replaced(
    service: Service, members: list[FleetMember], now: datetime, current: list[FleetMember], former: list[FleetMember]
) -> list[FleetMember]:
    keep = max(0, service.wanted - sum(each.answers for each in current))
    answering = [each for each in _by_usefulness(former) if each.answers]
    gone = [each for each in former if not each.answers] + answering[keep:]
    is_draining = any(each.is_draining and each.is_live for each in members)
    if not gone and answering and not is_draining and _waits_for_devices(current, now):
        return answering[-1:]
    return gone


def _waits_for_devices(current: list[FleetMember], now: datetime) -> bool:
    queued = [each.job.queued_at or each.job.created_at for each in current if each.job.state in UNHELD]
    return (
        bool(queued)
        and len(queued) == sum(not each.answers for each in current)
        and (now - min(queued) >= WAITS_FOR_DEVICES)
    )
