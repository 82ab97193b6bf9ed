"""What the roles of jobs got in a replay: placement, progress and restarts of each."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from simulation.jobs import JobResult, Stay


@dataclass(kw_only=True)
class RoleUse:
    """All instances of the roles with one name.

    ``progress``: the part of the jobs' work that is done; ``goodput``: the part of the device time that was lasting
    work; ``nodes``: that the instances of an attempt were on, on average.
    """

    jobs: int = 0
    instances: int = 0
    attempts: int = 0
    nodes: float = 0.0
    device_hours: float = 0.0
    progress: float = 0.0
    goodput: float = 0.0
    restarts: int = 0  # of instances alone
    failures: int = 0  # that ended an attempt


@dataclass
class _Sums:
    """In seconds; `RoleUse` has quotients of them."""

    nodes: int = 0
    held: float = 0.0
    lasting: float = 0.0
    work: float = 0.0
    done: float = 0.0
    use: RoleUse = field(default_factory=RoleUse)


def role_use(outcomes: Iterable[JobResult]) -> dict[str, RoleUse]:
    """By name of the role, in the order of the trace."""
    found: dict[str, _Sums] = {}
    for outcome in outcomes:
        for role in outcome.job.request.roles:
            sums = found.setdefault(role.role, _Sums())
            _add(sums, outcome, role.role, role.count, role.count * role.each.device_count)
    return {name: _in_parts(sums) for name, sums in found.items()}


def _add(sums: _Sums, outcome: JobResult, role: str, instances: int, devices: int) -> None:
    use, stays = sums.use, outcome.stays
    use.jobs += 1
    use.instances += instances
    use.attempts += len(stays)
    use.restarts += outcome.restarts.get(role, 0)
    use.failures += outcome.failures.get(role, 0)
    sums.nodes += sum(len({*_nodes(stay, role)}) for stay in stays)
    sums.held += sum(stay.ended_at - stay.started_at for stay in stays) * devices
    sums.work += outcome.job.seconds
    sums.done += outcome.done_seconds
    sums.lasting += outcome.done_seconds * devices


def _nodes(stay: Stay, role: str) -> tuple[str, ...]:
    return stay.instances.get(role, ())


def _in_parts(sums: _Sums) -> RoleUse:
    use = sums.use
    use.nodes = sums.nodes / use.attempts if use.attempts else 0.0
    use.device_hours = sums.held / 3600
    use.progress = sums.done / sums.work
    use.goodput = sums.lasting / sums.held if sums.held else 0.0
    return use
