"""The next trial follows the end of one at once, and the trials of one step share what was read for the first."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, select

from app.database.engine import Database
from app.domain.errors import InvalidRequest
from app.domain.lifecycle.states import JobState
from app.domain.sweeps.observations import Observation
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import FailedTrials, SweepSpec
from app.http.context import EXTENSION
from app.models import Sweep, SweepEvent, Webhook, WebhookDelivery
from app.services.requests.wakeups import Dispatcher
from app.services.sweeps import trials
from app.services.sweeps.ends import LONGEST_SECONDS, SHARE, SHORTEST_SECONDS, TrialEnds
from app.services.sweeps.observed import known_to_method
from app.services.sweeps.reading import replay
from app.services.sweeps.search.suggestions import Suggestion, Suggestions
from config.settings import load_settings
from tasks.background.sweeping import SweepLoop
from tasks.celery_app import Runtime
from tests.builders.factories import make_webhook
from tests.builders.statements import statements
from tests.builders.sweep_runs import SweepRun, constant
from tests.systems.apps import Api
from tests.unit.tasks.test_polls import Clock

Make = Callable[..., SweepRun]
RANDOM = {"name": "random", "seed": 1}


def refuse(*_arguments: Any, **_named: Any) -> None:
    raise InvalidRequest("this document is refused")


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
    ends = TrialEnds(run.db, clock=clock)

    assert not ends.new_among([run.id])
    assert ends.seconds == LONGEST_SECONDS
    run.end(0)
    assert ends.new_among([run.id]) == {run.id}
    assert ends.seconds == SHORTEST_SECONDS
    assert not ends.new_among([run.id]), "it waits to be recorded"
    clock.now += 10.0
    assert not ends.new_among([run.id])
    assert ends.seconds == 10.0 * SHARE, "trials last longer"
    clock.now += 3600.0
    assert not ends.new_among([run.id])
    assert ends.seconds == LONGEST_SECONDS
    run.end(1, JobState.FAILED)
    assert ends.new_among([run.id]) == {run.id}
    run.step()
    assert not ends.new_among([run.id]), "both are recorded"
    assert not ends.new_among(["sweep-of-another"])


@pytest.fixture
def loop(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[SweepLoop]:
    """That of a leader; it steps all sweeps once, and then only when it is woken."""
    monkeypatch.setattr("tasks.background.sweeping.REPORTS_SECONDS", 25.0)
    runtime = Runtime(api.app.extensions[EXTENSION].settings, api.db, Dispatcher(load_settings({})))
    loop = SweepLoop(runtime, lambda: True, 30.0)
    yield loop
    loop.join()


def test_the_loop_makes_the_next_trial_without_a_change_or_a_poll(make_run: Make, loop: SweepLoop) -> None:
    run = make_run(method=RANDOM, budget={"max_trials": 9, "parallel_trials": 1})

    loop._work()
    run.train(0)
    run.end(0)
    rest = loop._work()
    assert len(run.trials()) == 2
    assert SHORTEST_SECONDS <= rest <= max(SHORTEST_SECONDS, loop._took), "as long as its step took"
    run.end(1)
    loop._is_leader = lambda: False
    assert loop._work() == 30.0
    assert len(run.trials()) == 2, "another coordinator leads"


@contextmanager
def parameters(db: Database) -> Iterator[list[str]]:
    """Those of each statement that the block sends."""
    sent: list[str] = []

    def note(_connection: Any, _cursor: Any, _statement: str, parameters: Any, *_: Any) -> None:
        sent.append(repr(parameters))

    event.listen(db.engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(db.engine, "before_cursor_execute", note)


@pytest.mark.both_databases
def test_an_end_steps_only_its_own_sweep_before_all_are_due(make_run: Make, loop: SweepLoop) -> None:
    run, other = (make_run(method=RANDOM, budget={"max_trials": 9, "parallel_trials": 1}) for _ in range(2))
    loop._work()
    run.end(0)

    with parameters(run.db) as sent:
        loop._work()

    assert (len(run.trials()), len(other.trials())) == (2, 1)
    assert [each for each in sent if run.id in each and other.id not in each]
    assert not [each for each in sent if other.id in each and run.id not in each]
    assert len([each for each in sent if other.id in each]) == 1, "the question for ends of both"


def test_a_paused_sweep_without_running_trials_is_not_watched(make_run: Make, loop: SweepLoop, api: Api) -> None:
    run = make_run(method=RANDOM, budget={"max_trials": 9, "parallel_trials": 1})
    loop._work()
    api.data(api.post(f"/v1/sweeps/{run.id}/pause", {}))
    run.train(0)
    run.end(0)
    loop._work()
    assert run.states() == ["COMPLETED"]
    loop._due.expect()
    loop._work()

    with statements(run.db) as sent:
        rest = loop._work()

    assert sent == []
    assert rest > LONGEST_SECONDS


def test_nothing_is_asked_for_while_all_sweeps_are_due(
    make_run: Make, loop: SweepLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(method=RANDOM, budget={"max_trials": 9, "parallel_trials": 1})
    loop._work()
    loop._due.end(again_in=0.0)
    monkeypatch.setattr(TrialEnds, "new_among", lambda *_: pytest.fail("asked"))

    loop._work()

    assert loop._due.rest_seconds > 0


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


@pytest.mark.both_databases
@pytest.mark.parametrize("then", ["stored", "refused"])
@pytest.mark.parametrize("made", [0, 2], ids=["first-of-the-step", "third-of-the-step"])
def test_a_budget_that_is_reduced_during_a_step_holds_for_it(make_run: Make, api: Api, made: int, then: str) -> None:
    run = make_run(method=RANDOM, budget={"max_trials": 9, "parallel_trials": 1})
    run.step()
    run.train(0)
    run.end(0)
    api.data(api.call("PATCH", f"/v1/sweeps/{run.id}", json={"budget": {"parallel_trials": 4}}))
    most = 1 + made

    def reduce() -> None:
        api.data(api.call("PATCH", f"/v1/sweeps/{run.id}", json={"budget": {"max_trials": most}}))
        if then == "refused":  # by the check of its document, which follows
            monkey.setattr(trials, "check", refuse)

    run.suggestions = Interrupts(most, reduce)

    with pytest.MonkeyPatch.context() as monkey:
        run.step()

    assert len(run.trials()) == most
    run.step()
    assert (len(run.trials()), run.sweep().status) == (most, "FINISHING" if made else "COMPLETED")


@pytest.mark.both_databases
def test_each_event_of_a_step_is_delivered_once_to_each_webhook_that_wants_it(make_run: Make) -> None:
    run = make_run(method=RANDOM, budget={"max_trials": 9, "parallel_trials": 3})
    with run.db.write() as session:
        everything, best = make_webhook(session), make_webhook(session, event_types=["sweep.best"])
    run.step()
    for number, loss in enumerate((0.5, 0.9, 0.1)):
        run.train(number, curve=constant(loss))
        run.end(number)

    run.step()

    with run.db.read() as session:
        of_sweep = select(SweepEvent).where(SweepEvent.sweep_id == run.id, SweepEvent.seq > 1)  # 1: its creation
        events = session.scalars(of_sweep.order_by(SweepEvent.seq)).all()
        sent = [each for each in session.scalars(select(WebhookDelivery)) if "sweep" in each.payload]
    kinds = [each.type for each in events]
    assert (kinds.count("trial.started"), kinds.count("trial.ended"), kinds.count("sweep.best")) == (6, 3, 2)

    def delivered(hook: Webhook) -> list[tuple[int, str, str]]:
        mine = [each for each in sent if each.webhook_id == hook.id]
        return sorted((each.payload["event"]["seq"], each.event_id, each.event_type) for each in mine)

    expected = [(each.seq, each.id, each.type) for each in events]
    assert delivered(everything) == expected
    assert delivered(best) == [each for each in expected if each[2] == "sweep.best"]


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


def test_a_method_learns_from_failures_by_a_trials_own_fault_and_a_replay_does_too(make_run: Make, api: Api) -> None:
    run = make_run(budget={"max_trials": 9, "parallel_trials": 1}, method={"name": "anneal"})
    run.step()
    run.train(0)
    run.end(0)
    for number, cause in enumerate(["OUT_OF_MEMORY", "NODE_LOST"], start=1):
        run.step()
        run.end(number, JobState.FAILED, error_type=cause, error_message="it failed")
    run.step()
    api.data(api.post(f"/v1/sweeps/{run.id}/trials/3/stop"))  # before it measures anything
    run.carry_out(3)
    run.step()

    with run.db.read() as session:
        sweep = session.get_one(Sweep, run.id)
        spec = SweepSpec.from_json(sweep.spec)
        known = known_to_method(session, sweep, spec, number=4, seen_seq=sweep.seq)
    assert (run.states()[3], [each.state for each in known]) == ("STOPPED", ["completed", *["failed"] * 3])
    assert [each.cause for each in known] == ["", "OUT_OF_MEMORY", "NODE_LOST", ""]
    assert [spec.on_failed_trials.penalizes(each.cause) for each in known] == [False, True, False, False]
    of_old_sweeps = FailedTrials(penalize=True, causes=None)
    assert all(of_old_sweeps.penalizes(each.cause) for each in known)
    assert api.get(f"/v1/sweeps/{run.id}/replay")["is_equal"] is True


@pytest.mark.long
def test_a_replay_from_a_trial_on_ends_after_its_time_and_says_what_follows(
    make_run: Make, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(budget={"max_trials": 4, "parallel_trials": 1}, method={"name": "anneal"})
    run.run()
    monkeypatch.setattr(replay, "PART_SECONDS", 0.0)
    whole, closed = (api.get(f"/v1/sweeps/{run.id}/replay{query}") for query in ("", "?from=1&to=3"))
    parts = [api.get(f"/v1/sweeps/{run.id}/replay?from=0")]
    while (following := parts[-1]["next_from"]) is not None:
        parts.append(api.get(f"/v1/sweeps/{run.id}/replay?from={following}"))

    assert [(part["from"], part["to"]) for part in parts] == [(number, number) for number in range(4)]
    assert (whole["suggestions"], closed["suggestions"], closed["next_from"]) == (4, 3, None)
    for name in ("suggestions", "decisions"):
        assert sum(part[name] for part in parts) == whole[name]
    assert all(each["is_equal"] for each in (*parts, whole, closed))
