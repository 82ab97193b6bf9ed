"""The next trial follows the end of one at once, and the trials of one step share what was read for the first."""

from collections.abc import Callable, Sequence

import pytest

from app.domain.lifecycle.states import JobState
from app.domain.sweeps.observations import Observation
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import SweepSpec
from app.http.context import EXTENSION
from app.models import Sweep
from app.services.requests.wakeups import Dispatcher
from app.services.sweeps.ends import LONGEST_SECONDS, SHARE, SHORTEST_SECONDS, Ends
from app.services.sweeps.observed import known_to_method
from app.services.sweeps.search.suggestions import Suggestion, Suggestions
from config.settings import load_settings
from tasks.background.sweeping import SweepLoop
from tasks.celery_app import Runtime
from tests.builders.statements import statements
from tests.builders.sweep_runs import SweepRun
from tests.systems.apps import Api
from tests.unit.tasks.test_polls import Clock

Make = Callable[..., SweepRun]
RANDOM = {"name": "random", "seed": 1}


class Interrupts:
    """Suggestions; before those for one trial something happens to its sweep."""

    def __init__(self, number: int, happens: Callable[[], object]) -> None:
        self._own, self._number, self._happens = Suggestions(), number, happens

    def suggest(
        self, spec: SweepSpec, space: Space, *, number: int, place: int, observations: Sequence[Observation]
    ) -> Suggestion:
        if number == self._number:
            self._happens()
        return self._own.suggest(spec, space, number=number, place=place, observations=observations)


class Asked:
    """Suggestions, and what they were made from, by the trial's number."""

    def __init__(self) -> None:
        self._own, self.observations = Suggestions(), dict[int, Sequence[Observation]]()

    def suggest(
        self, spec: SweepSpec, space: Space, *, number: int, place: int, observations: Sequence[Observation]
    ) -> Suggestion:
        self.observations[number] = observations
        return self._own.suggest(spec, space, number=number, place=place, observations=observations)


@pytest.mark.both_databases
def test_an_end_is_new_once_and_the_next_is_soon_asked_for(make_run: Make) -> None:
    run, clock = make_run(method=RANDOM, budget={"max_trials": 9, "parallel_trials": 2}), Clock()
    run.step()
    ends = Ends(run.db, clock=clock)

    assert not ends.any_new([run.id])
    assert ends.seconds == LONGEST_SECONDS
    run.end(0)
    assert ends.any_new([run.id])
    assert ends.seconds == SHORTEST_SECONDS
    assert not ends.any_new([run.id]), "it waits to be recorded"
    clock.now += 10.0
    assert not ends.any_new([run.id])
    assert ends.seconds == 10.0 * SHARE, "trials last longer"
    clock.now += 3600.0
    assert not ends.any_new([run.id])
    assert ends.seconds == LONGEST_SECONDS
    run.end(1, JobState.FAILED)
    assert ends.any_new([run.id])
    run.step()
    assert not ends.any_new([run.id]), "both are recorded"
    assert not ends.any_new(["sweep-of-another"])


def test_the_loop_makes_the_next_trial_without_a_change_or_a_poll(make_run: Make, api: Api) -> None:
    run = make_run(method=RANDOM, budget={"max_trials": 9, "parallel_trials": 1})
    is_leader = [True]
    runtime = Runtime(api.app.extensions[EXTENSION].settings, api.db, Dispatcher(load_settings({})))
    loop = SweepLoop(runtime, lambda: is_leader[0], 30.0)

    loop._work()
    run.train(0)
    run.end(0)
    rest = loop._work()
    assert len(run.trials()) == 2
    assert rest <= SHORTEST_SECONDS
    run.end(1)
    is_leader[0] = False
    assert loop._work() == 30.0
    assert len(run.trials()) == 2, "another coordinator leads"


@pytest.mark.both_databases
def test_trials_of_one_step_read_the_sweep_once(make_run: Make) -> None:
    run = make_run(method=RANDOM, budget={"max_trials": 9, "parallel_trials": 4})

    with statements(run.db) as sent:
        run.step()

    assert len(run.trials()) == 4
    counts = [each for each in sent if "count(*)" in each and "FROM trial" in each]
    loads = [each for each in counts if "JOIN job" in each]
    assert len(loads) == 1, "how many trials run is concluded from the trials before"
    assert len([each for each in sent if "FROM webhook WHERE webhook.project = " in each and "EXISTS" not in each]) <= 1


@pytest.mark.both_databases
@pytest.mark.parametrize(("request_", "status"), [("pause", "PAUSED"), ("cancel", "FINISHING")])
def test_a_sweep_that_is_changed_during_a_step_makes_no_further_trial(
    make_run: Make, api: Api, request_: str, status: str
) -> None:
    run = make_run(method=RANDOM, budget={"max_trials": 9, "parallel_trials": 4})
    run.suggestions = Interrupts(2, lambda: api.data(api.post(f"/v1/sweeps/{run.id}/{request_}", {})))

    run.step()

    assert (len(run.trials()), run.sweep().status) == (2, status)


def test_a_budget_that_is_reduced_during_a_step_holds_for_it(make_run: Make, api: Api) -> None:
    run = make_run(method=RANDOM, budget={"max_trials": 9, "parallel_trials": 4})
    path, smaller = f"/v1/sweeps/{run.id}", {"budget": {"max_trials": 2}}
    run.suggestions = Interrupts(2, lambda: api.data(api.call("PATCH", path, json=smaller)))

    run.step()

    assert len(run.trials()) == 2


@pytest.mark.both_databases
def test_what_trials_of_one_step_are_learned_from_is_what_a_replay_reads(make_run: Make, api: Api) -> None:
    run = make_run(method={"name": "anneal", "seed": 5}, budget={"max_trials": 12, "parallel_trials": 4})
    asked = Asked()
    run.suggestions = asked

    run.run()

    with run.db.read() as session:
        sweep = session.get_one(Sweep, run.id)
        spec = SweepSpec.from_json(sweep.spec)
        read = {
            trial.number: known_to_method(session, sweep, spec, number=trial.number, seen_seq=trial.seen_seq)
            for trial in run.trials()
        }
    assert asked.observations == read
    assert api.get(f"/v1/sweeps/{run.id}/replay")["is_equal"] is True
    assert len({trial.seen_seq for trial in run.trials()}) < 12, "some were made in one step"
