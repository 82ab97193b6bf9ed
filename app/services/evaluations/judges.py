"""The services that benchmarks `judge` of a request name: they exist and write text, before a job waits for devices."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import BadSpec, ModelNotFound
from app.domain.evaluations.judging import JUDGE, SERVICE
from app.domain.spec.inference import GENERATE
from app.domain.spec.model import PlannedBenchmark
from app.models import Service
from app.security.permissions import Caller, Permission


def refuse_missing(session: Session, caller: Caller, project: str, benchmarks: Sequence[PlannedBenchmark]) -> None:
    """Raise Forbidden, ModelNotFound, or BadSpec for a service that makes no text.

    A judge that is named by `model` is found when it is asked: its name may be that of anything that requests name.
    """
    for number, each in enumerate(benchmarks):
        if each.name != JUDGE:
            continue
        caller.require(Permission.INFER)
        name = each.parameters.get(SERVICE)
        if isinstance(name, str) and name.strip():
            _check(session, project, name, f"{number}.parameters.{SERVICE}")


def _check(session: Session, project: str, name: str, place: str) -> None:
    of_name = select(Service).where(Service.project == project, Service.name == name, Service.ended_at.is_(None))
    service = session.scalar(of_name) if name.isprintable() else None
    if service is None:
        raise ModelNotFound(
            f"the project {project} has no service {name[:64]!r}; list them with GET /v1/services",
            field=f"benchmarks.{place}",
        )
    if service.task != GENERATE:
        raise BadSpec(
            f"the service {name} makes vectors, and a judge has to write; name another one", field=f"benchmarks.{place}"
        )
