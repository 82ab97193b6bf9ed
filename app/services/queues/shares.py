"""Shares: usage and quota of each project, in serving order."""

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import HELD
from app.domain.scheduling.fair_share import KINDS, DeviceQuota
from app.models import Device
from app.security.permissions import Caller
from app.services.queues import limits, project_quotas


@dataclass(frozen=True, kw_only=True)
class ProjectShare:
    """Share of one project in one kind of device. Job counts include all jobs of the project.

    ``devices``: of the kind in the cluster; ``is_contested``: some project deserves some of them.
    """

    project: str
    kind: str  # as quotas name it
    used: float
    borrowed: float
    quota: DeviceQuota
    running_jobs: int
    waiting_jobs: int
    devices: int
    is_contested: bool


def project_shares(session: Session, caller: Caller) -> list[ProjectShare]:
    """Shares of every project that the caller sees in each kind of device in the cluster.

    Reserved devices do not count as used.
    """
    projects = project_quotas.accounts(session, {}).projects
    running, waiting = (project_quotas.count_jobs(session, projects, states) for states in (HELD, limits.WAITING))
    kinds: Counter[str] = Counter()
    for kind, count in session.execute(select(Device.type, func.count()).group_by(Device.type)):
        kinds["cpu" if kind == "cpu" else "cuda"] += count
    found = []
    for kind in sorted(kinds, reverse=True):
        seen = filter(caller.sees, projects)
        is_contested = any(each.quota.of(kind).deserved for each in projects.values())
        for name in sorted(seen, key=lambda each: (projects[each].serving_key(kind), each)):
            standing = projects[name]
            share = ProjectShare(
                project=name,
                kind=KINDS[kind],
                used=standing.used.get(kind, 0.0),
                quota=standing.quota.of(kind),
                borrowed=standing.borrowed(kind, clearing=0),
                running_jobs=running.get(name, 0),
                waiting_jobs=waiting.get(name, 0),
                devices=kinds[kind],
                is_contested=is_contested,
            )
            found.append(share)
    return found
