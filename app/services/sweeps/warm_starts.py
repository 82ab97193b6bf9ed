"""What a sweep knows from earlier ones before its first trial: their results, or their best values to begin with.

Results are copied when the sweep is created, so that its suggestions depend on nothing that may be deleted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from app.domain.errors import BadSpec, NotFound
from app.domain.lifecycle.comparison import document_differences
from app.domain.spec.model import JobDocument
from app.domain.sweeps.documents import path_of
from app.domain.sweeps.observations import Observation
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import TRANSFER, SweepSpec
from app.models import Sweep
from app.services.sweeps import lookup
from app.services.sweeps.best import best_numbers
from app.services.sweeps.observed import observations_of

BEST_TRANSFERRED = 5
# Fields of a job that change nothing of what its trials measure.
_NOT_COMPARED = ("name", "labels", "scheduling_config", "output_config")


def known_results(
    session: Session, project: str, spec: SweepSpec, space: Space, base: Mapping[str, Any]
) -> list[Observation]:
    """Results of the sweeps that ``warm_start`` names, with numbers below 0; empty for a transfer.

    Raises NotFound for a sweep of another project, BadSpec for one that differs, naming what.
    """
    if spec.warm_start.kind == TRANSFER:
        return []
    found: list[Observation] = []
    for place, sweep_id in enumerate(spec.warm_start.sweeps):
        field = f"warm_start.sweeps.{place}"
        earlier, its_spec = _earlier(session, project, sweep_id, spec, field)
        _refuse_other_job(earlier, base, space, field)
        # What it knew itself, too: sweeps that it began with may be deleted by now.
        results = [Observation.from_json(raw) for raw in earlier.known]
        results += observations_of(session, earlier, its_spec, number=earlier.next_number, seen_seq=earlier.seq)
        found += [
            replace(each, values=_in_space(space, each.values, field)) for each in results if each.state != "running"
        ]
    return [replace(each, number=place - len(found)) for place, each in enumerate(found)]


def transferred_values(session: Session, project: str, spec: SweepSpec, space: Space) -> list[Mapping[str, Any]]:
    """The best sets of values of the sweeps that ``warm_start`` names, to be tried first; empty for other kinds.

    Those outside of the space are left out. Raises NotFound for a sweep of another project.
    """
    if spec.warm_start.kind != TRANSFER:
        return []
    found: list[Mapping[str, Any]] = []
    for place, sweep_id in enumerate(spec.warm_start.sweeps):
        earlier, its_spec = _earlier(session, project, sweep_id, spec, f"warm_start.sweeps.{place}")
        for number in best_numbers(session, earlier, its_spec, top=BEST_TRANSFERRED):
            values = lookup.find_trial(session, earlier, number).values
            try:
                found.append(space.check(values, field="warm_start"))
            except BadSpec:
                continue
    return found[:BEST_TRANSFERRED]


def _earlier(session: Session, project: str, sweep_id: str, spec: SweepSpec, field: str) -> tuple[Sweep, SweepSpec]:
    earlier = session.get(Sweep, sweep_id) if lookup.SWEEP_ID.fullmatch(sweep_id) else None
    if earlier is None or earlier.project != project:
        raise NotFound(f"the project {project} has no sweep {sweep_id[:64]}", field=field)
    its_spec = SweepSpec.from_json(earlier.spec)
    if its_spec.objectives != spec.objectives:
        shown = ", ".join(f"{each.metric} ({each.goal}, {each.select})" for each in its_spec.objectives)
        raise BadSpec(f"{sweep_id} has the objective {shown}; take the same, or leave that sweep out", field=field)
    return earlier, its_spec


def _in_space(space: Space, values: Mapping[str, Any], field: str) -> dict[str, Any]:
    try:
        return space.check(values, field="values")
    except BadSpec as error:
        raise BadSpec(
            f"a trial of that sweep lies outside of this space: {error.field}: {error.message}; "
            'widen the space, or use "kind": "transfer"',
            field=field,
        ) from error


def _refuse_other_job(earlier: Sweep, base: Mapping[str, Any], space: Space, field: str) -> None:
    """The jobs must agree but for what varies; only those fields that may change a result are compared."""
    varied = {path_of(parameter.name).replace("/", ".") for parameter in space.parameters}
    documents = [JobDocument.from_json(earlier.base).to_json(), JobDocument.from_json(base).to_json()]
    for difference in document_differences(documents):
        name = difference.field
        if name in varied or name.startswith(_NOT_COMPARED):
            continue
        raise BadSpec(
            f'its job differs in {name}; use the same, or "kind": "transfer" to begin with its best values only',
            field=field,
        )


def as_json(known: Sequence[Observation]) -> list[dict[str, Any]]:
    return [each.to_json() for each in known]
