"""Gaussian processes: in the child's process, because they import torch."""

import pytest

from app.domain.sweeps.observations import Observation
from app.domain.sweeps.spec import Method, Objective, SweepSpec
from app.services.sweeps.search.suggestions import Suggestions
from tests.builders.search_questions import NUMBERS, completed, mixed_history, quadratic, space_of

pytestmark = pytest.mark.long  # a child takes seconds to import torch

SPACE = space_of(NUMBERS)
SPEC = SweepSpec(method=Method(name="gp"), objectives=(Objective(metric="eval_loss"),))


@pytest.fixture(scope="module")
def suggestions(owned_pids):
    started = Suggestions()
    started.suggest(SPEC, SPACE, number=40, observations=mixed_history(SPACE, 40))
    owned_pids.add(started.child_pid)
    yield started
    started.close()


def test_gp_finds_the_minimum_of_a_quadratic_soon(suggestions):
    history: list[Observation] = []
    for number in range(25):
        values = suggestions.suggest(SPEC, SPACE, number=number, observations=history).values
        history.append(completed(number, values, quadratic(values)))

    assert min(each.objectives[0] for each in history) < 0.1


def test_a_new_process_suggests_the_same(suggestions):
    history = mixed_history(SPACE, 40)
    other = Suggestions()
    try:
        assert other.suggest(SPEC, SPACE, number=40, observations=history) == suggestions.suggest(
            SPEC, SPACE, number=40, observations=history
        )
    finally:
        other.close()


def test_tpe_follows_when_many_trials_have_completed(suggestions):
    history = [completed(number, {"x": 0.0, "y": 0.0, "z": number / 100}, number) for number in range(301)]

    found = suggestions.suggest(SPEC, SPACE, number=301, observations=history)

    assert found.note == "by tpe: gp learns from 300 completed trials at most, and there are 301"


def test_tpe_follows_where_gp_does_not_meet_the_conditions(suggestions):
    space = space_of(NUMBERS, "x >= 4.2")
    history = [completed(number, {"x": 4.5, "y": 0.0, "z": number / 10}, float(number)) for number in range(12)]

    found = suggestions.suggest(SPEC, space, number=12, observations=history)

    assert found.values is not None
    assert space.holds(found.values)
