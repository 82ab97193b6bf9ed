"""The numbers of figures, against small cases computed by hand."""

import pytest

from app.domain.sweeps import figures
from app.domain.sweeps.figures import thinned
from app.domain.sweeps.spec import Objective
from tests.builders.figure_points import ACCURACY, LOSS, parameters, point, report

MEMORY = Objective(metric="rank_memory_mb_max", goal="minimize")


def test_history_has_the_best_so_far_of_completed_feasible_trials():
    points = [
        point(0, 3.0),
        point(1, 2.0, state="STOPPED"),
        point(2, 1.0, is_feasible=False),
        point(4, 2.5),
        point(5, 2.5),
        point(6, 2.75),
        point(7, 2.25),
    ]

    found = figures.history(points, LOSS, most=100)

    assert [(each.number, each.value) for each in found.best] == [(0, 3.0), (4, 2.5), (7, 2.25)]
    assert found.points == points
    assert found.measured == 7


def test_history_of_an_objective_that_grows_has_the_largest_values():
    found = figures.history([point(0, 0.5), point(1, 0.25), point(2, 0.75)], ACCURACY, most=100)

    assert [each.number for each in found.best] == [0, 2]


def test_history_is_thinned_and_keeps_ends_and_extremes():
    points = [point(number, 5.0) for number in range(1000)]
    points[500], points[501] = point(500, 9.0), point(501, 1.0)

    found = figures.history(points, LOSS, most=20)

    numbers = [each.number for each in found.points]
    assert len(numbers) <= 20
    assert {0, 500, 501, 999} <= set(numbers)
    assert [each.number for each in found.best] == [0, 501]
    assert found.measured == 1000


def test_parallel_has_normalised_positions_and_none_where_a_parameter_is_not_active():
    points = [
        point(0, 2.0, learning_rate=1e-3, lora_r=32),
        point(1, 1.0, learning_rate=1e-4, lora_r=16, schedule="cosine", warmup=0.05),
    ]

    found = figures.parallel(points, LOSS, parameters(), most=100)

    assert [axis.name for axis in found.axes] == ["learning_rate", "lora_r", "schedule", "warmup", "eval_loss"]
    assert found.lines[0].positions == pytest.approx([1.0, 1.0, 0.0, None, 1.0])
    assert found.lines[1].positions == pytest.approx([0.5, 0.5, 1.0, 0.25, 0.0])
    assert [axis.is_conditional for axis in found.axes] == [False, False, False, True, False]
    assert found.constants == ["weight_decay"]
    assert found.best == 1


def test_slices_have_a_value_and_a_position_for_each_trial():
    points = [point(0, 2.0, lora_r=32), point(3, 1.0, schedule="cosine", warmup=0.2)]

    found = figures.slices(points, LOSS, parameters(), most=100)

    by_name = {each.axis.name: each for each in found.slices}
    assert by_name["lora_r"].values == [32, 8]
    assert by_name["lora_r"].positions == [1.0, 0.0]
    assert by_name["warmup"].values == [None, 0.2]
    assert by_name["warmup"].positions == [None, 1.0]
    assert found.best == 3


def test_thinning_keeps_the_best_able_trial_and_the_spread_of_values():
    points = [point(number, float(number), is_feasible=number > 2) for number in range(100)]

    found = thinned(points, LOSS, 10)

    numbers = [each.number for each in found]
    assert len(numbers) == 10
    assert 3 in numbers
    assert numbers == sorted(numbers)
    assert max(numbers) > 80
    assert thinned(points, LOSS, 100) == points


def test_of_no_able_trial_none_is_best():
    points = [point(0, 1.0, state="STOPPED"), point(1, 2.0, is_feasible=False)]

    assert figures.parallel(points, LOSS, parameters(), most=10).best is None
    assert figures.history(points, LOSS, most=10).best == []
    assert thinned([points[0]] * 3, LOSS, 2) == [points[0]] * 3  # one number, which is kept


def test_front_is_that_of_completed_feasible_trials_by_all_objectives():
    trials = [
        (point(0, 1.0), (1.0, 900.0)),
        (point(1, 2.0), (2.0, 500.0)),
        (point(2, 2.0), (2.0, 950.0)),
        (point(3, 0.5, is_feasible=False), (0.5, 100.0)),
    ]

    found = figures.front(trials, (LOSS, MEMORY), 0, 1, most=100)

    assert [(each.number, each.x, each.y, each.is_best) for each in found.points] == [
        (0, 1.0, 900.0, True),
        (1, 2.0, 500.0, True),
        (2, 2.0, 950.0, False),
        (3, 0.5, 100.0, False),
    ]
    assert (found.objectives, found.measured) == (2, 4)


def test_front_respects_the_goal_of_each_objective_and_keeps_its_trials_when_thinned():
    trials = [(point(i, float(i)), (float(i), float(-i))) for i in range(5)]
    trials += [(point(i, 9.0), (9.0, -99.0)) for i in range(5, 205)]

    found = figures.front(trials, (LOSS, ACCURACY), 0, 1, most=20)
    swapped = figures.front(trials, (LOSS, ACCURACY), 1, 0, most=20)

    assert [each.number for each in found.points if each.is_best] == [0]
    assert len(found.points) == 20
    assert (swapped.x, swapped.y) == (ACCURACY, LOSS)
    assert (swapped.points[1].x, swapped.points[1].y) == (-1.0, 1.0)


def test_a_front_of_many_trials_is_thinned_too():
    trials = [(point(i, float(i)), (float(i), float(-i))) for i in range(1000)]

    found = figures.front(trials, (LOSS, MEMORY), 0, 1, most=20)

    assert [each.number for each in found.points] == list(range(0, 1000, 50))
    assert all(each.is_best for each in found.points)


def test_a_rung_has_the_best_and_the_median_of_finite_reports():
    reports = [report(0, 100, 3.0), report(1, 100, 1.0), report(2, 100, None, continues=False), report(3, 100, 2.5)]

    found = figures.rung(100, reports, LOSS, trials=4, continued=3, is_last=False)
    best_of_accuracy = figures.rung(100, reports, ACCURACY, trials=4, continued=3, is_last=False).best
    empty = figures.rung(300, [], LOSS, trials=0, continued=0, is_last=True)

    assert (found.best, found.median, found.trials, found.continued) == (1.0, 2.5, 4, 3)
    assert best_of_accuracy == 3.0
    assert (empty.best, empty.median) == (None, None)


@pytest.mark.parametrize(("completed", "share"), [(10, 0.5), (20, 0.25), (50, 0.1), (1000, 0.1)])
def test_at_least_five_trials_count_as_the_best(completed, share):
    assert figures.best_share(completed) == share


def test_importances_name_constant_and_conditional_parameters():
    linear, cosine = point(0, 1.0).values, point(1, 1.0, schedule="cosine", warmup=0.1).values
    values = [linear] * 9 + [cosine] * 3

    found = figures.importance({"lora_r": 0.75, "learning_rate": 0.25}, parameters(), values, LOSS)

    assert [(each.name, each.importance, each.trials) for each in found.parameters] == [
        ("lora_r", 0.75, 12),
        ("learning_rate", 0.25, 12),
        ("schedule", 0.0, 12),
        ("warmup", 0.0, 3),
        ("weight_decay", 0.0, 12),
    ]
    assert [each.is_conditional for each in found.parameters] == [False, False, False, True, False]
    assert [each.is_constant for each in found.parameters] == [False, False, False, False, True]
    assert (found.completed, found.best) == (12, 5)


def test_of_too_few_trials_there_are_no_importances():
    found = figures.importance({}, parameters(), [point(0, 1.0).values] * 9, LOSS)

    assert (found.completed, found.needed, found.best, found.parameters) == (9, 10, 0, [])
