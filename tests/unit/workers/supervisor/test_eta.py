"""Remaining time: by the latest speed, from the start of the attempt, without time that was not training."""

import pytest

from workers.supervisor.ranks.eta import Eta


def fed(*reports: tuple[int, float]) -> Eta:
    eta = Eta()
    for step, now in reports:
        eta.progress(step, now)
    return eta


def test_no_eta_before_a_step_was_timed():
    assert Eta().seconds(100) is None
    assert fed((0, 5.0)).seconds(100) is None
    assert fed((0, 5.0), (1, 7.0)).seconds(None) is None


def test_equal_steps_give_the_exact_rest():
    assert fed((0, 0.0), (1, 2.0), (2, 4.0), (5, 10.0)).seconds(20) == 30.0


def test_steps_of_earlier_attempts_took_no_time_of_this_one():
    assert fed((500, 100.0), (501, 101.0)).seconds(600) == 99.0


def test_a_run_that_begins_anew_forgets_what_it_knew():
    eta = fed((0, 0.0), (10, 1.0), (2, 5.0))

    assert eta.seconds(10) is None
    eta.progress(3, 6.0)
    assert eta.seconds(10) == 7.0


def test_idle_time_does_not_count_as_training_time():
    eta = fed((0, 0.0), (1, 1.0))
    eta.phase("EVALUATING", 1.0)
    eta.phase("CHECKPOINTING", 50.0)
    eta.phase("TRAINING", 61.0)
    eta.progress(2, 62.0)

    assert eta.seconds(10) == 8.0


def test_one_slow_step_hardly_counts_and_a_lasting_change_does():
    eta = fed(*((n, float(n)) for n in range(301)))
    eta.progress(301, 310.0)
    assert 100 <= (eta.seconds(401) or 0) < 110

    for n in range(1, 101):
        eta.progress(301 + n, 310.0 + 5 * n)
    assert eta.seconds(501) == pytest.approx(500, rel=0.05)


def test_eta_at_the_last_step_is_zero():
    assert fed((0, 0.0), (4, 4.0)).seconds(4) == 0.0
    assert fed((0, 0.0), (5, 5.0)).seconds(4) == 0.0
