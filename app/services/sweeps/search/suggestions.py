"""What a sweep's method suggests for its next trial: a pure function, so that every process suggests the same."""

import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from typing import Any

from app.domain.errors import BadSpec, Unavailable
from app.domain.sweeps.annealing import anneal_values
from app.domain.sweeps.draws import random_values, seed_of
from app.domain.sweeps.grid import grid_values
from app.domain.sweeps.observations import Observation
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import ANNEAL, GP, GRID, PBT, RANDOM, SOBOL, TPE, FailedTrials, Method, SweepSpec
from app.services.sweeps.search.search_child import COMMAND, ChildFailed, SearchChild

ANSWER_SECONDS = 30.0
_ATTEMPTS = 2
_REMEMBERED = 32
_REST_SECONDS = 30.0
# Children that answer requests, of all threads of a process: each imports Optuna.
REQUEST_SLOTS = threading.BoundedSemaphore(2)
_EXTRAS = {"torch": "train"}  # of libraries that are not in the extra `search`
_MODELS = {TPE: ("optuna",), GP: ("optuna", "torch")}  # methods with startup trials, and their libraries


class SearchUnavailable(Unavailable):
    """The method's library is not installed, or its process failed twice."""


@dataclass(frozen=True)
class Suggestion:
    """``values`` is None when the grid is exhausted; ``note`` is for the history of the sweep, ``seconds`` is how long
    they were computed.
    """

    values: dict[str, Value] | None
    note: str = ""
    seconds: float = field(default=0.0, compare=False)


class Suggestions:
    """Answers grid, random, anneal and startup trials itself, and has a child process answer the others, one at a time.

    The child starts with the first question for it, and again after it ended, which it does when it has no work.
    """

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        slots: threading.Semaphore | None = None,
    ) -> None:
        """``slots``: what a child takes one of while it lives, where several may be asked at once."""
        self._command = command
        self._answer_seconds = answer_seconds
        self._slots = slots
        self._child: SearchChild | None = None
        self._lock = threading.Lock()
        # A trial that has to wait for devices is asked for again and again: the newest answers, and failures with the
        # time until which they count.
        self._answers: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._failures: dict[str, float] = {}

    @property
    def child_pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    def suggest(
        self,
        spec: SweepSpec,
        space: Space,
        *,
        number: int,
        observations: Sequence[Observation],
        place: int | None = None,
    ) -> Suggestion:
        """Values for the trial with this number, from what is known of those before it.

        ``place`` counts the trials before it that were suggested; by default all but those that the document enqueues.

        Raises BadSpec where `require` is never met, and SearchUnavailable.
        """
        seed = seed_of(spec.method.seed, number)
        place = max(0, number - len(spec.enqueue)) if place is None else place
        observations = _penalized(observations, spec.on_failed_trials)
        begun = time.monotonic()
        here = _answered_here(spec, space, place, seed, observations)
        if here is not None:
            return replace(here, seconds=time.monotonic() - begun)
        question = {
            "space": space.to_json(),
            "method": asdict(spec.method),
            "place": place,
            "seed": seed,
            "directions": max(1, len(spec.objectives)),
            "startup_trials": spec.method.startup_trials,
            # A sequence of points depends on none of them.
            "observations": [] if spec.method.name == SOBOL else [each.to_json() for each in observations],
        }
        return _suggestion(self._remembered(question), spec.method.name)

    def close(self) -> None:
        """End the child, and forget its answers; a later question starts another."""
        with self._lock:
            self._end()
            self._answers.clear()

    def _remembered(self, question: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(question)
        key = hashlib.sha256(text.encode()).hexdigest()
        if key in self._answers:
            return self._answers[key]
        if self._failures.get(key, 0.0) > time.monotonic():
            raise SearchUnavailable(
                f"the process of method {question['method']['name']} failed; it is asked again later"
            )
        begun = time.monotonic()
        try:
            answer = self._ask(question, text)
        except SearchUnavailable:
            self._failures = {key: time.monotonic() + _REST_SECONDS}
            raise
        answer["seconds"] = time.monotonic() - begun
        self._answers[key] = answer
        if len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)
        return answer

    def _ask(self, question: dict[str, Any], text: str) -> dict[str, Any]:
        with self._lock:
            for _ in range(_ATTEMPTS):
                try:
                    return self._living_child().ask(text, seconds=self._answer_seconds)
                except ChildFailed as error:
                    failure = error
                    self._end()
                except BaseException:
                    self._end()  # a part of the answer may be on its way
                    raise
        raise SearchUnavailable(
            f"the process of method {question['method']['name']} failed {_ATTEMPTS} times: {failure}; the log of this "
            f"process has its output. Use one of {GRID}, {RANDOM}, {ANNEAL}, which need none"
        )

    def _living_child(self) -> SearchChild:
        if self._child is not None and not self._child.is_alive:
            self._end()
        if self._child is None:
            if self._slots is not None and not self._slots.acquire(timeout=ANSWER_SECONDS):
                raise SearchUnavailable("the processes that compute suggestions are busy; retry later")
            self._child = SearchChild(self._command)
        return self._child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()
            if self._slots is not None:
                self._slots.release()


def _answered_here(
    spec: SweepSpec, space: Space, place: int, seed: int, observations: Sequence[Observation]
) -> Suggestion | None:
    """What needs no library; None: the child is to be asked. Raises SearchUnavailable where it could not answer."""
    method = spec.method
    if method.name == GRID:
        return Suggestion(grid_values(space, place, order=method.order, seed=method.seed))
    if method.name == PBT and place + len(spec.enqueue) >= method.population:
        return Suggestion(None)  # all further members are forks
    if method.name in (RANDOM, PBT):
        return Suggestion(random_values(space, seed))
    if method.name == ANNEAL:
        return Suggestion(
            anneal_values(space, observations, seed, avg_best_idx=method.avg_best_idx, shrink_coef=method.shrink_coef)
        )
    if not _is_startup(method, observations):
        return None
    _require_libraries(method.name)
    return Suggestion(random_values(space, seed), f"drawn at random: one of {method.startup_trials} startup trials")


def _is_startup(method: Method, observations: Sequence[Observation]) -> bool:
    """Whether a model knows too little to be asked; answered here, the first trials wait for no library to load.

    As Optuna's samplers count: TPE all trials that have not failed, its Gaussian process completed ones.
    """
    if method.name not in _MODELS:
        return False
    counted = ("completed",) if method.name == GP else ("completed", "stopped", "running")
    return sum(each.state in counted for each in observations) < method.startup_trials


def _require_libraries(method: str) -> None:
    """Raise SearchUnavailable before the first trial, not after the last startup trial."""
    missing = next((name for name in _MODELS[method] if find_spec(name) is None), None)
    if missing is not None:
        raise _not_installed(method, missing)


def _not_installed(method: str, library: str) -> SearchUnavailable:
    return SearchUnavailable(
        f"method {method} needs {library}, which is not installed here: "
        f"pip install 'trainyard[{_EXTRAS.get(library, 'search')}]', or use one of {GRID}, {RANDOM}, {ANNEAL}"
    )


def _penalized(observations: Sequence[Observation], rule: FailedTrials) -> list[Observation]:
    """Failed trials whose cause penalises as completed ones with the worst objectives of all, also at each rung of
    which values are given; as failed ones while none has completed.
    """
    if all(each.state != "failed" for each in observations):
        return [*observations]
    completed = [each.objectives for each in observations if each.state == "completed"]
    worst = tuple(map(max, zip(*completed, strict=True)))
    at_rungs: dict[int, float] = {}
    for rung, value in (report for each in observations for report in each.reports):
        at_rungs[rung] = max(value, at_rungs.get(rung, value))
    reports = tuple(sorted(at_rungs.items()))

    def counted(each: Observation) -> Observation:
        if worst and rule.penalizes(each.cause):
            each = replace(each, state="completed", objectives=worst, reports=reports)
        return replace(each, cause="")  # methods ask for none

    return [counted(each) if each.state == "failed" else each for each in observations]


def _suggestion(answer: dict[str, Any], method: str) -> Suggestion:
    if "error" not in answer:
        return Suggestion(answer["values"], answer["note"], answer["seconds"])
    if "field" in answer:
        raise BadSpec(answer["error"], field=answer["field"])
    if "missing" in answer:
        raise _not_installed(method, answer["missing"])
    raise SearchUnavailable(f"method {method} suggested nothing: {answer['error']}")
