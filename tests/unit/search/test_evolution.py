"""CMA-ES: cmaes' own optimizer, rebuilt from observations."""

import cmaes
import numpy as np
import pytest

from app.domain.sweeps.observations import Observation
from app.search.evolution import suggest
from tests.builders.search_questions import NUMBERS, completed, numbers, quadratic, question_of, space_of

SPACE = space_of(NUMBERS)


def searched(count, **options):
    """The observations of so many trials, one after the other."""
    history: list[Observation] = []
    for number in range(count):
        values = suggest(question_of("cmaes", SPACE, history, **options)).values
        history.append(completed(number, values, quadratic(values)))
    return history


def test_one_trial_after_the_other_is_cma_es_itself():
    history = searched(60, sigma0=0.2)

    optimizer = cmaes.CMA(mean=np.full(3, 0.5), sigma=0.2, bounds=np.array([[0.0, 1.0]] * 3), n_max_resampling=30)
    generation = []
    for each in history:
        optimizer.reseed_rng(question_of("cmaes", SPACE, number=each.number).seed % 2**32)
        point = optimizer.ask()
        assert [each.values[name] for name in "xyz"] == pytest.approx((point * 10 - 5).tolist())
        generation.append((point, each.objectives[0]))
        if len(generation) == optimizer.population_size:
            optimizer.tell(generation)
            generation = []
    assert optimizer.generation == 60 // optimizer.population_size


def test_trials_that_run_or_failed_hold_no_generation_up():
    history = searched(28)
    gone = [
        Observation(number=28, values=history[0].values, state="running"),
        Observation(number=29, values=history[1].values, state="failed"),
    ]

    assert suggest(question_of("cmaes", SPACE, [*history, *gone], number=30)) == suggest(
        question_of("cmaes", SPACE, history, number=30)
    )


@pytest.mark.parametrize(
    "worse",
    [{"state": "stopped", "step": 100}, {"state": "completed", "violations": (0.5,)}],
    ids=["stopped", "broken"],
)
def test_trials_that_were_stopped_or_break_a_constraint_count_as_worse_than_all_others(worse):
    """However small their objectives are: those of a stopped one belong to less training."""
    history = searched(7)
    lost = Observation(number=0, values=history[0].values, objectives=(-1e9,), **worse)
    worst = completed(0, history[0].values, 1e9)

    assert suggest(question_of("cmaes", SPACE, [lost, *history[1:]])) == suggest(
        question_of("cmaes", SPACE, [worst, *history[1:]])
    )


def test_a_restart_begins_elsewhere_with_twice_the_population():
    """An objective without differences ends a distribution, which has 7 points for three numbers."""
    flat = [completed(number, {"x": 1.0, "y": 1.0, "z": 1.0}, 0.0) for number in range(7 * 60)]

    without = suggest(question_of("cmaes", SPACE, flat)).values
    restarted = suggest(question_of("cmaes", SPACE, flat, restarts=2)).values

    assert without == pytest.approx({"x": 1.0, "y": 1.0, "z": 1.0}, abs=0.5)
    assert restarted != pytest.approx(without, abs=0.5)


def test_whole_numbers_and_steps_are_searched_too():
    space = space_of(
        {"n": {"type": "int", "min": 1, "max": 64}, "p": {"type": "double", "min": 0, "max": 1, "step": 0.1}}
    )
    history: list[Observation] = []
    for number in range(120):
        found = suggest(question_of("cmaes", space, history))
        loss = abs(numbers(found)["n"] - 50) + abs(numbers(found)["p"] - 0.3)
        history.append(completed(number, found.values, loss))

    best = min(history, key=lambda each: each.objectives)
    assert best.values == {"n": pytest.approx(50, abs=2), "p": pytest.approx(0.3, abs=0.11)}


def test_values_that_break_a_condition_are_drawn_again():
    space = space_of(NUMBERS, "x + y + z <= -4")

    found = [suggest(question_of("cmaes", space, number=number)) for number in range(20)]

    assert all(space.holds(each.values) and each.note == "" for each in found)


def test_values_are_random_where_the_distribution_never_meets_a_condition():
    space = space_of(NUMBERS, "x >= 4.9")

    found = suggest(question_of("cmaes", space, searched(7 * 20)))

    assert space.holds(found.values)
    assert found.note == "drawn at random: 1000 draws of cmaes did not meet `require`"
