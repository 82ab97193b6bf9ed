"""Trunks: a new trial begins with a checkpoint of an earlier one, after the last step that both have in common.

Values of trials do not depend on it, nor, by `first_difference`, do their weights. A trial saves where others that are
known to come branch off. What is worth it waits for a running trial to get there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import TERMINAL, JobState
from app.domain.spec.defaults import completed
from app.domain.spec.document import typed_hyperparameters
from app.domain.spec.hyperparameters.parameter import InvalidHyperparameter
from app.domain.spec.model import JobDocument
from app.domain.sweeps.documents import trial_document
from app.domain.sweeps.grid import grid_values
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import GRID, SweepSpec
from app.domain.sweeps.states import TrialState
from app.domain.sweeps.trunks import WORTHWHILE, Trunk, alike, first_difference, latest_branch, shared_names
from app.models import Checkpoint, Job, Sweep, Trial
from app.services.requests.control_plane import ControlPlane
from app.services.sweeps.trials import Fork, NewTrial

# Points of a grid, in the order in which they are tried, among which branches are looked for.
KNOWN_POINTS = 1_000
SHOWN_POINTS = 64  # of a dry run
# Checkpoints that a trial saves for others.
MOST_SAVES = 32
_WITH_CHECKPOINTS = (TrialState.RUNNING, TrialState.COMPLETED, TrialState.STOPPED)


@dataclass(frozen=True)
class Postponed:
    """The new trial is made later; ``reason`` says what it waits for."""

    reason: str


@dataclass(frozen=True)
class _Earlier:
    """An earlier trial, and how many steps the new one has in common with it."""

    trial: Trial
    job: Job
    common: int


class Sharing:
    """What trials of a sweep may have in common: documents differ in the parameters ``names`` only."""

    def __init__(self, spec: SweepSpec, base: Mapping[str, Any]) -> None:
        self._spec, self._base = spec, base
        self._names = shared_names(spec, JobDocument.from_json(dict(base)))
        self._read: dict[str, JobDocument] = {}

    @property
    def is_possible(self) -> bool:
        return bool(self._names)

    def alike(self, first: Mapping[str, Value], second: Mapping[str, Value]) -> bool:
        return alike(first, second, but_for=self._names)

    def common(self, first: Mapping[str, Value], second: Mapping[str, Value]) -> int:
        """After how many steps a trial with one set of values may begin where one with the other is; 0 for none."""
        if not self.alike(first, second):
            return 0
        lengths = (self.length(first), self.length(second))
        if 0 in lengths:
            return 0
        steps = first_difference(self._document(first), self._document(second))
        return min(steps, *(latest_branch(self._spec, length) for length in lengths))

    def length(self, values: Mapping[str, Value]) -> int:
        """In steps; 0 for values that no trial can have together, which are refused when it is made."""
        try:
            return int(typed_hyperparameters(self._document(values))["max_steps"])
        except InvalidHyperparameter:
            return 0

    def is_worthwhile(self, steps: int, values: Mapping[str, Value]) -> bool:
        return steps >= WORTHWHILE * self.length(values)

    def branches(self, values: Mapping[str, Value], to_come: Sequence[Mapping[str, Value]]) -> tuple[int, ...]:
        """The steps at which trials that are to come branch off one with these values; of very many some, evenly."""
        found = {
            steps for other in to_come if (steps := self.common(values, other)) and self.is_worthwhile(steps, other)
        }
        every = -(-len(found) // MOST_SAVES)
        return tuple(sorted(sorted(found, reverse=True)[:: max(1, every)]))

    def _document(self, values: Mapping[str, Value]) -> JobDocument:
        key = repr(sorted(values.items()))
        if key not in self._read:
            raw = trial_document(self._base, values, name="", labels={})
            self._read[key] = completed(JobDocument.from_json(raw))
        return self._read[key]


def begin(plane: ControlPlane, sweep: Sweep, spec: SweepSpec, new: NewTrial) -> NewTrial | Postponed:
    """The new trial with the checkpoint that it begins with, if there is one, and with those that it saves for others.

    Waits where a running trial will save one that spares far more than those there are.
    """
    sharing = Sharing(spec, sweep.base)
    if sweep.trunks_refused or not sharing.is_possible:
        return new
    with plane.db.read() as session:
        begun = _begun(session, sharing, sweep, new)
        earlier = _earlier(session, sharing, sweep, new, begun)
        fork = _stored(session, earlier)
        waits = _awaited(session, sharing, new, earlier, fork)
    if waits is not None:
        return waits
    made = [new.values, *begun.values()]
    to_come = [values for values in _known(spec) if sharing.alike(values, new.values) and values not in made]
    start = fork.step if fork is not None else 0
    saves = tuple(step for step in sharing.branches(new.values, to_come) if step > start)
    return replace(new, fork=fork, save_at=saves)


def expected(spec: SweepSpec, base: Mapping[str, Any]) -> list[Trunk]:
    """Of the first trials whose values are known, those that would begin with an earlier one's checkpoint."""
    sharing, found = Sharing(spec, base), []
    trials = _known(spec)[:SHOWN_POINTS] if sharing.is_possible else []
    for number, values in enumerate(trials):
        common = [(sharing.common(values, other), -earlier) for earlier, other in enumerate(trials[:number])]
        steps, earlier = max(common, default=(0, 0))
        if steps and sharing.is_worthwhile(steps, values):
            found.append(Trunk(number, -earlier, steps))
    return found


def _begun(session: Session, sharing: Sharing, sweep: Sweep, new: NewTrial) -> dict[int, Mapping[str, Value]]:
    """Numbers and values of earlier trials that may have steps in common with the new one."""
    query = select(Trial.number, Trial.values).where(Trial.sweep_id == sweep.id, Trial.number < new.number)
    return {row.number: row.values for row in session.execute(query) if sharing.alike(row.values, new.values)}


def _earlier(
    session: Session, sharing: Sharing, sweep: Sweep, new: NewTrial, begun: Mapping[int, Mapping[str, Value]]
) -> list[_Earlier]:
    """Those of these trials, by number, whose checkpoints are what a training from the start would have saved."""
    query = (
        select(Trial, Job)
        .join(Job, Job.id == Trial.job_id)
        .where(
            Trial.sweep_id == sweep.id,
            Trial.number.in_(begun),
            Trial.state.in_(_WITH_CHECKPOINTS),
            Trial.source != "exploited",
        )
        .order_by(Trial.number)
    )
    return [
        _Earlier(trial, job, common)
        for trial, job in session.execute(query)
        # A job that went on with smaller batches or rates has not trained as its document says.
        if not job.adjustments and (common := sharing.common(new.values, trial.values))
    ]


def _stored(session: Session, earlier: Sequence[_Earlier]) -> Fork | None:
    """The stored checkpoint that spares most, of the first trial that has it."""
    by_job = {each.job.id: each for each in earlier}
    query = select(Checkpoint.job_id, Checkpoint.id, Checkpoint.step).where(
        Checkpoint.job_id.in_(by_job),
        Checkpoint.step > 0,
        Checkpoint.deleted_at.is_(None),
        Checkpoint.diverged.is_(False),
    )
    found = [
        Fork(parent_number=by_job[row.job_id].trial.number, checkpoint_id=row.id, step=row.step)
        for row in session.execute(query)
        if row.step <= by_job[row.job_id].common
    ]
    return max(found, key=lambda fork: (fork.step, -fork.parent_number, fork.checkpoint_id), default=None)


def _awaited(
    session: Session, sharing: Sharing, new: NewTrial, earlier: Sequence[_Earlier], fork: Fork | None
) -> Postponed | None:
    """What a running trial will save, if it spares so much more that it is waited for."""
    so_far, best = fork.step if fork is not None else 0, None
    for each in earlier:
        step = _next_save(session, each, above=so_far) if _is_going_on(each) else 0
        if step and (best is None or step > best[0]):
            best = step, each.trial.number
    if best is None or not sharing.is_worthwhile(best[0] - so_far, new.values):
        return None
    return Postponed(f"waits for trial {best[1]} to save at step {best[0]}, where trial {new.number} branches off")


def _is_going_on(each: _Earlier) -> bool:
    """Not a paused one: it may wait for what other trials report."""
    job = each.job
    stays = job.state not in TERMINAL and job.state not in (JobState.PAUSED, JobState.EXPORTING)
    return stays and not job.requested and not each.trial.stop_reason and not each.trial.paused


def _next_save(session: Session, each: _Earlier, *, above: int) -> int:
    """The last step in common, above what there is, after which the trial is going to save; 0 for none.

    It has left out what it has not saved when it has saved a later one.
    """
    newest = session.scalar(
        select(Checkpoint.step).where(Checkpoint.job_id == each.job.id).order_by(Checkpoint.step.desc()).limit(1)
    )
    passed = max(above, newest or 0, each.trial.fork_step)
    checkpoint = each.job.document.output_config.checkpoint
    steps = [step for step in checkpoint.save_at if step <= each.common]
    if checkpoint.save_strategy == "steps":
        steps.append(each.common - each.common % checkpoint.save_steps)
    return max((step for step in steps if step > passed), default=0)


def _known(spec: SweepSpec) -> list[Mapping[str, Value]]:
    """Sets of values that are tried whatever is found, in their order, as far as they are looked at."""
    most = min(KNOWN_POINTS, spec.budget.max_trials or KNOWN_POINTS)
    return list(islice(chain(spec.enqueue, _points(spec)), most))


def _points(spec: SweepSpec) -> Iterator[Mapping[str, Value]]:
    """Those of a grid."""
    if spec.method.name != GRID:
        return
    space, place = Space.from_json(spec.parameters, spec.require), 0
    while (values := grid_values(space, place, order=spec.method.order, seed=spec.method.seed)) is not None:
        yield values
        place += 1
