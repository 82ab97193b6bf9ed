"""What a sweep would do, without creating it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.domain.spec.model import JobDocument
from app.domain.sweeps.grid import grid_size
from app.domain.sweeps.observations import Observation
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.rungs import brackets_of, rungs_of
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import ASHA, GRID, HYPERBAND, MAX_TRIALS, SweepSpec
from app.services.sweeps.creation import CheckedSweep
from app.services.sweeps.forking import trunks
from app.services.sweeps.next_trial import Suggests
from app.services.sweeps.observing import device_count

SHOWN_SUGGESTIONS = 5


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """``rungs``: each with the trials that are expected to reach it; median and patience end an unknown number.

    ``trunks``: trials, of the first whose values are known, that begin with an earlier one's checkpoint after a step.
    ``device_hours_at_most`` is None where nothing bounds them.
    """

    grid_size: int | None
    device_hours_at_most: float | None
    rungs: list[dict[str, float]]
    suggestions: list[Mapping[str, Value]]
    trunks: list[dict[str, int]]
    warnings: list[str]


def plan(suggestions: Suggests, checked: CheckedSweep) -> SweepPlan:
    """Raises SearchUnavailable where the method's libraries are not installed."""
    return SweepPlan(
        grid_size=_grid_size(checked),
        device_hours_at_most=device_hours_at_most(checked.spec, checked.base, checked.space.size),
        rungs=expected_rungs(checked.spec, checked.spec.budget.max_trials or checked.space.size or 0),
        suggestions=first_suggestions(
            suggestions, checked.spec, checked.space, [Observation.from_json(raw) for raw in checked.known]
        ),
        trunks=[asdict(trunk) for trunk in trunks.expected(checked.spec, checked.base)],
        warnings=list(checked.warnings),
    )


def _grid_size(checked: CheckedSweep) -> int | None:
    """Points that a grid tries; of other methods those that their space has, conditions aside."""
    size = checked.space.size
    return size if size is None or checked.spec.method.name != GRID else grid_size(checked.space, min(size, MAX_TRIALS))


def device_hours_at_most(spec: SweepSpec, base: Mapping[str, Any], size: int | None) -> float | None:
    """By the budget, and by the longest time that a job may run; ``size``: points of the space.

    Trials that run when `max_device_hours` or `max_seconds` is reached may end after it.
    """
    document, budget = JobDocument.from_json(dict(base)), spec.budget
    longest = document.scheduling_config.max_runtime_seconds
    trials = min(filter(None, (budget.max_trials, size if spec.method.name == GRID else None)), default=None)
    devices = device_count(document)
    bounds = [budget.max_device_hours]
    if trials is not None and longest is not None:
        bounds.append(trials * devices * longest / 3600)
    if budget.max_seconds is not None and isinstance(budget.parallel_trials, int):
        bounds.append(budget.parallel_trials * devices * budget.max_seconds / 3600)
    return min((round(bound, 6) for bound in bounds if bound is not None), default=None)


def expected_rungs(spec: SweepSpec, trials: int) -> list[dict[str, Any]]:
    rule = spec.early_stopping
    halves = rule.name in (ASHA, HYPERBAND)
    expected: dict[int, float] = {}
    brackets = brackets_of(rule)
    for bracket in range(brackets):
        for place, rung in enumerate(rungs_of(rule, bracket)):
            share = trials / brackets / (rule.reduction**place if halves else 1)
            expected[rung] = expected.get(rung, 0.0) + share
    return [{"rung": rung, "trials": round(number, 1)} for rung, number in sorted(expected.items())]


def first_suggestions(
    suggestions: Suggests, spec: SweepSpec, space: Space, known: Sequence[Observation]
) -> list[Mapping[str, Value]]:
    """Those that are known before any trial has ended."""
    found: list[Mapping[str, Value]] = list(spec.enqueue[:SHOWN_SUGGESTIONS])
    most = min(SHOWN_SUGGESTIONS, spec.budget.max_trials or SHOWN_SUGGESTIONS)
    for number in range(len(found), most):
        place = number - len(spec.enqueue)
        suggestion = suggestions.suggest(spec, space, number=number, place=place, observations=known)
        if suggestion.values is None:
            break
        found.append(suggestion.values)
    return found
