"""The services that benchmarks `judge` name: they exist and write verdicts, before a job waits for devices."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import BadSpec, NamedModelNotFound
from app.domain.evaluations.judging import JUDGE, LONGEST_VERDICT, MAX_TOKENS, SERVICE
from app.domain.serving.document import ServiceDocument
from app.domain.spec.inference import GENERATE
from app.domain.spec.model import PlannedBenchmark
from app.models import Service
from app.security.permissions import Caller, Permission


def refuse_missing(session: Session, caller: Caller, project: str, benchmarks: Sequence[PlannedBenchmark]) -> None:
    """Raise Forbidden, NamedModelNotFound, or BadSpec for a service that makes no text, or only shorter ones.

    A judge that is named by `model` is found when it is asked: its name may be that of anything that requests name.
    """
    for number, each in enumerate(benchmarks):
        if each.name != JUDGE:
            continue
        caller.require(Permission.INFER)
        name = each.parameters.get(SERVICE)
        if isinstance(name, str) and name.strip():
            service = _service(session, project, name, f"{number}.parameters.{SERVICE}")
            _require_room(service, each.parameters.get(MAX_TOKENS), f"{number}.parameters.{MAX_TOKENS}")


def _service(session: Session, project: str, name: str, place: str) -> Service:
    of_name = select(Service).where(Service.project == project, Service.name == name, Service.ended_at.is_(None))
    service = session.scalar(of_name) if name.isprintable() else None
    if service is None:
        raise NamedModelNotFound(
            f"the project {project} has no service {name[:64]!r}; list them with GET /v1/services",
            field=f"benchmarks.{place}",
        )
    if service.task != GENERATE:
        raise BadSpec(
            f"the service {name} makes vectors, and a judge has to write; name another one", field=f"benchmarks.{place}"
        )
    return service


def _require_room(service: Service, given: object, place: str) -> None:
    """The service would refuse each request for longer verdicts."""
    limits = ServiceDocument.from_json(service.spec).limits
    wanted = given if isinstance(given, int) else LONGEST_VERDICT
    if wanted > limits.max_output_tokens:
        most, why = limits.max_output_tokens, f"answers up to {limits.max_output_tokens} (max_output_tokens)"
    elif limits.max_context is not None and wanted >= limits.max_context:
        most, why = limits.max_context - 1, f"has a context of {limits.max_context} (max_context) for prompt and answer"
    else:
        return
    raise BadSpec(
        f"a verdict has up to {wanted} tokens ({MAX_TOKENS}), and the service {service.name} {why}; set {MAX_TOKENS} "
        f"to {most} or less",
        field=f"benchmarks.{place}",
    )
