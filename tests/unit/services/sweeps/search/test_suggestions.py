"""Suggestions: in process or by the child, the same whichever process answers, and errors that say the way out."""

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from itertools import product
from pathlib import Path

import psutil
import pytest

from app.domain.errors import BadSpec
from app.domain.sweeps.annealing import anneal_values
from app.domain.sweeps.draws import random_values, seed_of
from app.domain.sweeps.grid import grid_values
from app.domain.sweeps.observations import OWN_FAULTS, Observation
from app.domain.sweeps.spec import FailedTrials, Method, Objective, SweepSpec
from app.services.sweeps.search.suggestions import SearchUnavailable, Suggestion, Suggestions
from tests.builders.search_questions import CONDITIONAL, NUMBERS, PLAIN, mixed_history, program_without, space_of
from tests.systems.system import wait_for

ROOT = Path(__file__).parents[5]
SPACE = space_of(PLAIN)
CHILDS_METHODS = ("tpe", "cmaes", "nsga2", "sobol", "bohb")  # test_gp.py has the other
# Asks the child from the first trial on: it has no startup trials.
ASKING = "sobol"
WHOLE = space_of({"a": {"type": "int", "min": 1, "max": 3}, "b": {"type": "bool"}})


@pytest.fixture
def start():
    """Starts Suggestions that are closed at the end."""
    started = []

    def begin(*arguments, **options):
        started.append(Suggestions(*arguments, **options))
        return started[-1]

    yield begin
    for each in started:
        each.close()


@pytest.fixture(scope="module")
def busy(owned_pids):
    """One that has answered questions of every method before."""
    suggestions = Suggestions()
    for name in CHILDS_METHODS:
        for number in range(12):
            suggestions.suggest(spec_of(name), SPACE, number=number, observations=mixed_history(SPACE, number))
    owned_pids.add(suggestions.child_pid)
    yield suggestions
    suggestions.close()


def spec_of(name, **options):
    return SweepSpec(method=Method(name=name, **options), objectives=(Objective(metric="eval_loss"),))


def running(program):
    """The command of a child that this is in place of."""
    return (sys.executable, "-c", program)


def test_grid_random_and_anneal_are_answered_without_a_child(start):
    suggestions, history = start(), mixed_history(WHOLE, 20)

    grid = suggestions.suggest(spec_of("grid", order="natural"), WHOLE, number=2, observations=[])
    drawn = suggestions.suggest(spec_of("random", seed=5), WHOLE, number=2, observations=[])
    annealed = suggestions.suggest(spec_of("anneal", avg_best_idx=3.0), WHOLE, number=20, observations=history)

    assert grid == Suggestion(grid_values(WHOLE, 2, order="natural", seed=0))
    assert drawn == Suggestion(random_values(WHOLE, seed_of(5, 2)))
    assert annealed == Suggestion(anneal_values(WHOLE, history, seed_of(0, 20), avg_best_idx=3.0))
    assert suggestions.child_pid is None


def test_a_grid_ends_and_enqueued_trials_take_no_place_of_it(start):
    suggestions = start()
    spec = SweepSpec(method=Method(name="grid"), enqueue=({"a": 1, "b": True}, {"a": 2, "b": True}))

    found = [suggestions.suggest(spec, WHOLE, number=number, observations=[]).values for number in range(2, 9)]

    assert sorted(map(str, found[:6])) == sorted(str({"a": a, "b": b}) for a in (1, 2, 3) for b in (False, True))
    assert found[6] is None
    assert suggestions.suggest(spec, WHOLE, number=9, place=0, observations=[]).values == found[0]


def test_a_population_begins_with_random_draws_and_enqueued_trials_and_has_no_others(start):
    suggestions = start()
    spec = SweepSpec(method=Method(name="pbt", population=4, seed=5), enqueue=({"a": 1, "b": True},))

    found = [suggestions.suggest(spec, WHOLE, number=number, observations=[]) for number in range(1, 6)]

    assert found[:3] == [Suggestion(random_values(WHOLE, seed_of(5, number))) for number in (1, 2, 3)]
    assert found[3:] == [Suggestion(None), Suggestion(None)]
    assert suggestions.child_pid is None


def test_a_new_child_suggests_what_a_busy_one_does(start, busy):
    new, answers = start(), []
    for name, parameters in product(CHILDS_METHODS, (PLAIN, CONDITIONAL)):
        spec, space = spec_of(name), space_of(parameters)
        history = mixed_history(space, 40)

        found = busy.suggest(spec, space, number=40, observations=history)

        assert space.check(found.values, field="values") == found.values, name
        answers.append((spec, space, history, found))
    for spec, space, history, found in reversed(answers):  # so that no method has the same before it in both
        assert new.suggest(spec, space, number=40, observations=history[::-1]) == found, spec.method.name


@pytest.mark.long
def test_a_child_that_was_killed_is_started_again(start):
    suggestions, history = start(), mixed_history(SPACE, 20)
    suggestions.suggest(spec_of("tpe"), SPACE, number=20, observations=history)
    first = suggestions.child_pid
    os.kill(first, signal.SIGKILL)

    found = suggestions.suggest(spec_of("tpe"), SPACE, number=21, observations=history)
    assert found == start().suggest(spec_of("tpe"), SPACE, number=21, observations=history)
    assert suggestions.child_pid != first


def test_a_question_that_is_repeated_is_not_computed_again(start):
    suggestions, history = start(), mixed_history(SPACE, 20)
    before = suggestions.suggest(spec_of("tpe"), SPACE, number=20, observations=history)
    os.kill(suggestions.child_pid, signal.SIGKILL)
    first = suggestions.child_pid

    assert suggestions.suggest(spec_of("tpe"), SPACE, number=20, observations=history) == before
    assert suggestions.child_pid == first  # that is dead


@pytest.mark.long
def test_a_child_that_is_killed_while_it_answers_is_asked_again(start, tmp_path):
    """The first of these children stops and is killed in the middle of a question."""
    mark = tmp_path / "first"
    program = f"import pathlib, runpy, sys, time; mark = pathlib.Path({str(mark)!r})\n"
    program += "if not mark.exists():\n    sys.stdin.read(10); mark.touch(); time.sleep(60)\n"
    program += "runpy.run_module('app.search', run_name='__main__')"
    suggestions = start(running(program))

    def kill():
        while not mark.exists():
            pass
        os.kill(suggestions.child_pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    found = suggestions.suggest(spec_of(ASKING), SPACE, number=3, observations=[])
    killer.join()

    assert found == start().suggest(spec_of(ASKING), SPACE, number=3, observations=[])


def test_a_child_that_ends_twice_is_reported_with_the_way_out(start):
    suggestions = start(running("raise SystemExit(3)"))

    with pytest.raises(SearchUnavailable) as failed:
        suggestions.suggest(spec_of(ASKING), SPACE, number=0, observations=[])

    assert failed.value.message.startswith("the process of method sobol failed 2 times: it ended")
    assert "Use one of grid, random, anneal" in failed.value.message
    assert suggestions.child_pid is None


@pytest.mark.parametrize("count", [40, 3000], ids=["short", "longer than a pipe holds"])
def test_a_child_that_hangs_is_killed(start, count):
    suggestions = start(running("import time; time.sleep(60)"), answer_seconds=0.3)
    history = mixed_history(SPACE, count)

    with pytest.raises(SearchUnavailable, match="failed 2 times: it gave no answer in time"):
        suggestions.suggest(spec_of("tpe"), SPACE, number=count, observations=history)

    assert suggestions.child_pid is None


def test_a_child_that_answers_another_question_is_not_believed(start):
    suggestions = start(running('import sys\nfor _ in sys.stdin: print(\'{"id": 9, "values": {}}\', flush=True)'))

    with pytest.raises(SearchUnavailable, match="it answered question 9 in place of 1"):
        suggestions.suggest(spec_of(ASKING), SPACE, number=0, observations=[])


@pytest.mark.parametrize(
    ("name", "library", "extra"), [("tpe", "optuna", "search"), ("sobol", "scipy", "search"), ("gp", "torch", "train")]
)
def test_a_missing_extra_is_named(start, name, library, extra):
    suggestions = start(running(program_without(library)))

    with pytest.raises(SearchUnavailable) as refused:
        suggestions.suggest(spec_of(name), SPACE, number=40, observations=mixed_history(SPACE, 40))

    assert f"method {name} needs {library}" in refused.value.message
    assert f"pip install 'trainyard[{extra}]'" in refused.value.message


@pytest.mark.parametrize(("name", "library", "extra"), [("tpe", "optuna", "search"), ("gp", "torch", "train")])
def test_a_missing_extra_is_named_before_the_first_trial(start, monkeypatch, name, library, extra):
    monkeypatch.setitem(sys.modules, library, None)

    with pytest.raises(SearchUnavailable, match=rf"method {name} needs {library}.*trainyard\[{extra}\]"):
        start().suggest(spec_of(name), SPACE, number=0, observations=[])


@pytest.mark.parametrize(
    ("name", "states"), [("tpe", ("completed", "stopped", "running")), ("gp", ("completed",))], ids=["tpe", "gp"]
)
def test_startup_trials_are_random_and_need_no_child(start, name, states):
    suggestions, spec = start(running("raise SystemExit(3)")), spec_of(name, startup_trials=3, seed=5)
    history = mixed_history(SPACE, 40)
    counted = [each for each in history if each.state in states]
    others = [each for each in history if each.state not in states]

    found = suggestions.suggest(spec, SPACE, number=40, observations=[*others, *counted[:2]])

    note = "drawn at random: one of 3 startup trials"
    assert found == Suggestion(random_values(SPACE, seed_of(5, 40)), note)
    with pytest.raises(SearchUnavailable, match="failed 2 times"):
        suggestions.suggest(spec, SPACE, number=40, observations=[*others, *counted[:3]])


def test_a_condition_that_is_never_met_is_bad_input(busy):
    with pytest.raises(BadSpec, match="'x > 9' was never met") as refused:
        busy.suggest(spec_of(ASKING), space_of(NUMBERS, "x > 9"), number=0, observations=[])

    assert refused.value.field == "require"


def test_failed_trials_count_as_the_worst_value_where_the_document_says_so(busy):
    history = mixed_history(SPACE, 40)
    spec = spec_of("tpe")
    penalizing = SweepSpec(method=spec.method, objectives=spec.objectives, on_failed_trials=FailedTrials(penalize=True))
    worst = max(each.objectives for each in history if each.state == "completed")
    as_worst = [
        Observation(number=each.number, values=each.values, state="completed", objectives=worst)
        if each.state == "failed"
        else each
        for each in history
    ]

    found = busy.suggest(penalizing, SPACE, number=40, observations=history)

    assert found == busy.suggest(spec, SPACE, number=40, observations=as_worst)
    assert found != busy.suggest(spec, SPACE, number=40, observations=history)


def test_only_the_causes_of_the_document_make_a_failed_trial_the_worst():
    completed = Observation(number=0, values=random_values(SPACE, 0), state="completed", objectives=(1.0,))
    failed = [
        Observation(number=number, values=random_values(SPACE, number), state="failed", cause=cause)
        for number, cause in enumerate(["OUT_OF_MEMORY", "NODE_LOST", ""], start=1)
    ]
    as_worst = replace(failed[0], state="completed", objectives=(1.0,), cause="")
    suggestions, spec = Suggestions(), spec_of("anneal")
    penalizing = replace(spec, on_failed_trials=FailedTrials(penalize=True, causes=OWN_FAULTS))

    found, expected, unlike = (
        [suggestions.suggest(given, SPACE, number=n, observations=known) for n in range(4, 24)]
        for given, known in (
            (penalizing, [completed, *failed]),
            (spec, [completed, as_worst, *failed[1:]]),
            (spec, [completed, *failed]),
        )
    )

    assert found == expected != unlike


def test_a_failed_trial_that_counts_is_the_worst_at_every_rung(busy):
    """Of bohb, which learns from the values there."""
    history = [
        *(
            replace(each, reports=((3, each.objectives[0]), (9, each.objectives[0] - 1))) if each.objectives else each
            for each in mixed_history(SPACE, 40)
        )
    ]
    worst = [max(dict(each.reports)[rung] for each in history if each.reports) for rung in (3, 9)]
    objectives = max(each.objectives for each in history if each.state == "completed")
    as_worst = [
        replace(each, state="completed", objectives=objectives, reports=((3, worst[0]), (9, worst[1])))
        if each.state == "failed"
        else each
        for each in history
    ]
    spec = spec_of("bohb", startup_trials=30)  # more than have completed
    penalizing = replace(spec, on_failed_trials=FailedTrials(penalize=True))

    found = [busy.suggest(penalizing, SPACE, number=n, observations=history) for n in range(40, 46)]

    assert found == [busy.suggest(spec, SPACE, number=n, observations=as_worst) for n in range(40, 46)]
    assert found != [busy.suggest(spec, SPACE, number=n, observations=history) for n in range(40, 46)]


def test_the_child_has_nothing_of_this_processs_environment(start, monkeypatch):
    monkeypatch.setenv("TRAINYARD_SECURITY_SECRET_KEY", "known")
    suggestions = start()
    suggestions.suggest(spec_of(ASKING), SPACE, number=0, observations=[])

    found = psutil.Process(suggestions.child_pid).environ()

    assert set(found) == {"PATH", "PYTHONPATH", "PYTHONSAFEPATH", "PYTHONHASHSEED", "LANG", "OMP_NUM_THREADS"}
    # With a filter of its system calls: tests/unit/host/test_computing.py has what it keeps out.
    assert "Seccomp:\t2\n" in Path(f"/proc/{suggestions.child_pid}/status").read_text()


@pytest.mark.long
def test_the_child_ends_with_its_parent_that_is_killed():
    parent = "from app.services.sweeps.search.search_child import SearchChild; import os\n"
    parent += "print(SearchChild().pid, flush=True); os.kill(os.getpid(), 9)"

    ran = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=False, cwd=ROOT)

    assert ran.returncode == -signal.SIGKILL
    wait_for(lambda: not psutil.pid_exists(int(ran.stdout)), seconds=20, what="the child to end")


@pytest.mark.long
def test_a_child_without_work_ends_and_the_next_question_starts_another(start):
    suggestions = start(running("import app.search.__main__ as p; p.IDLE_SECONDS = 0.1; p.main()"))
    suggestions.suggest(spec_of(ASKING), SPACE, number=0, observations=[])
    first = psutil.Process(suggestions.child_pid)

    wait_for(lambda: first.status() == psutil.STATUS_ZOMBIE, seconds=20, what="the child to end")

    found = suggestions.suggest(spec_of(ASKING), SPACE, number=1, observations=[])
    assert found == start().suggest(spec_of(ASKING), SPACE, number=1, observations=[])
    assert suggestions.child_pid != first.pid


@pytest.mark.long
def test_a_closed_one_starts_again_when_it_is_asked(start):
    suggestions = start()
    before = suggestions.suggest(spec_of(ASKING), SPACE, number=0, observations=[])
    suggestions.close()

    assert suggestions.child_pid is None
    assert suggestions.suggest(spec_of(ASKING), SPACE, number=0, observations=[]) == before


@pytest.mark.long
def test_threads_ask_one_after_the_other(start):
    suggestions = start()
    found: dict[int, Suggestion] = {}

    def ask(number):
        found[number] = suggestions.suggest(spec_of(ASKING), SPACE, number=number, observations=[])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert found == {n: suggestions.suggest(spec_of(ASKING), SPACE, number=n, observations=[]) for n in range(3)}
