"""Losses that have exploded end a training; noisy, spiky and odd ones that trainings survive do not."""

import itertools
import math
import random

import pytest

from workers.trainers.failures import Diverged, NonFiniteLoss
from workers.trainers.hf_trainer.monitoring.divergence_detector import (
    HIGH_TOLERATED,
    MIN_LOSSES,
    NON_FINITE_TOLERATED,
    DivergenceDetector,
)

STEPS = 2000
WARM_UP = 100
SEEDS = range(6)


def ended(losses, *cuts):
    """The step at which a run with these losses ends, and why; at `cuts` it resumes from a checkpoint."""
    watch = DivergenceDetector()
    for step, loss in enumerate(losses, start=1):
        if step in cuts:
            watch = DivergenceDetector(watch.to_document())
        try:
            watch.observe(step, loss, warming_up=step <= WARM_UP)
        except (Diverged, NonFiniteLoss) as error:
            return step, error
    return None, None


def falling(step, *, first=10.5, last=2.2):
    """What the loss of a pre-training looks like, without its noise."""
    return last + (first - last) * math.exp(-step / 150)


def fine_tuned(step):
    """Few epochs over little data: each one begins lower than the one before, the last ones near nothing."""
    return 2.5 * 0.35 ** (step // 200) + 0.02


# name → loss of a step, given a generator of random numbers
HARMLESS = {
    "gaussian noise": lambda step, draw: falling(step) + draw.gauss(0, 0.15),
    "much noise": lambda step, draw: abs(falling(step) + draw.gauss(0, 1.0)),
    "heavy tails": lambda step, draw: abs(falling(step) + 0.1 * draw.gauss(0, 1) / max(abs(draw.gauss(0, 1)), 0.02)),
    "tiny batches": lambda step, draw: draw.expovariate(1 / falling(step)),
    "single spikes": lambda step, draw: falling(step) + (30 if draw.random() < 0.02 else 0),
    "spikes of some steps": lambda step, draw: falling(step) + (6 if step % 300 < HIGH_TOLERATED else 0),
    "epochs of a small data set": lambda step, draw: fine_tuned(step) * draw.lognormvariate(0, 0.5),
    "near zero with outliers": lambda step, draw: draw.choice((0.001, 0.01, 0.01, 0.02, 1.9)),
    "harder data from some step on": lambda step, draw: (1.2 if step < 900 else 3.0) + draw.gauss(0, 0.1),
    "a bump that begins at once": lambda step, draw: (7, 14, 22, 44, 34, 27, 21, 15)[step - 1] if step < 9 else 6.0,
    "a bump while warming up": lambda step, draw: 1.5 + (4 if 20 < step < 80 else 0) + draw.gauss(0, 0.1),
    "constant": lambda step, draw: 0.5,
    "all zero": lambda step, draw: 0.0,
}


@pytest.mark.parametrize("name", HARMLESS)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_alarm_on_curves_that_trainings_survive(name, seed):
    draw = random.Random(seed)

    assert ended(HARMLESS[name](step, draw) for step in range(1, STEPS + 1)) == (None, None)


# name → step it begins at, loss of a step from there on
EXPLODING = {
    "up at once and stays": (700, lambda step, draw: 7.5 + draw.gauss(0, 0.3)),
    "exponential": (700, lambda step, draw: min(2.2 * 1.2 ** (step - 700), 1e30)),
    "to a uniform guess": (700, lambda step, draw: 10.8),
    "up and down": (700, lambda step, draw: draw.uniform(6, 60)),
    "at the second step": (2, lambda step, draw: 300.0 + step),
    "while warming up": (8, lambda step, draw: min(10.0 * 2 ** (step - 8), 1e30)),
}


@pytest.mark.parametrize("name", EXPLODING)
@pytest.mark.parametrize("seed", SEEDS)
def test_explosion_is_found_soon_and_its_first_step_named(name, seed):
    begins, loss = EXPLODING[name]
    draw = random.Random(seed)
    before = (falling(step) + draw.gauss(0, 0.15) for step in range(1, begins))

    step, error = ended(itertools.chain(before, (loss(step, draw) for step in range(begins, STEPS))))

    assert isinstance(error, Diverged)
    assert "lower learning_rate" in str(error)
    named = int(str(error).split("exploded at step ")[1].split(":")[0])
    assert begins <= named <= begins + 12
    assert step == named + HIGH_TOLERATED


def test_loss_that_creeps_up_does_not_take_the_bound_with_it():
    _, error = ended(2.0 + max(0, step - 500) * 0.004 for step in range(1, STEPS))

    assert isinstance(error, Diverged)


def test_several_losses_that_are_no_numbers_end_a_run_and_the_first_is_named():
    watch = DivergenceDetector()
    watch.observe(6, 1.0, warming_up=False)
    for step in range(7, 7 + NON_FINITE_TOLERATED):
        watch.observe(step, math.nan, warming_up=False)

    with pytest.raises(NonFiniteLoss, match="wrong at step 7, and was inf in 6 logged steps"):
        watch.observe(12, math.inf, warming_up=False)


def test_numbers_in_between_are_a_recovery():
    watch = DivergenceDetector()
    for step in range(101):
        watch.observe(step, 1.0 if step % 5 == 0 else math.nan, warming_up=False)

    assert not watch.is_suspect


def test_weights_are_suspected_as_soon_as_gradients_are_no_numbers():
    watch, suspected = DivergenceDetector(), []
    # After the fourth there is no loss any more.
    for step, norm in enumerate((0.7, math.inf, 0.7, math.nan), start=1):
        watch = DivergenceDetector(watch.to_document())
        watch.observe(step, 5.0, gradient_norm=norm, warming_up=False)
        suspected.append(watch.is_suspect)
    assert suspected == [False, True, False, True]

    for step in range(5, 5 + NON_FINITE_TOLERATED):
        watch.observe(step, math.nan, gradient_norm=math.nan, warming_up=False)

    with pytest.raises(NonFiniteLoss, match="went wrong at step 4, and was nan"):
        watch.observe(10, math.nan, gradient_norm=math.nan, warming_up=False)


def test_weights_are_suspected_until_the_loss_is_back():
    watch = DivergenceDetector()
    suspected = []
    for step, loss in enumerate([*[1.0] * MIN_LOSSES, 9.0, math.nan, 1.1]):
        watch.observe(step, loss, warming_up=False)
        suspected.append(watch.is_suspect)

    assert suspected == [False] * MIN_LOSSES + [True, True, False]


def test_run_that_goes_on_from_checkpoints_notices_at_the_same_step():
    draw = random.Random(7)
    losses = [falling(step) + draw.gauss(0, 0.1) + 20 * (step >= 700) for step in range(STEPS)]

    step, _ = ended(losses)

    assert step is not None
    assert ended(losses, 3, 90, 400, 705, 706)[0] == step
