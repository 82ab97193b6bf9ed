"""What a sweep knows from earlier ones before its first trial: their results, or their best values to begin with.

Results are copied when the sweep is created, so that its suggestions depend on nothing that may be deleted. With
`warm_start.count` one of them may be the best of the sweep, whose `best_number` is then below 0.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import mul
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import BadSpec, NotFound
from app.domain.lifecycle.comparison import document_differences
from app.domain.spec.model import JobDocument
from app.domain.sweeps import pareto
from app.domain.sweeps.documents import path_of
from app.domain.sweeps.observations import EarlierResult
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import BOHB, TRANSFER, Constraint, SweepSpec
from app.domain.sweeps.states import TrialState
from app.models import Sweep, Trial
from app.models.insertion import new_row
from app.services.sweeps import lookup
from app.services.sweeps.observed import best_numbers, observations_of, with_reports

BEST_TRANSFERRED = 5
# Fields of a job that change nothing of what its trials measure.
_NOT_COMPARED = ("name", "labels", "scheduling_config", "output_config", "tracking", "interactive_config")


def known_results(
    session: Session, project: str, spec: SweepSpec, space: Space, base: Mapping[str, Any]
) -> list[EarlierResult]:
    """Results of the sweeps that ``warm_start`` names, with numbers below 0; empty for a transfer.

    Raises NotFound for a sweep of another project, BadSpec for one that differs, naming what.
    """
    if spec.warm_start.kind == TRANSFER:
        return []
    found: list[EarlierResult] = []
    for place, sweep_id in enumerate(spec.warm_start.sweeps):
        field = f"warm_start.sweeps.{place}"
        earlier, its_spec = _earlier(session, project, sweep_id, spec, field)
        _refuse_other_job(earlier, base, space, field)
        if spec.warm_start.count:
            _refuse_other_constraints(sweep_id, spec, its_spec, field)
        found += [
            replace(
                each, observation=replace(each.observation, values=_in_space(space, each.observation.values, field))
            )
            for each in _results(session, earlier, its_spec, spec)
        ]
    return [
        replace(each, observation=replace(each.observation, number=place - len(found)))
        for place, each in enumerate(found)
    ]


def _results(session: Session, earlier: Sweep, its_spec: SweepSpec, spec: SweepSpec) -> list[EarlierResult]:
    """What the earlier sweep has found, and what it knew itself: sweeps that it began with may be deleted by now.

    Values at rungs are for `bohb` alone, and comparable where both sweeps have them in one unit.
    """
    known = [_known(earlier, raw) for raw in earlier.known]
    own = observations_of(session, earlier, its_spec, number=earlier.next_number, seen_seq=earlier.seq)
    has_rungs = spec.method.name == BOHB and its_spec.early_stopping.unit == spec.early_stopping.unit
    if has_rungs and len(its_spec.objectives) == 1:
        own = with_reports(session, earlier, its_spec, own, seen_seq=earlier.seq)
    jobs = dict(session.execute(select(Trial.number, Trial.job_id).where(Trial.sweep_id == earlier.id)).all())
    results = known + [
        EarlierResult(
            observation=each,
            sweep_id=earlier.id,
            number=each.number,
            job_id=jobs.get(each.number),
            judged_by=_hash(its_spec.constraints),
        )
        for each in own
        if each.state != "running"
    ]
    if has_rungs:
        return results
    return [replace(each, observation=replace(each.observation, reports=())) for each in results]


def _known(earlier: Sweep, raw: Mapping[str, Any]) -> EarlierResult:
    """A result that the earlier sweep began with. One stored without its origin is known by its number there."""
    found = EarlierResult.from_json(raw)
    return found if found.sweep_id else replace(found, sweep_id=earlier.id, number=found.observation.number)


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


def _refuse_other_constraints(sweep_id: str, spec: SweepSpec, its_spec: SweepSpec, field: str) -> None:
    if spec.constraints and its_spec.constraints != spec.constraints:
        raise BadSpec(
            f"{sweep_id} has other constraints, and its results were not judged by those of this sweep; take the same, "
            "or leave warm_start.count out",
            field=field,
        )


def _hash(constraints: Sequence[Constraint]) -> str:
    text = json.dumps([each.to_json() for each in constraints])
    return hashlib.sha256(text.encode()).hexdigest()[:16] if constraints else ""


def as_json(known: Sequence[EarlierResult]) -> list[dict[str, Any]]:
    return [each.to_json() for each in known]


def counted(known: Sequence[Mapping[str, Any]], spec: SweepSpec) -> list[EarlierResult]:
    """Of the stored results those that may be best: best first, or the front of several objectives; none by default.

    Without constraints none of them breaks one; else those count that were judged by the same, which those need not
    be that an earlier sweep began with.
    """
    if not spec.warm_start.count:
        return []
    found = [EarlierResult.from_json(raw) for raw in known]
    if spec.constraints:
        found = [each for each in found if each.judged_by == _hash(spec.constraints)]
    else:
        found = [replace(each, observation=replace(each.observation, violations=())) for each in found]
    by_number = {each.observation.number: each for each in found}
    return [by_number[each.number] for each in pareto.ranked(each.observation for each in found)]


def best_number(known: Sequence[Mapping[str, Any]], spec: SweepSpec) -> int | None:
    """Of a new sweep: the number of the best earlier result, if it counts; several objectives have none."""
    found = counted(known, spec) if len(spec.objectives) == 1 else []
    return found[0].observation.number if found else None


def best_trial(session: Session, sweep: Sweep, spec: SweepSpec) -> Trial | None:
    """The best trial of one objective; an earlier result is a row with a number below 0, in no session."""
    if sweep.best_number is None or sweep.best_number >= 0:
        return session.get(Trial, (sweep.id, sweep.best_number)) if sweep.best_number is not None else None
    return as_trial(sweep, spec, earlier_result(sweep, sweep.best_number))


def earlier_result(sweep: Sweep, number: int) -> EarlierResult:
    """The one with this number, which is below 0."""
    return next(EarlierResult.from_json(raw) for raw in sweep.known if raw["number"] == number)


def as_trial(sweep: Sweep, spec: SweepSpec, found: EarlierResult) -> Trial:
    """The result as a trial of the sweep that it counts for, which has paid nothing for it."""
    known = found.observation
    signs = [objective.sign for objective in spec.objectives]
    objectives = list(map(mul, known.objectives, signs))
    return new_row(
        Trial,
        sweep_id=sweep.id,
        number=known.number,
        job_id=found.job_id,
        source="earlier",
        values=dict(known.values),
        seed=0,
        seen_seq=0,
        parent_number=None,
        error_type=None,
        state=TrialState.COMPLETED,
        objectives=objectives,
        value=objectives[0],
        violations=[],  # it breaks none, or it would not count
        step=known.step,
        created_at=sweep.created_at,
        finished_at=sweep.created_at,
    )
